"""HLO text to modules.

Two readers share the work. The quick one takes an instruction that stands on
one line, as compilers print them, with one regular expression. Whatever it
does not match (wrapped lines, payloads that span lines, deeply nested operand
shapes, mistakes) goes to the careful one, which reads token by token and
knows what it expected where.
"""

from __future__ import annotations

import gc
import re
from typing import NoReturn

from hloscope.errors import ParseError
from hloscope.ir.async_sugar import expand_async_sugar, is_async_sugar
from hloscope.ir.attributes import scan_attributes
from hloscope.ir.dialect import not_hlo
from hloscope.ir.header import ModuleHeader, parse_header
from hloscope.ir.module import Computation, Instruction, Module
from hloscope.ir.scan import ScanError, end_of_value, skip_blank, split_list
from hloscope.ir.shape import Shape, ShapeError, parse_shape, shape_end
from hloscope.ir.stack_tables import read_stack_tables

__all__ = ["parse_modules", "parse_text"]

_CUT = "The text looks cut: dump the module again, or fetch the whole file."


def parse_text(text: str, *, file: str = "<string>") -> Module:
    """Read text that holds exactly one module.

    Args:
        text: What ``compiled.as_text()`` or an XLA dump prints.
        file: Name for messages.

    Raises:
        ParseError: It is no HLO, breaks off, or holds several modules.
    """
    modules = parse_modules(text, file=file)
    if len(modules) > 1:
        names = ", ".join(module.name for module in modules[:5])
        raise ParseError(
            f"holds {len(modules)} modules ({names})",
            file=file,
            line=1,
            column=1,
            hint="Choose one with --module NAME.",
        )
    return modules[0]


def parse_modules(text: str, *, file: str = "<string>") -> list[Module]:
    """Read every module in a text; lines that begin with ``//`` or ``#`` may separate them.

    Raises:
        ParseError: There is none, or one of them is malformed.
    """
    collecting = gc.isenabled()
    gc.disable()  # a million new objects that all survive: each collection would walk them again
    try:
        return _Reader(text, file).modules()
    finally:
        if collecting:
            gc.enable()


_OPERANDS = r"[^()\n]*+(?:\((?:[^()\n]|\((?:[^()\n]|\([^()\n]*+\))*+\))*+\)[^()\n]*+)*+"
_LINE = re.compile(
    r"[ \t]*+(ROOT[ \t]++)?%?([\w.\-]++)[ \t]*+=[ \t]*+"
    r"(\([^\n]*?\)|[^\s(]\S*+)[ \t]++([a-z][\w\-]*+)"
    rf"\(({_OPERANDS})\)[ \t]*+(?:(,[^\n]*+)|)(?:\n|\Z)"
)
_HEADER = re.compile(r"HloModule[ \t]+%?([^\s,]+)")
_SIGNATURE = re.compile(r"(ENTRY[ \t]+)?%?([\w.\-]+)[ \t]*(?=[({])")
_COMPUTATION_NAME = re.compile(r"(ENTRY\s+)?%?([A-Za-z_][\w.\-]*)\s*")
_BETWEEN = re.compile(r"(?:\s++|//[^\n]*+|\#[^\n]*+|/\*.*?\*/)*+", re.DOTALL)
_START = re.compile(r"(ROOT\s+)?%?([A-Za-z_][\w.\-]*)\s*=\s*")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\s*\(")
_PERCENT_NAMES = re.compile(r"%([\w.\-]+)").findall
_BRACKETED = re.compile(r"\[[^\]]*+\]|\{[^{}]*+\}")
_PARENTHESIZED = re.compile(r"\([^()]*+\)")
_LAST_NAME = re.compile(r"(?:^|[\s})\]])%?([\w.\-]+)$")

_NO_NAMES = frozenset({"parameter", "constant", "iota"})


class _Reader:
    """One text and the place reached in it."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.shapes: dict[str, Shape] = {}
        self.opcodes: dict[str, str] = {}
        self.marked = (0, 1)  # an offset and its line number, moved forward as reading goes

    def line_of(self, position: int) -> int:
        """1-based line of an offset that is never before the last one asked for."""
        offset, line = self.marked
        line += self.text.count("\n", offset, position)
        self.marked = (position, line)
        return line

    # -- modules -------------------------------------------------------------

    def modules(self) -> list[Module]:
        found: list[Module] = []
        position = self.between(0)
        while position < len(self.text):
            if not found and (complaint := not_hlo(self.text, position)):
                self.fail(complaint.what, position, complaint.hint)
            module, position = self.module(position)
            found.append(module)
            position = self.between(position)
        if not found:
            raise ParseError(
                "is empty" if not self.text.strip() else "holds nothing but comments",
                file=self.file,
                line=1,
                column=1,
                hint="Give optimized HLO: compiled.as_text(), or a file that --xla_dump_to wrote.",
            )
        return found

    def between(self, position: int) -> int:
        match = _BETWEEN.match(self.text, position)
        return match.end() if match else position

    def module(self, position: int) -> tuple[Module, int]:
        header = None
        if match := _HEADER.match(self.text, position):
            header, position = self.header(match)
        module = Module(header or ModuleHeader("module"), self.file)
        module.stack_frames, position = read_stack_tables(self, self.between(position))
        entry: Computation | None = None
        last: Computation | None = None
        while (position := self.between(position)) < len(self.text):
            if self.text.startswith("HloModule", position):
                break
            opening = position
            last, is_entry, position = self.computation(module, position)
            if last.name in module.computations:
                self.fail(f"there are two computations named {last.name!r}", opening)
            module.computations[last.name] = last
            if is_entry and entry is not None:
                self.fail("there is a second ENTRY computation", opening)
            entry = last if is_entry else entry
        if last is None:
            self.fail("the module ends before its first computation", position, _CUT)
        if entry is None and header is not None and header.entry_layout is not None:
            self.fail("the text ends before the ENTRY computation", position, _CUT)
        module.entry = entry or last
        if any(map(is_async_sugar, self.opcodes)):
            expand_async_sugar(module)
        if header is None:
            module.header = ModuleHeader(f"module_{module.entry.name}")
        return module, position

    def header(self, match: re.Match[str]) -> tuple[ModuleHeader, int]:
        try:
            end = scan_attributes(self.text, match.end(), {})
        except ScanError as error:
            self.fail(f"in the module's header: {error}", error.offset, _CUT)
        try:
            return parse_header(match.group(1), self.text[match.end() : end].rstrip()), end
        except ValueError as error:
            self.fail(f"in the module's header: {error}", match.start())

    # -- computations --------------------------------------------------------

    def computation(self, module: Module, position: int) -> tuple[Computation, bool, int]:
        opening = position
        name, is_entry, position = self.signature(position)
        computation = Computation(name, module)
        instructions: list[Instruction] = []
        by_name: dict[str, Instruction] = {}
        root, position = self.instructions(computation, instructions, by_name, position)
        if not instructions:
            self.fail(f"computation {name!r} holds no instruction", position)
        self.check_parameters(computation, instructions, opening)
        computation.fill(instructions, by_name, root or instructions[-1])
        attributes: dict[str, str] = {}
        try:
            position = scan_attributes(self.text, position, attributes)
        except ScanError as error:
            self.fail(str(error), error.offset)
        if "execution_thread" in attributes:
            computation.execution_thread = attributes["execution_thread"].strip('"')
        return computation, is_entry, position

    def signature(self, position: int) -> tuple[str, bool, int]:
        text = self.text
        if match := _SIGNATURE.match(text, position):
            end = text.find("\n", match.end())
            line = text[match.end() : end].rstrip() if end >= 0 else ""
            if line == "{" or (line.endswith("{") and " -> " in line):
                return match.group(2), match.group(1) is not None, end + 1
        match = _COMPUTATION_NAME.match(text, position)
        if match is None:
            self.fail("expected a computation such as '%name (p: f32[]) -> f32[] {'", position)
        at = skip_blank(text, match.end())
        try:
            if text.startswith("(", at):
                at = skip_blank(text, end_of_value(text, at))
                if not text.startswith("->", at):
                    self.fail("expected '->' and the computation's result", at, _cut_at(text, at))
                at = skip_blank(text, shape_end(text, skip_blank(text, at + 2)))
        except (ScanError, ShapeError) as error:
            self.fail(str(error), error.offset, _CUT)
        if not text.startswith("{", at):
            self.fail(f"expected '{{' to open {match.group(2)!r}", at, _cut_at(text, at))
        return match.group(2), match.group(1) is not None, at + 1

    def check_parameters(
        self, computation: Computation, instructions: list[Instruction], position: int
    ) -> None:
        """Parameter numbers must be 0, 1, 2...: everything that maps arguments relies on it."""
        numbers = []
        for instruction in instructions:
            if instruction.opcode == "parameter":
                if not instruction.payload.isdecimal() or len(instruction.payload) > 9:
                    self.fail(f"%{instruction.name} has no parameter number", position)
                numbers.append(int(instruction.payload))
        if sorted(numbers) != list(range(len(numbers))):
            self.fail(
                f"parameters of {computation.name!r} are numbered {sorted(numbers)[:8]}, "
                f"not 0 to {len(numbers) - 1}",
                position,
                "A parameter is missing or named twice: was the text edited?",
            )

    # -- instructions --------------------------------------------------------

    def instructions(
        self,
        computation: Computation,
        instructions: list[Instruction],
        by_name: dict[str, Instruction],
        position: int,
    ) -> tuple[Instruction | None, int]:
        """Read up to the closing brace; gives the marked root and the offset behind the brace."""
        text = self.text
        shapes = self.shapes
        opcodes = self.opcodes
        match_line = _LINE.match
        line = self.line_of(position)
        root: Instruction | None = None
        index = 0
        starts = position
        while True:
            match = match_line(text, position)
            if match is not None:
                is_root, name, shape_text, opcode, inside, tail = match.groups("")
                if tail and not _is_whole(tail):
                    match = None
            if match is None:
                at = skip_blank(text, position)
                if text.startswith("}", at):
                    self.marked = (position, line)
                    return root, at + 1
                if text.startswith(",", at) and index:
                    # The instruction goes on behind the line on which it seemed to end.
                    at = skip_blank(text, starts)
                    previous = instructions.pop()
                    del by_name[previous.name]
                    root = None if root is previous else root
                    index -= 1
                    line = previous.line
                else:
                    line += text.count("\n", position, at)
                instruction, is_root, end = self.careful(computation, by_name, index, line, at)
                starts = at
                line += text.count("\n", at, end)
                position = end
            else:
                shape = shapes.get(shape_text)
                if shape is None:
                    shape = self.shape(shape_text, match.start(3))
                opcode = opcodes.setdefault(opcode, opcode)
                payload = ""
                operands: tuple[Instruction, ...] = ()
                if opcode in _NO_NAMES:
                    payload = inside
                elif inside:
                    try:
                        names = _PERCENT_NAMES(inside)
                        if not names or len(names) != _count_operands(inside):
                            names = _bare_names(inside)
                        operands = tuple([by_name[n] for n in names])
                    except (KeyError, ScanError):
                        self.bad_operands(inside, by_name, match.start(5))
                instruction = Instruction(
                    name, opcode, shape, operands, computation, index, line, payload, tail
                )
                starts = position
                position = match.end()
                line += 1
            if by_name.setdefault(instruction.name, instruction) is not instruction:
                self.fail(f"there are two instructions named {instruction.name!r}", starts)
            instructions.append(instruction)
            index += 1
            if is_root:
                if root is not None:
                    self.fail(f"{computation.name!r} has two ROOT instructions", starts)
                root = instruction

    def careful(
        self,
        computation: Computation,
        by_name: dict[str, Instruction],
        index: int,
        line: int,
        position: int,
    ) -> tuple[Instruction, str, int]:
        """Read one instruction token by token; gives it, its ROOT mark, and where it ends."""
        text = self.text
        if position >= len(text):
            self.fail(f"the text ends inside computation {computation.name!r}", position, _CUT)
        start = _START.match(text, position)
        if start is None:
            self.fail(
                "expected an instruction such as '%name = f32[] opcode(...)'",
                position,
                _cut_at(text, position),
            )
        at = skip_blank(text, start.end())
        try:
            end = shape_end(text, at)
            shape = parse_shape(text[at:end])
        except ShapeError as error:
            self.fail(str(error), at + error.offset if error.offset < at else error.offset, _CUT)
        opcode = _OPCODE.match(text, skip_blank(text, end))
        if opcode is None:
            self.fail("expected an opcode and '('", end, _cut_at(text, end))
        opening = opcode.end() - 1
        attributes: dict[str, str] = {}
        try:
            closing = end_of_value(text, opening)
            finish = scan_attributes(text, closing, attributes)
        except ScanError as error:
            self.fail(f"{error} in %{start.group(2)}", error.offset, _CUT)
        inside = text[opening + 1 : closing - 1].strip()
        payload = ""
        operands: tuple[Instruction, ...] = ()
        if opcode.group(1) in _NO_NAMES:
            payload = inside
        else:
            try:
                operands = tuple(by_name[n] for n in _bare_names(inside))
            except (KeyError, ScanError):
                self.bad_operands(inside, by_name, opening)
        name = start.group(2)
        spelled = self.opcodes.setdefault(opcode.group(1), opcode.group(1))
        instruction = Instruction(
            name, spelled, shape, operands, computation, index, line, payload, attributes
        )
        return instruction, start.group(1) or "", finish

    def shape(self, text: str, position: int) -> Shape:
        try:
            return parse_shape(text, self.shapes)
        except ShapeError as error:
            self.fail(str(error), position + error.offset)

    def bad_operands(self, inside: str, by_name: dict[str, Instruction], position: int) -> NoReturn:
        """Name the operand that is not defined, or say what else is wrong with the list."""
        try:
            names = _bare_names(inside)
        except ScanError as error:
            self.fail(f"cannot read the operands: {error}", position)
        for name in names:
            if name not in by_name:
                at = self.text.find(name, position)
                self.fail(
                    f"operand {name!r} is not defined above in this computation",
                    position if at < 0 else at,
                )
        self.fail("cannot read the operands", position)

    def fail(self, message: str, position: int, hint: str | None = None) -> NoReturn:
        """Raise a ParseError at a text offset."""
        position = min(position, len(self.text))
        begin = self.text.rfind("\n", 0, position) + 1
        end = self.text.find("\n", position)
        raise ParseError(
            message,
            file=self.file,
            line=self.text.count("\n", 0, position) + 1,
            column=position - begin + 1,
            source=self.text[begin : end if end >= 0 else len(self.text)],
            hint=hint or "Check whether the file was cut or edited; dump the module again.",
        )


def _is_whole(tail: str) -> bool:
    """Whether brackets and quotes seem to close on this line; if not, it wants care."""
    return (
        tail.count("{") == tail.count("}")
        and tail.count('"') % 2 == 0
        and tail.count("(") == tail.count(")")
        and tail.count("[") == tail.count("]")
        and tail[-1] != ","
    )


def _count_operands(inside: str) -> int:
    """Number of operands, counted by the commas outside brackets."""
    if "[" in inside:
        inside = _BRACKETED.sub("", inside)
        while "(" in inside:
            shorter = _PARENTHESIZED.sub("", inside)
            if shorter == inside:
                break
            inside = shorter
    return inside.count(",") + 1


def _bare_names(inside: str) -> list[str]:
    """Operand names, where a shape may stand before each and ``%`` may be missing."""
    if not inside:
        return []
    if "[" not in inside and "(" not in inside and "*" not in inside and "{" not in inside:
        return [name.strip().lstrip("%") for name in inside.split(",")]
    names = []
    for part in split_list(inside):
        match = _LAST_NAME.search(part)
        if match is None:
            raise ScanError("an operand has no name", 0)
        names.append(match.group(1))
    return names


def _cut_at(text: str, position: int) -> str | None:
    """The hint for text that stops where more was expected."""
    return _CUT if not text[position:].strip() else None
