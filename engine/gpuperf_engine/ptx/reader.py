"""Module scope: directives, variables and function headers; bodies are only delimited here and resolved on first use."""

from __future__ import annotations

import re
from typing import NoReturn

from .._gc import uncollected
from ..errors import PtxError, PtxSyntaxError
from . import raw, shapes
from .available import check_target, check_type
from .declare import Grammar, declaration_of, variables
from .headers import function_of
from .lazy_module import LazyModule
from .locations import FILE, SECTION, file_entry
from .module import Function
from .retarget import marked
from .syntax import Variable
from .text import Text, quoted, shorten

__all__ = ["read_module"]


_SPACE = re.compile(r"\s*", re.ASCII)
_VERSION = re.compile(r"\.version\s+(\d{1,4})\.(\d{1,4})(?![\w.])", re.ASCII)
_TARGET = re.compile(r"\.target\s+(\w+(?:\s*,\s*\w+)*)", re.ASCII)
_ADDRESS_SIZE = re.compile(r"\.address_size\s+(\d+)", re.ASCII)
_DWARF = re.compile(r"@@DWARF\b[^\n]*", re.ASCII)
_PROCESSOR = re.compile(r"sm_(\d{2,3})([af]?)$|compute_(\d{2,3})([af]?)$", re.ASCII)
_FUNCTION = re.compile(r"\.(?:entry|func)\b", re.ASCII)
#: Without ``.address_size`` the size is that of the addresses that the module uses.
_WIDE_ADDRESS = re.compile(r"\.param\s+\.[ubs]64\b|\b(?:cvta(?:\.to)?\.\w+|mov)\.[ubs]64\b", re.ASCII)
_FRONT_END = re.compile(r"[;{=]")
_BRACE = re.compile(r"[{}]")
_HEADER_END = re.compile(r"[;{]")
#: nvcc up to 3 wrote prototypes without a semicolon: the next item follows the parameters.
_NEXT_ITEM = re.compile(
    r"\)\s*(?=\.(?:visible|extern|weak|common|func|entry|file|section|global|const|shared|local|reg|tex)\b)",
    re.ASCII,
)
_PRAGMA = re.compile(r'\.pragma\s+"_*"(?:\s*,\s*"_*")*\s*;$')
_WORD = re.compile(r"\.\w+", re.ASCII)
#: The newest known ``.version``: the table follows the manual of 9.4; ptxas of CUDA 13.5, which reads 9.5, accepts no more targets
#: than 9.4 has.
NEWEST = (9, 5)
_OLDEST_MAJOR = 1
#: PTX manual, "Constant State Space"
_CONSTANT_BYTES = 65_536
#: the last minor version of each former major version
_LAST_MINOR = {1: 5, 2: 3, 3: 2, 4: 3, 5: 0, 6: 5, 7: 8, 8: 8}
#: the first target with double precision
_HAS_DOUBLES = 13
_TARGET_OPTIONS = frozenset(["texmode_unified", "texmode_independent", "debug", "map_f64_to_f32"])


def _shapes(function: Function) -> list[tuple[str, int]]:
    """The properties that all declarations of a function share: space and size of its results and parameters."""
    return [
        (variable.space, -1 if variable.dims == (None,) else variable.size)
        for variable in (*function.returns, *function.params)
    ]


@uncollected
def read_module(text: Text, grammar: Grammar) -> LazyModule:
    """Reads everything outside function bodies. Raises ``PtxSyntaxError`` and ``PtxError``."""
    return _Reader(text, grammar).read()


class _Reader:
    def __init__(self, text: Text, grammar: Grammar) -> None:
        self.text = text
        self.code = text.code
        self.grammar = grammar
        self.module = LazyModule(text, grammar)
        self.files: dict[int, str] = {}
        self.versioned = False
        self.initialised: list[tuple[raw.Declaration, int]] = []

    def read(self) -> LazyModule:
        code, module = self.code, self.module
        if not code.strip():
            raise PtxSyntaxError(
                f"{self.text.path}: the text is empty", hint="a PTX module begins with .version and .target"
            )
        offset = self._header(self._skip(0))
        while offset < len(code):
            offset = self._skip(self._item(offset))
        module.files = self.files
        self._check_constants()
        return module

    def _check_constants(self) -> None:
        """Raises ``PtxError`` if the variables in ``.const`` exceed its size."""
        total = 0
        for variable in self.module.variables.values():
            if variable.space == "const" and variable.linkage != "extern":
                total = -(-total // variable.align) * variable.align + variable.size
                if total > _CONSTANT_BYTES:
                    raise PtxError(
                        f"constant memory ends before the end of {quoted(variable.name)}: the variables up to it have {total:,} "
                        "bytes",
                        span=variable.span,
                        hint=f"there are {_CONSTANT_BYTES:,}; put the variable in .global",
                    )

    def _skip(self, offset: int) -> int:
        match = _SPACE.match(self.code, offset)
        return match.end() if match else offset

    def _header(self, offset: int) -> int:
        """``.version``, ``.target`` and ``.address_size``, in this order."""
        text, code, module = self.text, self.code, self.module
        version = _VERSION.match(code, offset)
        if version is None:
            rest = code[offset : offset + 400]
            word = rest.split(maxsplit=1)[0]
            found_text = "binary data" if "\0" in rest[:200] else repr(shorten(word))
            wrong = f"a PTX module begins with '.version', found {found_text}"
            if word == ".version":
                wrong = "cannot read this '.version'"
            text.fail(
                wrong, offset, offset + len(word),
                hint="write .version MAJOR.MINOR, e.g. .version 8.0",
            )  # fmt: skip
        major, minor = int(version[1]), int(version[2])
        module.version = (major, minor)
        if not _OLDEST_MAJOR <= major <= NEWEST[0] or minor > _LAST_MINOR.get(major, minor):
            raise PtxError(
                f".version {major}.{minor} is not known", span=text.span(*version.span()),
                hint=f"known are versions {_OLDEST_MAJOR}.0 to {NEWEST[0]}.x",
            )  # fmt: skip
        if (major, minor) > NEWEST:
            module.notes += (
                f".version {major}.{minor} is newer than {NEWEST[0]}.{NEWEST[1]}: new instructions are unknown",
            )
        offset = self._skip(version.end())
        target = _TARGET.match(code, offset)
        if target is None:
            text.fail(
                "expected '.target' after '.version'",
                min(offset, len(code) - 1),
                hint="write e.g. .target sm_80",
            )
        self._target(target)
        module.compiled_for = module.target
        mark = marked(text.original, target.end())
        if mark is not None:
            module.compiled_for, stands_for = mark
            module.notes += (
                f"this is PTX for {module.compiled_for}, instead of machine code for {stands_for}, which a GPU would run: "
                "counts and times are of this PTX",
            )
        offset = self._skip(target.end())
        size = _ADDRESS_SIZE.match(code, offset)
        if size is not None:
            if size[1] not in ("32", "64"):
                raise PtxError(
                    f".address_size {shorten(size[1])}", span=text.span(*size.span()), hint="it is 32 or 64"
                )
            module.address_size = int(size[1])
            module.checked_address_size = 64 if module.address_size == 64 else 0
            offset = size.end()
        else:
            module.address_size = 64 if _WIDE_ADDRESS.search(code) else 32
        return self._skip(offset)

    def _target(self, match: re.Match[str]) -> None:
        options = []
        for word in map(str.strip, match[1].split(",")):
            if _PROCESSOR.match(word):
                self.module.target = self.module.target or word.replace("compute_", "sm_")
                name = word.replace("compute_", "sm_")
                check_target(self.module, name, self.text.span(*match.span()), NEWEST)
            elif word in _TARGET_OPTIONS:
                options.append(word)
            else:
                raise PtxError(
                    f".target {shorten(word)!r} is not known", span=self.text.span(*match.span(1)),
                    hint="write sm_ and the number of an architecture, e.g. sm_80 or sm_90a",
                )  # fmt: skip
        self.module.target_options = tuple(options)
        number = re.search(r"\d+", self.module.target)
        if "map_f64_to_f32" in options and number is not None and int(number[0]) >= _HAS_DOUBLES:
            raise PtxError(
                f"map_f64_to_f32 is for targets without double precision, this module has {self.module.target}",
                span=self.text.span(*match.span()),
                hint="leave it out",
            )
        if not self.module.target:
            raise PtxError(
                "'.target' names no architecture",
                span=self.text.span(*match.span()),
                hint="e.g. .target sm_80",
            )

    def _item(self, offset: int) -> int:
        """Read one item of module scope. Returns the offset after it."""
        code = self.code
        if code[offset] == ";":
            return offset + 1
        if code.startswith("@@", offset):
            match = _DWARF.match(code, offset)
            if match:
                return match.end()
        word = _WORD.match(code, offset)
        if word is None:
            self._unexpected(offset)
        name = word.group()
        if name == ".file":
            return self._file(offset)
        if name == ".section":
            return self._section(offset)
        if name == ".nv_intermediate_source_section":
            return self._sources(offset, word.end())
        if name in (".version", ".target", ".address_size"):
            self.text.fail(f"'{name}' occurs twice or not at the beginning", offset, word.end())
        return self._statement(offset, name)

    def _file(self, offset: int) -> int:
        match = FILE.match(self.code, offset)
        if match is None:
            self.text.fail("cannot read this '.file'", offset, offset + 5, hint='write .file INDEX "path"')
        index, path = file_entry(self.text, match)
        self.files[index] = path
        return match.end()

    def _section(self, offset: int) -> int:
        match = SECTION.match(self.code, offset)
        end = -1 if match is None else self.code.find("}", match.end())
        if match is None or end < 0:
            self.text.fail(
                "cannot read this '.section'", offset, offset + 8, hint="write .section NAME { … }"
            )
        self.module.sections.append((match.end(), end))
        return end + 1

    def _sources(self, offset: int, end: int) -> int:
        """Embedded texts of an intermediate language, whose contents ``Text`` has blanked out."""
        depth = 0
        for brace in _BRACE.finditer(self.code, self._skip(end)):
            depth += 1 if brace.group() == "{" else -1
            if depth == 0:
                return brace.end()
        self.text.fail(
            "cannot read this section", offset, end, hint="write .nv_intermediate_source_section { … }"
        )

    def _statement(self, offset: int, word: str) -> int:
        """Read a variable, a function or another directive, up to its semicolon or body."""
        code = self.code
        end = self._end(offset)
        if word == ".pragma" or word == ".alias":
            return self._other_directive(offset, end, word)
        front = _FRONT_END.search(code, offset, end + 1)
        if front and _FUNCTION.search(code, offset, front.start()):
            return self._function(offset)
        if code[end - 1] != ";":
            self.text.fail(
                "expected ';'",
                min(end, len(code)) - 1,
                hint="module scope holds variables, functions and directives",
            )
        declaration = declaration_of(self.text, offset, end, self.grammar)
        if any(isinstance(item, raw.Word) and item.text == ".reg" for item in declaration.specifiers):
            self.module.outside.append((offset, declaration))
            return end
        for variable in variables(self.text, offset, declaration, self._lookup, None):
            check_type(self.module, variable.type.name, variable.span)
            self._declare(variable)
        return end

    def _end(self, offset: int) -> int:
        """The offset after the semicolon of a statement; braces are those of an initialiser."""
        end = self.code.find(";", offset)
        return len(self.code) if end < 0 else end + 1

    def _lookup(self, name: str) -> Variable | Function | None:
        return self.module.variables.get(name) or self.module.functions.get(name)

    def _declare(self, variable: Variable) -> None:
        before = self.module.variables.get(variable.name)
        if variable.name in self.module.functions:
            raise PtxError(f"{quoted(variable.name)} is declared as a function already", span=variable.span)
        if (
            before is not None
            and "extern" not in (before.linkage, variable.linkage)
            and variable.linkage not in ("weak", "common")
        ):
            raise PtxError(
                f"variable {quoted(variable.name)} is declared twice",
                span=variable.span,
                details=[f"first at {before.span}"],
            )
        if before is None or before.linkage == "extern" or before.initial is None:
            self.module.variables[variable.name] = variable

    def _function(self, offset: int) -> int:
        code = self.code
        end = offset
        while True:  # a header may hold `.pragma "…";`
            match = _HEADER_END.search(code, end)
            following = _NEXT_ITEM.search(code, offset, match.end() if match else len(code))
            if following is not None:
                end = following.end()
                break
            if match is None:
                self.text.fail("function without body or ';'", offset, offset + 1)
            end = match.end()
            if match.group() == "{" or not _PRAGMA.search(code, offset, end):
                break
        without = end if following else end - 1
        directive = shapes.directive(code, offset, without) or self.grammar.directive(
            self.text, offset, without
        )
        function = function_of(self.module, self.text, offset, directive)
        known = self.module.functions.get(function.name)
        if function.name in self.module.variables:
            raise PtxError(f"{quoted(function.name)} is declared as a variable already", span=function.span)
        if following or match is None or match.group() == ";":
            function.defined = False
            if known is None:
                self.module.functions[function.name] = function
            return end
        if known is not None and (known.defined or known.is_entry != function.is_entry):
            raise PtxError(
                f"function {quoted(function.name)} is defined twice",
                span=function.span,
                details=[f"first at {known.span}"],
            )
        if known is not None and _shapes(known) != _shapes(function):
            raise PtxError(
                f"function {quoted(function.name)} has other parameters than where it was declared",
                span=function.span,
                details=[f"first at {known.span}"],
            )
        if known is not None:  # declared before: calls already refer to that object
            for slot in (
                "params",
                "returns",
                "span",
                "linkage",
                "maxntid",
                "reqntid",
                "minnctapersm",
                "maxnreg",
                "cluster",
            ):
                setattr(known, slot, getattr(function, slot))
            known.directives, known.defined = function.directives, True
            for variable in (*known.params, *known.returns):
                variable.function = known
            function = known
        self.module.functions[function.name] = function
        closing = self._closing(end, function)
        self.module.bodies[function.name] = (end, closing)
        return closing + 1

    def _closing(self, offset: int, function: Function) -> int:
        """The offset of the brace that closes the body beginning at ``offset``."""
        code, depth = self.code, 1
        while True:
            closing = code.find("}", offset)
            if closing < 0:
                raise PtxSyntaxError(
                    f"the body of {quoted(function.name)} has no closing brace", span=function.span,
                    hint="the text may have been cut off",
                )  # fmt: skip
            depth += code.count("{", offset, closing) - 1
            if not depth:
                return closing
            offset = closing + 1

    def _other_directive(self, offset: int, end: int, word: str) -> int:
        directive = shapes.directive(self.code, offset, end) or self.grammar.directive(self.text, offset, end)
        if word == ".pragma":
            strings = [part for part in directive.parts if isinstance(part, raw.String)]
            if not strings:
                self.text.fail("'.pragma' needs strings, separated by commas", offset, end)
            self.module.pragmas += tuple(
                self.text.string(offset + part.start, offset + part.end) for part in strings
            )
        if word == ".alias":
            names = [part for part in directive.parts if isinstance(part, raw.Name)]
            if len(names) != 2:
                self.text.fail("'.alias' takes two function names", offset, end)
            target = self.module.functions.get(names[1].text)
            if target is None:
                span = self.text.span(offset + names[1].start, offset + names[1].end)
                raise PtxError(f"'.alias' of {names[1].text!r}, which is not a function", span=span)
            self._alias(names[0].text, target)
        return end

    def _alias(self, name: str, target: Function) -> None:
        """Make a name an alias of a function, including earlier uses of its declaration, which ``.alias`` requires."""
        module = self.module
        declared = module.functions.get(name)
        target = module.aliases.get(target.name, target)
        module.aliases[name] = target
        for variable in module.variables.values() if declared is not None else ():
            if any(item[2] is declared for item in variable.relocations):
                variable.relocations = tuple(
                    (*item[:2], target, *item[3:]) if item[2] is declared else item
                    for item in variable.relocations
                )

    def _unexpected(self, offset: int) -> NoReturn:
        word = self.code[offset : offset + 200].split(maxsplit=1)[0]
        self.text.fail(
            f"unexpected {shorten(word)!r} at module scope", offset, offset + len(word),
            hint="module scope holds variables, functions and directives",
        )  # fmt: skip
