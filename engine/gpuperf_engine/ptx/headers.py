"""Function headers and call prototypes (PTX manual, "Kernel and Function Directives", "Performance-Tuning Directives")."""

from __future__ import annotations

from ..errors import PtxError, nearest
from ..isa.targets import sm_number
from ..source import Span
from . import raw
from .available import check_type, require
from .declare import parameters
from .module import Function, Module
from .syntax import Prototype
from .text import Text, quoted

__all__ = ["function_of", "prototype_of"]

#: Directives with numbers, by how many they take.
_NUMBERED = {
    ".maxntid": (1, 3),
    ".reqntid": (1, 3),
    ".minnctapersm": (1, 1),
    ".maxnctapersm": (1, 1),
    ".maxnreg": (1, 1),
    ".reqnctapercluster": (1, 3),
    ".maxclusterrank": (1, 1),
    ".abi_preserve": (1, 1),
    ".abi_preserve_control": (1, 1),
    ".minperctamemory": (1, 1),
}
#: Directives of clusters, for kernels only.
_CLUSTERS = frozenset([".reqnctapercluster", ".explicitcluster", ".maxclusterrank", ".blocksareclusters"])
#: Directives for kernels only.
_KERNELS = _CLUSTERS | {".minperctamemory"}
#: The version and target that directives need.
_NEEDS = {
    ".language": ((9, 3), 0),
    ".noreturn": ((6, 4), 30),
    ".reqnctapercluster": ((7, 8), 90),
    ".explicitcluster": ((7, 8), 90),
    ".maxclusterrank": ((7, 8), 90),
    ".blocksareclusters": ((9, 0), 90),
    ".minperctamemory": ((9, 4), 80),
    ".abi_preserve": ((9, 0), 80),
    ".abi_preserve_control": ((9, 0), 80),
}
_PLAIN = frozenset([".explicitcluster", ".noreturn", ".blocksareclusters"])
#: The highest number that ``.language`` accepts.
_LAST_LANGUAGE = 10
_LINKAGE = frozenset([".visible", ".extern", ".weak"])


def function_of(module: Module, text: Text, base: int, directive: raw.Directive) -> Function:
    """The function that a header declares, without its body. Raises ``PtxError``."""
    parts = list(directive.parts)
    linkage, position = "", 0
    while position < len(parts) and isinstance(part := parts[position], raw.Word) and part.text in _LINKAGE:
        linkage = part.text[1:]
        position += 1
    kind = parts[position]
    if not isinstance(kind, raw.Word) or kind.text not in (".entry", ".func"):
        raise PtxError("expected '.entry' or '.func'", span=text.span(base + kind.start, base + kind.end))
    position += 1
    while (
        position < len(parts) and isinstance(part := parts[position], raw.Word) and part.text == ".attribute"
    ):
        position += 2
    returns, name, params, position = _signature(text, base, parts, position)
    if name is None:
        raise PtxError(f"'{kind.text}' has no name", span=text.span(base + kind.start, base + kind.end))
    is_entry = kind.text == ".entry"
    span = text.span(base + name.start, base + name.end)
    if returns is not None and is_entry:
        raise PtxError(f"kernel {quoted(name.text)} has return parameters, only .func may", span=span)
    function = Function(name.text, is_entry, (), (), span, module, linkage)
    function.params = parameters(text, base, params, function)
    if is_entry and (register := next((item for item in function.params if item.space == "reg"), None)):
        raise PtxError(
            f"parameter {quoted(register.name)} of a kernel is in .reg, those of kernels are in .param",
            span=register.span,
        )
    if is_entry and function.param_bytes > (most := _parameter_limit(module)):
        raise PtxError(
            f"the parameters of {quoted(name.text)} have {function.param_bytes:,} bytes",
            span=span,
            hint=f"with .version {module.version[0]}.{module.version[1]} and {module.target} a kernel may have {most:,}; pass a "
            "pointer to more",
        )
    function.returns = parameters(text, base, returns, function)
    for variable in (*function.params, *function.returns):
        check_type(module, variable.type.name, variable.span)
    _tune(text, base, function, parts[position:])
    return function


def _parameter_limit(module: Module) -> int:
    """Bytes that the parameters of a kernel may have (PTX manual, "Kernel Function Parameters")."""
    number = sm_number(module.target)
    return 32_764 if module.version >= (8, 1) and number >= 70 else 4_352


def prototype_of(name: str, text: Text, base: int, directive: raw.Directive) -> Prototype:
    """The signature of ``.callprototype``. Raises ``PtxError``."""
    parts = [part for part in directive.parts if not (isinstance(part, raw.Word) and part.text == ";")]
    returns, alone, params, position = _signature(text, base, parts, 1)
    if alone is None:
        text.fail(
            "a prototype has one name, '_'",
            base,
            base + parts[-1].end,
            hint="write e.g. .callprototype _ ();",
        )
    if position < len(parts) and isinstance(extra := parts[position], raw.Name):
        raise PtxError("a prototype has one name, '_'", span=text.span(base + extra.start, base + extra.end))
    span = text.span(base + parts[0].start, base + parts[-1].end)
    return Prototype(name, parameters(text, base, returns, None), parameters(text, base, params, None), span)


def _signature(
    text: Text,
    base: int,
    parts: list[raw.Word | raw.Number | raw.Group | raw.String | raw.Name],
    position: int,
) -> tuple[raw.Group | None, raw.Name | None, raw.Group | None, int]:
    """``[(returns)] name [(parameters)]`` from ``position``, and the position after it."""

    def group() -> raw.Group | None:
        nonlocal position
        if position < len(parts) and isinstance(part := parts[position], raw.Group):
            position += 1
            return part
        return None

    returns = group()
    name = parts[position] if position < len(parts) else None
    if not isinstance(name, raw.Name):
        return returns, None, None, position
    position += 1
    return returns, name, group(), position


def _tune(
    text: Text,
    base: int,
    function: Function,
    parts: list[raw.Word | raw.Number | raw.Group | raw.String | raw.Name],
) -> None:
    """Performance-tuning directives and pragmas after the parameters."""
    position = 0
    while position < len(parts):
        part = parts[position]
        span = text.span(base + part.start, base + part.end)
        position += 1
        if isinstance(part, raw.Word) and part.text in (";", ","):
            continue
        word = _directive(function, part, span)
        if word == ".pragma":
            position = _pragmas(text, base, function, parts, position)
        elif word == ".language":
            position = _languages(text, base, function, parts, position, span)
        elif word in _PLAIN:
            function.directives += (word,)
        else:
            numbers, position = _numbers(word, parts, position, span)
            _apply(function, word, numbers)
    _check_together(function)


def _directive(
    function: Function, part: raw.Word | raw.Number | raw.Group | raw.String | raw.Name, span: Span
) -> str:
    """The directive in a part of a header. Raises ``PtxError`` if it is unknown or not allowed there."""
    if not isinstance(part, raw.Word):
        raise PtxError(
            f"the header of {quoted(function.name)} goes on unexpectedly",
            span=span,
            hint="expected '{' or ';'",
        )
    word = part.text
    known = [*_NUMBERED, *_PLAIN, ".pragma", ".language"]
    if word not in known:
        raise PtxError(
            f"directive {quoted(word)} in the header of {quoted(function.name)}",
            span=span,
            hint=nearest(word, known, noun="directive"),
        )
    if word in _KERNELS and not function.is_entry:
        raise PtxError(
            f"{quoted(word)} on function {quoted(function.name)}: only kernels (.entry) have it", span=span
        )
    if word in _NEEDS:
        require(function.module, quoted(word), _NEEDS[word], span)
    return word


def _pragmas(
    text: Text,
    base: int,
    function: Function,
    parts: list[raw.Word | raw.Number | raw.Group | raw.String | raw.Name],
    position: int,
) -> int:
    """The list of ``.pragma``; returns the position behind it."""
    while position < len(parts) and isinstance(part := parts[position], raw.String):
        function.directives += (f'.pragma "{text.string(base + part.start, base + part.end)}"',)
        position += 1
        if position < len(parts) and isinstance(comma := parts[position], raw.Word) and comma.text == ",":
            position += 1
    return position


def _numbers(
    word: str,
    parts: list[raw.Word | raw.Number | raw.Group | raw.String | raw.Name],
    position: int,
    span: Span,
) -> tuple[tuple[int, ...], int]:
    """The numbers of a directive, and the position after them. Raises ``PtxError`` unless it accepts them."""
    numbers: list[int] = []
    while position < len(parts):
        part = parts[position]
        if isinstance(part, raw.Number):
            numbers.append(part.value)
        elif not (isinstance(part, raw.Word) and part.text == ","):
            break
        position += 1
    least, most = _NUMBERED[word]
    if not least <= len(numbers) <= most or any(not 0 < number < 1 << 32 for number in numbers):
        raise PtxError(f"'{word}' takes {least} to {most} positive numbers", span=span)
    return tuple(numbers), position


def _languages(
    text: Text,
    base: int,
    function: Function,
    parts: list[raw.Word | raw.Number | raw.Group | raw.String | raw.Name],
    position: int,
    span: Span,
) -> int:
    """The list of ``.language``; returns the position behind it."""
    values: list[str] = []
    while position < len(parts):
        part = parts[position]
        if isinstance(part, raw.String):
            values.append(f'"{text.string(base + part.start, base + part.end)}"')
        elif isinstance(part, raw.Number) and 0 <= part.value <= _LAST_LANGUAGE:
            values.append(str(part.value))
        elif not (isinstance(part, raw.Word) and part.text == ","):
            break
        position += 1
    if not values:
        raise PtxError("'.language' takes strings and numbers from 0 to 10", span=span)
    function.directives += (f".language {', '.join(values)}",)
    return position


def _check_together(function: Function) -> None:
    """Raises ``PtxError`` for directives that contradict each other or lack another."""
    if function.maxntid and function.reqntid:
        raise PtxError(
            f"kernel {quoted(function.name)} has both '.maxntid' and '.reqntid'", span=function.span
        )
    ranked = any(text.startswith(".maxclusterrank ") for text in function.directives)
    if ranked and function.cluster is not None:
        raise PtxError(
            f"kernel {quoted(function.name)} has both '.reqnctapercluster' and '.maxclusterrank'",
            span=function.span,
        )
    if ".blocksareclusters" in function.directives and not (function.cluster and function.reqntid):
        raise PtxError(
            f"'.blocksareclusters' of kernel {quoted(function.name)} needs '.reqntid' and '.reqnctapercluster'",
            span=function.span,
        )


def _apply(function: Function, word: str, numbers: tuple[int, ...]) -> None:
    if word == ".maxntid":
        function.maxntid = numbers
    elif word == ".reqntid":
        function.reqntid = numbers
    elif word == ".minnctapersm":
        function.minnctapersm = numbers[0]
    elif word == ".maxnreg":
        function.maxnreg = numbers[0]
    elif word == ".reqnctapercluster":
        function.cluster = numbers
    else:
        function.directives += (f"{word} {', '.join(map(str, numbers))}",)
