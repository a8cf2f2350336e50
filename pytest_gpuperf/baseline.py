"""Baselines: one YAML file per test module, a pure function of the results. PYTEST_DONT_REWRITE

The reader trusts nothing: merge conflicts, duplicate keys, aliases, unknown schemas and wrong types are errors with file
and line, and say what to do.
"""

from __future__ import annotations

import errno
import os
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .metrics import ANALYSIS
from .textsafe import one_line
from .yaml_text import write_block

__all__ = [
    "SCHEMA",
    "Baseline",
    "BaselineError",
    "baseline_path",
    "read_baseline",
    "render_baseline",
    "write_if_changed",
]

SCHEMA = 1

_COUNTS = {
    "thread_instructions": "count",
    "warp_instructions": "count",
    "by_category": "counts",
    "opcodes": "counts",
}
_CASE: Mapping[str, Any] = {
    "analysis": {key: "count" for key in ANALYSIS},
    "kernel": "text",
    "inputs": "text",
    "launches": "count",
    "counts": _COUNTS,
    "flops": "counts",
    "branches": {"executed": "count", "divergent": "count", "efficiency": "number"},
    "memory": {
        "global_load_sectors": "count",
        "global_store_sectors": "count",
        "shared_conflicts": "count",
        "local_bytes": "count",
    },
    "resources": {"from": "text", "registers": "count", "shared_bytes": "count", "local_bytes": "count"},
    "findings": "texts",
    "targets": "targets",
}
_TARGET = {"machine": "count", "time_us": "number", "limiter": "text", "occupancy": "number"}
_OPTIONAL = {"analysis", *ANALYSIS, "by_category", "opcodes", "flops", "findings", "targets"} - {"counts"}
"""What a writer leaves out where there is none of it; a file without the rest was cut off or edited."""


class BaselineError(Exception):
    """A baseline file that cannot be used: where, what was found, what to do."""


@dataclass
class Baseline:
    """One file: revisions of the analysis and cases by id. A case that was stored under other revisions than its file
    carries its own ``analysis``."""

    analysis: dict[str, int] = field(default_factory=lambda: dict(ANALYSIS))
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)

    def analysis_of(self, key: str) -> Mapping[str, int]:
        return {**self.analysis, **self.cases[key].get("analysis", {})}


def baseline_path(directory: Path, module: str) -> Path:
    """Where the baseline of a test module (its path below the rootdir) is."""
    return directory / (module.removesuffix(".py") + ".yaml")


def read_baseline(path: Path, module: str, shown: str) -> Baseline | None:
    """The baseline of a module, ``None`` if there is no file or it is empty. Raises ``BaselineError``; ``shown`` is the
    path for messages."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BaselineError(f"{shown}: {error.strerror or error}") from None
    return parse_baseline(data, module, shown)


def parse_baseline(data: bytes, module: str, shown: str) -> Baseline | None:
    """``read_baseline`` of a file's contents."""
    refresh = _refresh(module)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BaselineError(
            f"{shown}: not UTF-8 text (byte {error.start})\n  write it anew: {refresh}"
        ) from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(("<<<<<<< ", ">>>>>>> ", "||||||| ")) or line.rstrip() == "=======":
            raise BaselineError(
                f"{shown}:{number}: conflict markers of an unfinished merge\n"
                f"  the numbers of neither side hold for the merged code; measure it: {refresh}"
            )
    reader = _Reader(shown, refresh)
    root = reader.compose(text)
    if root is None:
        return None
    top = reader.mapping(root, "the file")
    if "schema" not in top:
        reader.fault(root, "no 'schema': this is no baseline")
    schema = reader.value(top["schema"], "count", "schema")
    if schema != SCHEMA:
        newer = "a newer pytest-gpuperf wrote it: upgrade" if schema > SCHEMA else f"write it anew: {refresh}"
        reader.fault(top["schema"], f"schema {schema} is not known, this version reads {SCHEMA}", newer)
    reader.known(top, {"schema", "analysis", "cases"})
    analysis = dict(ANALYSIS)
    if "analysis" in top:
        analysis.update(reader.shaped(top["analysis"], {key: "count" for key in ANALYSIS}, "analysis"))
    cases: dict[str, dict[str, Any]] = {}
    if "cases" in top and not reader.empty(top["cases"]):
        for key, node in reader.mapping(top["cases"], "cases").items():
            cases[key] = reader.shaped(node, _CASE, key)
    return Baseline(analysis, cases)


def _refresh(module: str) -> str:
    return f"pytest --gpuperf --gpuperf-update {shlex.quote(one_line(module, 1000))}"


class _Reader:
    """Typed reading of YAML nodes, with positions."""

    def __init__(self, shown: str, refresh: str) -> None:
        import yaml

        self.yaml = yaml
        self.shown = shown
        self.refresh = refresh
        self.seen: set[int] = set()

    def compose(self, text: str) -> Any:
        loader = getattr(self.yaml, "CSafeLoader", self.yaml.SafeLoader)
        try:
            return self.yaml.compose(text, Loader=loader)
        except self.yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = f":{mark.line + 1}" if mark is not None else ""
            raise BaselineError(
                f"{self.shown}{line}: not YAML: {error.problem}\n  write it anew: {self.refresh}"
            ) from None
        except self.yaml.YAMLError as error:
            problem = str(error).splitlines()[0]
            raise BaselineError(
                f"{self.shown}: not YAML: {problem}\n  write it anew: {self.refresh}"
            ) from None
        except RecursionError:
            raise BaselineError(f"{self.shown}: nested too deeply\n  write it anew: {self.refresh}") from None

    def fault(self, node: Any, found: str, hint: str | None = None) -> Any:
        raise BaselineError(
            f"{self.shown}:{node.start_mark.line + 1}: {found}\n  {hint or 'write it anew: ' + self.refresh}"
        )

    def empty(self, node: Any) -> bool:
        return isinstance(node, self.yaml.ScalarNode) and node.value in ("", "~", "null")

    def mapping(self, node: Any, what: str) -> dict[str, Any]:
        if not isinstance(node, self.yaml.MappingNode):
            self.fault(node, f"{what} must be a mapping")
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = (
                key.value if isinstance(key, self.yaml.ScalarNode) else self.fault(key, "a key must be text")
            )
            if name in found:
                self.fault(key, f"{name!r} is given twice", f"keep neither by hand: {self.refresh}")
            if id(value) in self.seen:
                self.fault(key, "aliases (*name) are not used in baselines")
            self.seen.add(id(value))
            found[name] = value
        return found

    def known(self, found: Mapping[str, Any], names: Any) -> None:
        for name, node in found.items():
            if name not in names:
                self.fault(node, f"key {name!r} is not known")

    def shaped(self, node: Any, shape: Mapping[str, Any], what: str) -> dict[str, Any]:
        found = self.mapping(node, repr(what))
        self.known(found, shape)
        result: dict[str, Any] = {}
        for name, kind in shape.items():
            if name not in found:
                if name not in _OPTIONAL and shape is not _CASE["analysis"]:
                    self.fault(node, f"{what!r} has no {name!r}: the file was cut off or edited")
                continue
            if isinstance(kind, Mapping):
                result[name] = self.shaped(found[name], kind, name)
            elif kind == "counts":
                result[name] = {
                    k: self.value(v, "count", k) for k, v in self.mapping(found[name], repr(name)).items()
                }
            elif kind == "targets":
                result[name] = {
                    k: self.shaped(v, _TARGET, k) for k, v in self.mapping(found[name], repr(name)).items()
                }
            elif kind == "texts":
                if not isinstance(found[name], self.yaml.SequenceNode):
                    self.fault(found[name], f"{name!r} must be a list")
                result[name] = [self.value(item, "text", name) for item in found[name].value]
            else:
                result[name] = self.value(found[name], kind, name)
        return result

    def value(self, node: Any, kind: str, what: str) -> Any:
        tag = node.tag.rpartition(":")[2] if isinstance(node, self.yaml.ScalarNode) else "collection"
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
        ordered = {"analysis": older} if older else {}
        ordered.update({name: case[name] for name in _CASE if name != "analysis" and name in case})
        lines.extend(write_block({key: ordered}, 2))
    return ("\n".join(lines) + "\n").encode("utf-8")


def write_if_changed(path: Path, data: bytes) -> bool:
    """Replaces a file by ``data`` at once, keeping its permissions; nothing is touched where the bytes are equal already.

    Raises ``OSError``, also for a file that nobody may write: replacing it needs no more than its folder.
    """
    path = Path(os.path.realpath(path))  # a link stays one
    try:
        if path.read_bytes() == data:
            return False
        mode = path.stat().st_mode & 0o777
        if not mode & 0o222:
            raise PermissionError(errno.EACCES, "the file is read-only", str(path))
    except FileNotFoundError:
        mode = None
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, mode if mode is not None else 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
