"""Baselines: one YAML file per test module, a pure function of the results.

The reader reports merge conflicts, duplicate keys, aliases, unknown schemas, wrong types and missing keys as errors, with file,
line and the remedy. It ignores unknown keys inside a case, and the next update drops them.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from gpuperf_engine import __version__

from ..core.escaping import one_line
from ..core.mangling import stable_id
from ..core.metric import PLUGINS, Metric
from ..core.metrics import ANALYSIS, TABLE, UNSAID
from ..core.program_cases import update_command
from ..core.records import Entry
from ..core.renamed import renamed_line
from .yaml_text import write_block

__all__ = [
    "CASE",
    "OPTIONAL",
    "SCHEMA",
    "TARGET",
    "Baseline",
    "BaselineError",
    "baseline_path",
    "check_place",
    "is_required",
    "ordered",
    "parse_baseline",
    "remove_leftovers",
    "render_baseline",
    "write_if_changed",
]

SCHEMA = 1
"""The format. A later one says in the key ``release`` which release reads it first, since this one cannot know."""

_TOP = {"schema", "analysis", "cases"}
_RELEASE = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,3}", re.ASCII)
_AHEAD = (
    "written by a newer pytest-gpuperf (metrics {}, this one has "
    f"{ANALYSIS['metrics']}): its additional metrics are not judged, and an update drops them; upgrade to judge them"
)

OPTIONAL = {
    "analysis", "compiler", "by_category", "opcodes", "flops", PLUGINS, "findings", "lines", "targets", "machine_code",
    "stalls", "model", "values", "paced",
}  # fmt: skip
"""Keys that a writer omits if they are empty; a file without the other keys was truncated or edited."""

_LAYOUT: Mapping[object, object] = {
    "analysis": "revisions",
    "kernel": "text",
    "inputs": "text",
    "compiler": "text",
    "values": "text",
    "paced": "text",
    ...: None,
    "counts": {...: None, "by_category": "counts", "opcodes": "counts"},
    "flops": "counts",
    "branches": {...: None},
    "memory": {...: None},
    "resources": {"from": "text", ...: None},
    PLUGINS: "plugins",
    "findings": "texts",
    "lines": "texts",
    "targets": "targets",
}


def _shape(layout: Mapping[Any, Any], metrics: Iterable[Metric], depth: int = 0) -> dict[str, Any]:
    """The layout with every metric where its path says; the key ``...`` stands for those, and the sections, that it does not name."""
    groups: dict[str, list[Metric]] = {}
    for metric in metrics:
        groups.setdefault(metric.path[depth], []).append(metric)
    shape: dict[str, object] = {}
    for name, kind in layout.items():
        if name is ...:
            for key in (key for key in groups if key not in layout):
                first = groups[key][0]
                leaf = len(first.path) == depth + 1
                shape[key] = first if leaf else _shape({...: None}, groups[key], depth + 1)
        elif kind is ...:
            shape[name] = groups[name][0]
        else:
            shape[name] = _shape(kind, groups.get(name, ()), depth + 1) if isinstance(kind, Mapping) else kind
    return shape


CASE = _shape(_LAYOUT, [row for row in TABLE.single if row.kind != "set" and not row.per_target])
TARGET = _shape(
    {
        "machine": "count",
        "model": {"name": "text", "revision": "count", "assembler": "text or none"},
        "time_us": ...,
        "limiter": "text",
        "stalls": "texts",
        ...: None,
        "machine_code": {"architecture": "text", "assembler": "text", "code": "text", ...: None},
        PLUGINS: "plugins",
    },
    TABLE.per_target,
)
"""What a case, and one target of it, holds, in the order of files: mappings, metrics, and kinds of values by name."""


class BaselineError(Exception):
    """A baseline file that cannot be used: where, what was found, what to do. ``newer``: it is of a later format, so that an
    update must not replace it."""

    def __init__(self, message: str, newer: bool = False) -> None:
        super().__init__(message)
        self.newer = newer


@dataclass
class Baseline:
    """One file: revisions of the analysis and cases by id. A case that was stored under other revisions than its file
    carries its own ``analysis``. Metrics that are younger than its revision of ``metrics`` are missing. ``notes`` say what of it
    is not used, and why."""

    analysis: dict[str, int] = field(default_factory=lambda: dict(ANALYSIS))
    cases: dict[str, Entry] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def analysis_of(self, key: str) -> Mapping[str, int]:
        return {**self.analysis, **self.cases[key].get("analysis", {})}


def baseline_path(directory: Path, module: str) -> Path:
    """Return the baseline file of a test module (its path relative to the rootdir)."""
    return directory / (module.removesuffix(".py") + ".yaml")


def parse_baseline(data: bytes, module: str, shown: str) -> Baseline | None:
    """The baseline of a module from the contents of a file, ``None`` if that is empty. Raises ``BaselineError``; ``shown`` is the
    path for messages."""
    refresh = _refresh(module)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BaselineError(
            f"{shown}: not UTF-8 text (byte {error.start})\n  rewrite it: {refresh}"
        ) from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("<<<<<<< ", ">>>>>>> ", "||||||| ")) or line.rstrip() == "=======":
            raise BaselineError(
                f"{shown}:{number}: conflict markers of an unfinished merge\n"
                f"  neither side's numbers are valid for the merged code; measure it: {refresh}"
            )
    reader = _Reader(shown, refresh)
    root = reader.compose(text)
    if root is None:
        return None
    top = reader.mapping(root, "the file")
    if "schema" not in top:
        reader.fault(root, "no 'schema': this is not a baseline")
    schema = reader.value(top["schema"], "count", "schema")
    if schema != SCHEMA:
        known = f"schema {schema} is not known: pytest-gpuperf {__version__} reads schema {SCHEMA}"
        newer = schema > SCHEMA
        reader.fault(top["schema"], known, _upgrade(reader, top) if newer else "", newer)
    for name in top.keys() - _TOP:
        reader.fault(
            top[name], f"key {name!r} is not known", f"{_upgrade(reader, top)}, else rewrite it: {refresh}"
        )
    analysis = {**UNSAID, **(reader.revisions(top["analysis"]) if "analysis" in top else {})}
    cases: dict[str, Entry] = {}
    if "cases" in top and not reader.empty(top["cases"]):
        nodes = reader.mapping(top["cases"], "cases")
        for key, node in nodes.items():
            # Ids of earlier versions hold what a compiler counts; of two that would become one, both stay.
            stable = stable_id(key)
            stable = key if stable in nodes or stable in cases else stable
            cases[stable] = cast(Entry, reader.shaped(node, CASE, key, analysis["metrics"]))
    ahead = analysis["metrics"] > ANALYSIS["metrics"]
    return Baseline(analysis, cases, (f"{shown}: {_AHEAD.format(analysis['metrics'])}",) if ahead else ())


def _upgrade(reader: _Reader, top: Mapping[str, object]) -> str:
    """Return the release that reads a file of a newer format, if the file names it."""
    release = reader.text(top.get("release"))
    wanted = f"'pytest-gpuperf>={release}'" if _RELEASE.fullmatch(release) else "--upgrade pytest-gpuperf"
    return f"a newer release may have written it: upgrade, pip install {wanted}"


def ordered(case: Mapping[str, Any], shape: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A case with its keys in the order of files."""
    shape = CASE if shape is None else shape
    sorted_values: dict[str, object] = {}
    for name in shape:
        if name in case:
            inner = shape[name]
            if isinstance(inner, Mapping):
                sorted_values[name] = ordered(case[name], inner)
            elif inner == "plugins":
                sorted_values[name] = {
                    plugin: {key: case[name][plugin][key] for key in sorted(case[name][plugin])}
                    for plugin in sorted(case[name])
                }
            elif inner == "targets":
                sorted_values[name] = {target: ordered(entry, TARGET) for target, entry in case[name].items()}
            else:
                sorted_values[name] = case[name]
    return sorted_values


def is_required(name: str, kind: object, revision: int) -> bool:
    """Whether a baseline of that revision of ``metrics`` must have this key of ``CASE`` or ``TARGET``."""
    if isinstance(kind, Mapping):
        return name not in OPTIONAL and any(is_required(part, of, revision) for part, of in kind.items())
    if isinstance(kind, Metric):
        return (
            not kind.missing and kind.since <= revision <= ANALYSIS["metrics"]
        )  # metrics that a later revision dropped are not known here
    return name not in OPTIONAL and kind != "text or none"


def _refresh(module: str) -> str:
    """The command that writes the file anew."""
    return update_command(one_line(module, 1000))


class _Reader:
    """Typed reading of YAML nodes, with positions."""

    def __init__(self, shown: str, refresh: str) -> None:
        import yaml

        self.yaml = yaml
        self.shown = shown
        self.refresh = refresh
        self.seen: set[int] = set()

    def compose(self, text: str) -> object:
        loader = getattr(self.yaml, "CSafeLoader", self.yaml.SafeLoader)
        try:
            return self.yaml.compose(text, Loader=loader)
        except self.yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f":{mark.line + 1}" if mark is not None else ""
            raise BaselineError(
                f"{self.shown}{line}: not YAML: {error.problem}\n  rewrite it: {self.refresh}"
            ) from None
        except self.yaml.YAMLError as error:
            problem = str(error).splitlines()[0]
            raise BaselineError(f"{self.shown}: not YAML: {problem}\n  rewrite it: {self.refresh}") from None
        except RecursionError:
            raise BaselineError(f"{self.shown}: nested too deeply\n  rewrite it: {self.refresh}") from None

    def fault(self, node: Any, problem: str, hint: str = "", newer: bool = False) -> Any:
        raise BaselineError(
            f"{self.shown}:{node.start_mark.line + 1}: {problem}\n  {hint or 'rewrite it: ' + self.refresh}",
            newer,
        )

    def empty(self, node: object) -> bool:
        return isinstance(node, self.yaml.ScalarNode) and node.value in ("", "~", "null")

    def mapping(self, node: Any, what: str) -> dict[str, Any]:
        if not isinstance(node, self.yaml.MappingNode):
            self.fault(node, f"{what} must be a mapping")
        values: dict[str, object] = {}
        for key, value in node.value:
            name = (
                key.value if isinstance(key, self.yaml.ScalarNode) else self.fault(key, "a key must be text")
            )
            if name in values:
                self.fault(key, f"{name!r} is given twice", f"do not merge them by hand: {self.refresh}")
            if id(value) in self.seen:
                self.fault(key, "aliases (*name) are not used in baselines")
            self.seen.add(id(value))
            values[name] = value
        return values

    def text(self, node: object) -> str:
        return str(node.value) if isinstance(node, self.yaml.ScalarNode) else ""

    def revisions(self, node: object) -> dict[str, int]:
        values = self.mapping(node, "'analysis'")
        return {key: self.value(values[key], "count", key) for key in ANALYSIS if key in values}

    def shaped(self, node: Any, shape: Mapping[str, Any], what: str, revision: int) -> dict[str, Any]:
        values = self.mapping(node, repr(what))
        result: dict[str, Any] = {}
        for name, kind in shape.items():
            if name not in values and isinstance(kind, Metric) and (former := kind.key_in(values)) in values:
                values[name] = values[former]
            if name not in values:
                if is_required(name, kind, revision):
                    self.fault(node, f"{what!r} has no {name!r}: the file was truncated or edited")
            elif isinstance(kind, Mapping):
                result[name] = self.shaped(values[name], kind, name, revision)
            elif isinstance(kind, Metric):
                result[name] = self.value(values[name], "number" if kind.digits else "count", name)
            elif kind == "revisions":
                result[name] = self.revisions(values[name])
                revision = result[name].get("metrics", revision)
            elif kind == "counts":
                result[name] = {
                    k: self.value(v, "count", k) for k, v in self.mapping(values[name], repr(name)).items()
                }
            elif kind == "targets":
                result[name] = {
                    k: self.shaped(v, TARGET, k, revision)
                    for k, v in self.mapping(values[name], repr(name)).items()
                }
            elif kind == "plugins":
                result[name] = {
                    plugin: {k: self.value(v, "figure", k) for k, v in self.mapping(rows, plugin).items()}
                    for plugin, rows in self.mapping(values[name], repr(name)).items()
                }
            elif kind == "texts":
                if not isinstance(values[name], self.yaml.SequenceNode):
                    self.fault(values[name], f"{name!r} must be a list")
                texts = [self.value(item, "text", name) for item in values[name].value]
                result[name] = [renamed_line(text) for text in texts] if name == "lines" else texts
            else:
                result[name] = self.value(values[name], kind, name)
        return result

    def value(self, node: Any, kind: str, what: str) -> Any:
        kind = ("count" if node.tag.endswith(":int") else "number") if kind == "figure" else kind
        tag = node.tag.rpartition(":")[2] if isinstance(node, self.yaml.ScalarNode) else "collection"
        kind = "text" if kind == "text or none" else kind
        if kind == "text" and tag == "str":
            return str(node.value)
        if (
            kind == "count"
            and tag == "int"
            and node.value.isascii()
            and node.value.isdigit()
            and len(node.value) < 40
            and (node.value[0] != "0" or node.value == "0")  # to YAML an octal number
        ):
            return int(node.value)
        if kind == "number" and tag in ("int", "float"):
            try:
                number = float(node.value)
            except ValueError:
                number = -1.0
            if 0.0 <= number < float("inf"):
                return number
        wanted = {"text": "text", "count": "a whole number", "number": "a number"}[kind]
        return self.fault(
            node,
            f"{what!r} must be {wanted}, found {str(node.value)[:40]!r}"
            if tag != "collection"
            else f"{what!r} must be {wanted}",
        )


def render_baseline(baseline: Baseline, module: str) -> bytes:
    """The file's bytes. Cases are sorted, keys in fixed order; entries kept from other revisions of the analysis say so."""
    lines = [
        f"# pytest-gpuperf baseline; refresh: {_refresh(module)}",
        f"schema: {SCHEMA}",
        "analysis:",
        *write_block(ANALYSIS, 2),
        "cases:",
    ]
    for key in sorted(baseline.cases):
        case = baseline.cases[key]
        older = {
            name: value for name, value in baseline.analysis_of(key).items() if ANALYSIS.get(name) != value
        }
        kept = {name: value for name, value in case.items() if name != "analysis"}
        lines.extend(write_block({key: ordered({**({"analysis": older} if older else {}), **kept})}, 2))
    return ("\n".join(lines) + "\n").encode("utf-8")


_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
}


def check_place(path: Path, root: Path | None = None) -> Path:
    """Where the file of that path really is, if one may be read or written there. Raises ``OSError`` for what is not a regular file
    (reading a FIFO would wait forever) and for links that lead out of ``root``."""
    real = Path(os.path.realpath(path))
    if root is not None and not real.is_relative_to(os.path.realpath(root)):
        raise OSError(
            errno.EPERM, f"a link leads out of {root}: nothing there is read or written; remove it", str(path)
        )
    try:
        kind = stat.S_IFMT(real.stat().st_mode)
    except FileNotFoundError:
        return real
    if kind != stat.S_IFREG:
        raise OSError(errno.EINVAL, f"{_KINDS.get(kind, 'no file')}, no regular file: remove it", str(path))
    return real


_LEFT = re.compile(r"[a-z0-9_]{8}", re.ASCII)


def remove_leftovers(path: Path) -> None:
    """Removes the temporary files that writers of this file left when they were killed."""
    prefix = f".{path.name}."
    try:
        names = [name for name in os.listdir(path.parent) if name.startswith(prefix)]
    except OSError:
        return
    for name in names:
        if _LEFT.fullmatch(name, len(prefix)):
            with suppress(OSError):
                os.unlink(path.parent / name)


def write_if_changed(path: Path, data: bytes, root: Path | None = None) -> bool:
    """Replaces a file by ``data`` at once, keeping its permissions; nothing is touched where the bytes are equal already.

    Raises ``OSError``, also for a read-only file (replacing it needs no more than its folder) and as ``check_place``.
    """
    path = check_place(path, root)  # a link stays one
    try:
        if path.read_bytes() == data:
            return False
        mode = path.stat().st_mode & 0o777
        if not mode & 0o222:
            raise PermissionError(errno.EACCES, "the file is read-only", str(path))
    except FileNotFoundError:
        mode = None
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    for again in (True, True, False):
        try:
            _replace(path, data, mode)
            break
        except FileNotFoundError:
            if not again:  # two writers at once, each of which takes the other's file for a leftover
                raise
    return True


def _replace(path: Path, data: bytes, mode: int | None) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, mode if mode is not None else 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
