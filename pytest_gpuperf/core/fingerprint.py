"""Fingerprints of kernels and inputs: they explain why a number changed, and do not decide whether it may."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

__all__ = ["IN_PART", "digest_bytes", "digest_parts", "kernel_digest", "same_work"]

IN_PART = "in-part-"
"""Prefix of a digest of only some inputs: equal digests do not mean equal inputs."""

_SKIP = re.compile(r"/\*.*?\*/|//[^\n]*|^[ \t]*\.(?:loc|file)\b[^\n]*", re.DOTALL | re.MULTILINE)
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[.A-Za-z_$%][\w.$%]*(?:::[\w.$%]+)*|\d[\w.]*|\S')
_OPENING, _CLOSING = "{(", "})"


def digest_bytes(data: bytes | memoryview) -> str:
    """Return a digest of the bytes, sixteen hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def digest_parts(parts: Iterable[object], digits: int) -> str:
    """Return a digest of the parts, in their order, of so many hexadecimal digits."""
    text = "\x1f".join(str(part) for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()[:digits]


def same_work(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two entries of cases have the same kernel and, as far as is known, the same inputs, so that different numbers come from
    the analysis."""
    kernel, inputs = one.get("kernel"), one.get("inputs")
    whole = isinstance(inputs, str) and not inputs.startswith(IN_PART)
    return whole and (kernel, inputs) == (other.get("kernel"), other.get("inputs"))


@lru_cache(maxsize=256)
def kernel_digest(text: str, entry: str) -> str:
    """Twelve hexadecimal digits for the kernel ``entry`` of a PTX text: ``.version``, ``.target`` and the kernel with all
    that it names, without comments, ``.loc``, ``.file``, debug sections and the names of registers, labels and symbols."""
    header, by_name, names = _declarations(text)
    numbers: dict[str, int] = {}
    canonical = list(header)
    todo, done = [entry], {entry}
    while todo:
        item = by_name.get(todo.pop(0), [])
        for token in item:
            if token in by_name and token not in done:
                done.add(token)
                todo.append(token)
            canonical.append(
                f"#{numbers.setdefault(token, len(numbers))}" if _is_name(token, names) else token
            )
    return digest_parts(canonical, 12)


@lru_cache(maxsize=1)  # the kernels of one file come one after the other
def _declarations(text: str) -> tuple[list[str], dict[str, list[str]], set[str]]:
    """Of a PTX text: the tokens of its header, its functions and variables by name, and all names declared in it."""
    items = _top_level(_TOKEN.findall(_SKIP.sub(" ", text)))
    header = [
        token for item in items if item[0] in (".version", ".target", ".address_size") for token in item
    ]
    by_name = {name: item for item in items for name in [_declared(item)] if name is not None}
    names = {name for item in items for name in _local_names(item)}
    names.update(by_name)
    return header, by_name, names


def _is_name(token: str, names: set[str]) -> bool:
    return token in names or (token[0] in "%$" and token.split(".")[0] not in _SPECIAL)


_SPECIAL = {
    f"%{name}"
    for name in [
        "tid",
        "ntid",
        "laneid",
        "warpid",
        "nwarpid",
        "ctaid",
        "nctaid",
        "smid",
        "nsmid",
        "gridid",
        "clusterid",
        "nclusterid",
        "cluster_ctaid",
        "cluster_nctaid",
        "cluster_ctarank",
        "cluster_nctarank",
        "is_explicit_cluster",
        "lanemask_eq",
        "lanemask_le",
        "lanemask_lt",
        "lanemask_ge",
        "lanemask_gt",
        "clock",
        "clock_hi",
        "clock64",
        "globaltimer",
        "globaltimer_lo",
        "globaltimer_hi",
        "total_smem_size",
        "aggr_smem_size",
        "dynamic_smem_size",
        "current_graph_exec",
        "reserved_smem_offset_begin",
        "reserved_smem_offset_end",
        "reserved_smem_offset_cap",
    ]
}


def _top_level(tokens: list[str]) -> list[list[str]]:
    """The module's items: directives that end where the next one begins, variables at ``;``, functions at their ``}``."""
    items: list[list[str]] = []
    item: list[str] = []
    depth = 0
    for token in tokens:
        simple = (
            bool(item)
            and item[0] in (".version", ".target", ".address_size")
            and token[0] == "."
            and depth == 0
        )
        if simple:
            items.append(item)
            item = []
        item.append(token)
        if token in _OPENING:
            depth += 1
        elif token in _CLOSING:
            depth = max(0, depth - 1)
            if depth == 0 and token == "}" and _is_body(item):
                items.append(item)
                item = []
        elif token == ";" and depth == 0:
            items.append(item)
            item = []
    return [*items, item] if item else items


def _is_body(item: list[str]) -> bool:
    return "=" not in item and (".entry" in item or ".func" in item or item[0] == ".section")


def _declared(item: list[str]) -> str | None:
    """The name of the function with a body or of the variable that an item declares."""
    for keyword in (".entry", ".func"):
        if keyword in item:
            if item[-1] != "}":
                return None
            rest = item[item.index(keyword) + 1 :]
            if rest and rest[0] == "(":
                rest = rest[rest.index(")") + 1 :]
            return rest[0] if rest else None
    if any(space in item for space in (".global", ".const", ".shared")):
        for token, following in pairwise(item):
            if following in ("[", "=", ";", "<") and not token.startswith("."):
                return token
    return None


def _local_names(item: list[str]) -> set[str]:
    """Registers, labels, parameters and variables declared inside a function."""
    names: set[str] = set()
    declaring = False
    for token, following in zip(item, [*item[1:], ""], strict=True):
        if token in (".reg", ".param", ".local", ".shared"):
            declaring = True
        elif token in (";", ")", "{"):
            declaring = False
        elif (
            declaring
            and token[0] not in ".[]<>,="
            and not token[0].isdigit()
            and following in (",", ";", ")", "[", "<", "")
        ) or (following == ":" and not token.startswith(".")):
            names.add(token)
    return names
