"""Function bodies: statements to instructions (PTX manual, "Syntax")."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import PtxError
from ..isa.effects import BRANCH, INDIRECT_BRANCH, STORE
from ..isa.selectors import select
from ..isa.table import Form, check_available, lookup
from ..source import SourcePosition, Span
from . import raw, shapes
from .available import check_type
from .calls import call_target, simple_call
from .check import Shape, chosen, fits
from .declare import Grammar, declaration_of, variables
from .headers import prototype_of
from .locations import FILE, LOC, LOC_INTERMEDIATE, file_entry
from .module import Body, Function
from .operands import Operands, check_constants, narrow
from .scopes import Names, Scope, Table
from .syntax import Address, Guard, Instruction, LabelOperand, Variable
from .text import Text, quoted, shorten

if TYPE_CHECKING:
    from .lazy_module import LazyModule

__all__ = ["Verdicts", "resolve_body"]

_STATEMENT = re.compile(
    r"\s*(?:(?P<label>[A-Za-z_$%][\w$]*)\s*:(?!:)"
    r"|(?:@\s*(?:(?P<not>!)\s*)?(?P<guard>[%\w$]+)\s+)?(?P<opcode>[A-Za-z][\w.:]*)(?![\w.:])"
    r"(?P<operands>[^;{}]*(?:\{[^{};]*\}[^;{}]*)*);"
    r"|(?P<brace>[{}])"
    r"|(?P<directive>\.\w+))",
    re.ASCII,
)
_TABLE = re.compile(r"\s*\.(?:branchtargets|calltargets|callprototype)\b", re.ASCII)
_TARGET = re.compile(r"sm_(\d+)([af]?)")
_DECLARATIONS = frozenset(
    [
        *(
            ".reg",
            ".param",
            ".shared",
            ".local",
            ".global",
            ".const",
            ".tex",
            ".align",
            ".v2",
            ".v4",
            ".attribute",
        ),
        *(".extern", ".visible", ".weak", ".common"),
    ]
)
_LIST = re.compile(r"\.\w+\s+[\w$%]+(?:\s*<\s*\w+\s*>)?(?:\s*,\s*[\w$%]+(?:\s*<\s*\w+\s*>)?)*\s*;", re.ASCII)
#: kinds of the members of lists
_MEMBERS = {".branchtargets": "label", ".calltargets": "function"}
_MOST_ERRORS = 4
_LONGEST_OPCODE = 200
#: the first target whose f32 instructions keep subnormal numbers without ``.ftz`` (manual: "Floating-Point Instructions")
_KEEPS_SUBNORMALS = 20

#: For opcode and operand shapes: the form, and whether floating-point constants must be converted to the operand's type.
Verdicts = dict[tuple[str, tuple[Shape, ...]], tuple[Form, bool]]


def resolve_body(
    module: LazyModule, text: Text, grammar: Grammar, function: Function, start: int, end: int
) -> Body:
    """The body of a function between two offsets, without braces. Raises the first ``PtxSyntaxError`` or ``PtxError``, which mentions
    a few more."""
    body = _Body(module, text, grammar, function)
    body.resolve(start, end)
    if body.errors:
        first, *others = body.errors
        more = [f"also {error.span}: {error.message}" for error in others]
        room = 4 - len(first.details) - bool(first.hint)
        raise PtxError(
            first.message, span=first.span, details=[*first.details, *more[: max(room, 0)]], hint=first.hint
        )
    return body.names.body


class _Body:
    def __init__(self, module: LazyModule, text: Text, grammar: Grammar, function: Function) -> None:
        self.module = module
        self.text = text
        self.code = text.code
        self.grammar = grammar
        self.function = function
        self.names = Names(module, function, text)
        self.names.add_outside(module.outside)
        self.operands = Operands(self.names)
        self.errors: list[PtxError] = []
        self.verdicts: Verdicts = module.verdicts
        self.location: SourcePosition | None = None
        self.locations: dict[str, SourcePosition] = {}
        self.positions: dict[tuple[int, ...], SourcePosition] = {}
        self.pragmas: tuple[str, ...] = ()
        self.table_name = ""
        self.branches: list[tuple[Instruction, Scope]] = []
        target = _TARGET.match(module.target)
        self.target = (int(target[1]), target[2]) if target else (0, "")

    def resolve(self, start: int, end: int) -> None:
        match, code, names = _STATEMENT.match, self.code, self.names
        offset = start
        while True:
            statement = match(code, offset, end)
            if statement is None:
                if code[offset:end].strip():
                    self._unreadable(offset, end)
                break
            offset = statement.end()
            form = statement.lastgroup
            try:
                if form == "operands":
                    self._instruction(statement)
                elif form == "label":
                    if _TABLE.match(code, offset):
                        self.table_name = statement["label"]
                    else:
                        names.add_label(statement["label"], self.text.span(*statement.span("label")))
                elif form == "brace":
                    if statement["brace"] == "{":
                        names.open()
                    else:
                        names.close()
                else:
                    offset = self._directive(statement["directive"], statement.start("directive"), end)
            except PtxError as error:
                self._note(error)
                if len(self.errors) >= _MOST_ERRORS:
                    return
                if form == "directive":
                    offset = max(offset, code.find(";", offset, end) + 1)
        self._connect()

    def _note(self, error: PtxError) -> None:
        """Record an error and continue, to report a few more; of equal ones only the first."""
        if all(error.message != other.message for other in self.errors):
            self.errors.append(error)

    def _unreadable(self, offset: int, end: int) -> NoReturn:
        """Raise the error for text that is not a statement, which the grammar provides."""
        code = self.code
        while code[offset].isspace():
            offset += 1
        stop = code.find(";", offset, end)
        self.grammar.instruction(self.text, offset, end if stop < 0 else stop + 1)
        self.text.fail(f"cannot read {shorten(code[offset:end])!r}", offset, offset + 1)

    # -- directives and declarations -------------------------------------------------------------------------------------

    def _directive(self, word: str, start: int, limit: int) -> int:
        """Read the directive at ``start``. Returns the offset after it."""
        code, text = self.code, self.text
        if word == ".loc":
            return self._loc(start)
        if word == ".loc_intermediate":
            match = LOC_INTERMEDIATE.match(code, start)
            if match is None:
                hint = "write .loc_intermediate FILE LINE COLUMN"
                text.fail(f"cannot read this '{word}'", start, start + len(word), hint=hint)
            return match.end()
        if word == ".file":
            entry = FILE.match(code, start)
            if entry is None:
                text.fail(
                    "cannot read this '.file'", start, start + len(word), hint='write .file INDEX "path"'
                )
            index, path = file_entry(text, entry)
            self.module.files = {**self.module.files, index: path}
            return entry.end()
        end = code.find(";", start, limit) + 1
        if not end:
            text.fail(f"'{word}' without ';'", start, start + len(word))
        if word in _DECLARATIONS:
            declaration = declaration_of(text, start, end, self.grammar)
            if any(isinstance(item, raw.Word) and item.text == ".reg" for item in declaration.specifiers):
                self.names.add_registers(start, declaration)
                return end
            for variable in variables(text, start, declaration, self.names.symbol, self.function):
                check_type(self.module, variable.type.name, variable.span)
                self.names.add_variable(variable)
                self.names.body.variables.append(variable)
            return end
        directive = shapes.directive(code, start, end) or self.grammar.directive(text, start, end)
        if word == ".pragma":
            strings = [part for part in directive.parts if isinstance(part, raw.String)]
            if not strings:
                text.fail("'.pragma' needs strings, separated by commas", start, end)
            self.pragmas += tuple(text.string(start + part.start, start + part.end) for part in strings)
        elif word in (".branchtargets", ".calltargets", ".callprototype"):
            if not self.table_name:
                text.fail(f"'{word}' needs a label before it", start, end)
            if word in _MEMBERS and not _LIST.match(code, start, end):
                text.fail(f"'{word}' needs {_MEMBERS[word]}s, separated by commas", start, end)
            name, self.table_name = self.table_name, ""
            members = tuple(part for part in directive.parts if isinstance(part, raw.Name))
            table = (
                prototype_of(name, text, start, directive)
                if word == ".callprototype"
                else Table(word, members, start)
            )
            self.names.scope.tables[name] = table
        else:
            text.fail(f"{quoted(word)} is not allowed in a function body", start, start + len(word))
        return end

    def _loc(self, start: int) -> int:
        match = LOC.match(self.code, start)
        if match is None:
            self.text.fail("cannot read this '.loc'", start, start + 4, hint="write .loc FILE LINE COLUMN")
        known = self.locations.get(match.group())
        if known is None:
            file, line, column, name, offset, *inlined = match.groups()
            outer = None
            if inlined[0] is not None:
                at = tuple(map(int, inlined))
                outer = self.positions.get(at) or SourcePosition(self._file(at[0]), at[1], at[2])
            label = None if name is None else self.module.debug_name(name, int(offset or 0))
            known = SourcePosition(self._file(int(file)), int(line), int(column), label, outer)
            self.locations[match.group()] = known
        self.positions[tuple(map(int, match.groups()[:3]))] = known
        self.location = known
        return match.end()

    def _file(self, index: int) -> str:
        return self.module.files.get(index, f"<file {index}>")

    # -- instructions ----------------------------------------------------------------------------------------------------

    def _instruction(self, match: re.Match[str]) -> None:
        negated, guarding, opcode, rest = match.group("not", "guard", "opcode", "operands")
        start = begin = match.start("opcode")
        if guarding is not None:
            start = self.code.rfind("@", 0, match.start("guard"))
        operands: list[Any] = []
        keys: list[Shape] = []
        if opcode[:4] == "call" and opcode[4:5] in ("", "."):
            opcode = self._call(opcode, match, start, operands, keys)
        elif rest and not rest.isspace():
            known_names = self.names.known
            offset = begin + len(opcode)
            pieces = _split(rest) if "[" in rest or "{" in rest or "(" in rest else rest.split(",")
            for piece in pieces:
                stripped = piece.strip()
                known = known_names.get(stripped)
                if known is None or known[1][0] == "variable":
                    node = shapes.operand(stripped, offset + len(piece) - len(piece.lstrip()))
                    if node is None:
                        opcode = self._by_grammar(start, match.end(), operands, keys)
                        break
                    known = self.operands.operand(node, 0)
                operands.append(known[0])
                keys.append(known[1])
                offset += len(piece) + 1
        key = (opcode, tuple(keys))
        verdict = self.verdicts.get(key)
        if verdict is None:
            verdict = self.verdicts[key] = self._judge(opcode, key[1], operands, begin, match.end())
        form, constants = verdict
        if constants:
            operands = narrow(form, operands)
        guard = None if guarding is None else self._guard(guarding, negated is not None, match.start("guard"))
        instructions = self.names.body.instructions
        instruction = Instruction(
            opcode,
            form,
            tuple(operands),
            guard,
            self.text.span(start, match.end()),
            len(instructions),
            self.location,
        )
        if self.pragmas:
            instruction.pragmas, self.pragmas = self.pragmas, ()
        if form.row.accepts.constants:
            check_constants(form, operands)
        effect = form.effect
        if effect is BRANCH or effect is INDIRECT_BRANCH:
            self.branches.append((instruction, self.names.scope))
        elif effect is STORE and form.space == "param":
            self._refuse_inputs(instruction)
        instructions.append(instruction)

    def _refuse_inputs(self, instruction: Instruction) -> None:
        """Raises ``PtxError`` for a store to an input parameter of the function itself."""
        for operand in instruction.operands:
            if isinstance(operand, Address) and any(
                operand.base is parameter for parameter in self.function.params
            ):
                assert isinstance(operand.base, Variable)
                raise PtxError(
                    f"{instruction.opcode}: {quoted(operand.base.name)} is an input of {quoted(self.function.name)}",
                    span=operand.span,
                    hint="store to results, and to .param variables that calls are given",
                )

    def _by_grammar(self, start: int, end: int, operands: list[object], keys: list[Shape]) -> str:
        """Parse a statement with the grammar; appends operands and shapes, and returns the opcode."""
        operands.clear()
        keys.clear()
        node = self.grammar.instruction(self.text, start, end)
        for item in node.operands:
            operand, shape = self.operands.operand(item, start)
            operands.append(operand)
            keys.append(shape)
        return node.opcode

    def _call(
        self, opcode: str, match: re.Match[str], start: int, operands: list[object], keys: list[Shape]
    ) -> str:
        nodes = simple_call(_split(match["operands"]), match.start("operands") - start)
        if nodes is None:
            statement = self.grammar.instruction(self.text, start, match.end())
            opcode, nodes = statement.opcode, statement.operands
        operands.append(call_target(self.operands, nodes, start, self.text.span(start, match.end())))
        keys.append(("call",))
        return opcode

    def _guard(self, name: str, negated: bool, offset: int) -> Guard:
        known = self.names.known.get(name)
        if known is None:
            self.names.undeclared(name, self.text.span(offset, offset + len(name)))
        if known[1] != ("register", "pred"):
            span = self.text.span(offset, offset + len(name))
            raise PtxError(
                f"guard {name!r} is not a predicate register",
                span=span,
                hint="guards are declared .reg .pred",
            )
        return Guard(known[0], negated)

    def _judge(
        self, opcode: str, keys: tuple[Shape, ...], operands: list[Any], offset: int, end: int
    ) -> tuple[Form, bool]:
        """The form that accepts operands of these shapes. Raises ``PtxError`` if there is none."""
        where = self.text.span(offset, offset + len(opcode))
        if len(opcode) > _LONGEST_OPCODE:
            raise PtxError(f"unknown instruction {shorten(opcode)!r}", span=where)
        try:
            forms = lookup(opcode)
            reasons: list[str] = []
            for form in forms:
                reason = fits(form, keys, self.module.checked_address_size)
                if not reason and (parts := chosen(form, keys)):
                    form = select(form, parts)
                    # an access that names a variable has the modifiers of a generic access
                    if form.row.accepts.valid and parts.keys() - {"space"}:
                        reason = form.row.accepts.valid(form.modifiers)
                if not reason:
                    check_available(form, self.module.version, *self.target)
                    _check_mode(form, self.module.target_options)
                    if 0 < self.target[0] < _KEEPS_SUBNORMALS:
                        form = _flushing(form)
                    return form, any(_has_float(key) for key in keys)
                reasons.append(reason)
        except PtxError as error:
            raise PtxError(error.message, span=where, details=error.details, hint=error.hint) from None
        for operand, key in zip(operands, keys):
            if key[0] == "name" and not all(slot.role == "label" for slot in forms[0].operands):
                self.names.undeclared(key[1], operand.span)
        # prefers the reasons of forms with the same number of operands
        best = [pair for pair in zip(reasons, forms) if not pair[0].startswith("takes")] or list(
            zip(reasons, forms)
        )
        accepted = list(dict.fromkeys(form.row.syntax for _, form in best))
        span = self.text.span(offset, end)
        raise PtxError(f"{opcode}: {best[0][0]}", span=span, hint=f"accepted: {' or '.join(accepted[:2])}")

    def _connect(self) -> None:
        """Set the targets of branches, once all labels are known."""
        for instruction, scope in self.branches:
            try:
                self._aim(instruction, scope)
            except PtxError as error:
                self._note(error)
                break

    def _aim(self, instruction: Instruction, scope: Scope) -> None:
        *others, named = instruction.operands
        assert isinstance(named, LabelOperand)
        if instruction.effect is BRANCH:
            label = self._label(scope, named.name, named.span)
            instruction.operands = (*others, label)
            instruction.targets = (label,)
            return
        table = scope.table(named.name)
        if not isinstance(table, Table) or table.directive != ".branchtargets":
            raise PtxError(f"{quoted(named.name)} is not a list of .branchtargets", span=named.span)
        instruction.targets = tuple(
            self._label(
                scope, member.text, self.text.span(table.base + member.start, table.base + member.end)
            )
            for member in table.members
        )

    def _label(self, scope: Scope, name: str, span: Span) -> LabelOperand:
        label = scope.label(name)
        if label is None:
            self.names.no_label(name, span)
        return LabelOperand(name, label.index, span)


def _flushing(form: Form) -> Form:
    """The form with ``.ftz``, if that is a modifier of it, as instructions on sm_1x flush without it."""
    flushing = select(form, {"ftz": True}) if "ftz" in form.modifiers else form
    return (
        form
        if flushing.row.accepts.valid is not None and flushing.row.accepts.valid(flushing.modifiers)
        else flushing
    )


def _has_float(key: Shape) -> bool:
    return key[0] in ("f32", "f64") or (key[0] == "vector" and any(_has_float(item) for item in key[1:]))


def _split(rest: str) -> list[str]:
    """The operands of a statement, including blanks, split at commas outside brackets, braces and parentheses."""
    pieces: list[str] = []
    depth = 0
    for piece in rest.split(","):
        if depth:
            pieces[-1] += f",{piece}"
        else:
            pieces.append(piece)
        for opening in "[{(":
            depth += piece.count(opening)
        for closing in "]})":
            depth -= piece.count(closing)
    return pieces


def _check_mode(form: Form, options: tuple[str, ...]) -> None:
    """Raises ``PtxError`` (without position) for a form of the texturing mode that the module does not have."""
    wanted = form.row.accepts.texmode
    if wanted and wanted != ("independent" if "texmode_independent" in options else "unified"):
        names = wanted == "independent"
        raise PtxError(
            f"{form.opcode}: {'a sampler is named' if names else 'a sampler is missing'}",
            hint=(
                "this form names one with '.target …, texmode_independent' only"
                if names
                else "in independent mode (.target texmode_independent) it follows the texture: [texture, sampler, {…}]"
            ),
        )
