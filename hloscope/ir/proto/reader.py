"""HloProto and HloModuleProto to Module: the same that the text parser gives."""

from __future__ import annotations

import gc
import re
from typing import Any, NoReturn

from hloscope.errors import InputError
from hloscope.ir.header import Alias, Donor, ModuleHeader
from hloscope.ir.module import Computation, Instruction, Module
from hloscope.ir.proto.buffers import read_buffer_assignment
from hloscope.ir.proto.escape import numbered
from hloscope.ir.proto.printing import InstructionFields, Scope
from hloscope.ir.proto.schema import enum_name, message_class
from hloscope.ir.proto.shapes import ShapeReader
from hloscope.ir.proto.spelling import frontend_attributes_text, integers_text
from hloscope.ir.shape import Shape
from hloscope.ir.stack_tables import build_stack_frames

__all__ = ["read_proto", "read_text_proto"]

_DAMAGED = "The file looks damaged or cut: dump the module again, or fetch the whole file."


def read_proto(data: bytes, *, file: str = "<bytes>") -> Module:
    """Read a serialized HloProto, HloModuleProto or HloSnapshot.

    Args:
        data: What ``as_serialized_hlo_module_proto()`` gives, or an
            ``.hlo.pb`` that ``--xla_dump_hlo_as_proto`` wrote.
        file: Name for messages.

    The number of partitions stands in no field of its own; it is read from
    the device assignment and is 1 where the file has none.

    Raises:
        InputError: The bytes are none of these, break off, or describe no
            valid module.
    """
    message, assignment = _decode(data, file)
    return _build(message, assignment, file)


def read_text_proto(text: str, *, file: str = "<string>") -> list[Module]:
    """Read HloModuleProto or HloProto messages in protobuf's text format.

    Args:
        text: One message, or several with a line ``// -----`` between them.
            Other lines that begin with ``//`` or ``#`` are comments, and
            fields that are not known are skipped.
        file: Name for messages.

    Raises:
        InputError: Some message is malformed or describes no valid module.
    """
    modules = []
    line = 1
    for part in _SEPARATOR.split(text):
        if _COMMENTS.sub("", part).strip():
            modules.append(_read_text_message(part, line, file))
        line += part.count("\n")
    if not modules:
        raise InputError("holds no protobuf message", place=file, hint=_DAMAGED)
    return modules


_SEPARATOR = re.compile(r"^//[ \t]*-----[^\n]*$", re.MULTILINE)
_COMMENTS = re.compile(r"^[ \t]*(?://|#)[^\n]*", re.MULTILINE)


def _read_text_message(text: str, line: int, file: str) -> Module:
    from google.protobuf import text_format

    plain = _COMMENTS.sub("", text)
    wrapped = re.search(r"^hlo_module\b", plain, re.MULTILINE) is not None
    message = message_class("HloProto" if wrapped else "HloModuleProto")()
    try:
        text_format.Parse(plain, message, allow_unknown_field=True)
    except text_format.ParseError as error:
        at = f"{file}:{line - 1 + (error.GetLine() or 1)}:{error.GetColumn() or 1}"
        raise InputError(
            f"is no HloModuleProto in text format: {_first_line(error)}", place=at, hint=_DAMAGED
        ) from None
    except RecursionError:
        raise InputError(
            "its messages are nested too deeply", place=f"{file}:{line}", hint=_DAMAGED
        ) from None
    module = message.hlo_module if wrapped else message
    assignment = message.buffer_assignment if wrapped else None
    if not module.computations:
        raise InputError("holds no computation", place=f"{file}:{line}", hint=_DAMAGED)
    return _build(module, assignment, file)


def _first_line(error: Exception) -> str:
    return re.sub(r"^\d+:\d+ : ", "", str(error).partition("\n")[0])


def _decode(data: bytes, file: str) -> tuple[Any, Any]:
    """The HloModuleProto in ``data`` and the buffer assignment beside it, if any."""
    from google.protobuf.message import DecodeError

    def parsed(name: str) -> Any:
        try:
            return message_class(name).FromString(data)
        except DecodeError:
            return None

    # A module's own first field is its name, which is no message that holds computations.
    outer = parsed("HloProto")
    if outer is not None and outer.hlo_module.computations:
        return outer.hlo_module, outer.buffer_assignment
    module = parsed("HloModuleProto")
    if module is not None and module.computations:
        return module, None
    snapshot = parsed("HloSnapshot")
    if snapshot is not None and snapshot.hlo.hlo_module.computations:
        return snapshot.hlo.hlo_module, snapshot.hlo.buffer_assignment
    if not data:
        problem = "is empty"
    elif outer is None and module is None:
        problem = "is no HloProto and no HloModuleProto, or is cut"
    else:
        problem = "is a protobuf, but holds no HLO computation"
    raise InputError(problem, place=file, hint=_DAMAGED)


def _build(message: Any, assignment: Any, file: str) -> Module:
    collecting = gc.isenabled()
    gc.disable()  # many objects that all survive: each collection would walk them again
    try:
        return _Builder(message, file).module(assignment)
    finally:
        if collecting:
            gc.enable()


class _Builder:
    """One HloModuleProto on its way to a Module."""

    def __init__(self, message: Any, file: str) -> None:
        self.message = message
        self.file = file
        self.shapes = ShapeReader(file)
        self.schedule = {entry.key: entry.value for entry in message.schedule.sequences}
        self.computations: dict[int, Computation] = {}
        self.instructions: dict[int, Instruction | None] = {}  # None where ids repeat

    def fail(self, message: str) -> NoReturn:
        raise InputError(message, place=self.file, hint=_DAMAGED)

    def module(self, assignment: Any) -> Module:
        module = Module(self.header(), self.file)
        module.stack_frames = self.stack_frames()
        for message in self.message.computations:
            computation = self.computation(module, message)
            if computation.name in module.computations:
                self.fail(f"there are two computations named {computation.name!r}")
            module.computations[computation.name] = computation
        module.entry = self.entry(module)
        if assignment is not None and assignment.buffer_allocations:
            module.buffer_assignment = read_buffer_assignment(assignment, self.instructions)
        return module

    def entry(self, module: Module) -> Computation:
        found = self.computations.get(self.message.entry_computation_id)
        name = self.message.entry_computation_name
        if found is None or (name and name in module.computations and found.name != name):
            found = module.computations.get(name)
        if found is None:
            self.fail(f"the entry computation {name!r} is missing")
        return found

    # -- header --------------------------------------------------------------

    def header(self) -> ModuleHeader:
        message = self.message
        scheduled = message.HasField("schedule")
        layout = self.entry_layout()
        devices = message.device_assignment
        aliases = tuple(
            Alias(
                tuple(entry.output_shape_index),
                entry.parameter_number,
                tuple(entry.parameter_shape_index),
                "must-alias" if enum_name("AliasKind", entry.kind) == "MUST_ALIAS" else "may-alias",
            )
            for entry in message.input_output_alias.entries
        )
        donors = tuple(
            Donor(entry.parameter_number, tuple(entry.parameter_shape_index))
            for entry in message.buffer_donor.entries
        )
        replicas = max(devices.replica_count, 1)
        partitions = max(devices.computation_count, 1)
        attributes = {
            "is_scheduled": "true" if scheduled else None,
            "input_output_alias": _aliases_text(aliases),
            "buffer_donor": _donors_text(donors),
            "entry_computation_layout": _layout_text(layout),
            "replica_count": str(replicas) if replicas > 1 else None,
            "num_partitions": str(partitions) if partitions > 1 else None,
            "frontend_attributes": frontend_attributes_text(message.frontend_attributes),
        }
        return ModuleHeader(
            name=message.name,
            is_scheduled=scheduled,
            input_output_alias=aliases,
            buffer_donors=donors,
            entry_layout=layout,
            num_partitions=partitions,
            replica_count=replicas,
            attributes={key: text for key, text in attributes.items() if text is not None},
            devices=_assigned(devices, replicas, partitions),
        )

    def entry_layout(self) -> tuple[tuple[Shape, ...], Shape] | None:
        if not self.message.HasField("host_program_shape"):
            return None
        program = self.message.host_program_shape
        parameters = tuple(self.shapes.read(shape) for shape in program.parameters)
        return parameters, self.shapes.read(program.result)

    def stack_frames(self) -> Any:
        index = self.message.stack_frame_index
        return build_stack_frames(
            list(index.file_names),
            list(index.function_names),
            [
                {
                    "file_name_id": row.file_name_id,
                    "function_name_id": row.function_name_id,
                    "line": row.line,
                }
                for row in index.file_locations
            ],
            [
                {"file_location_id": row.file_location_id, "parent_frame_id": row.parent_frame_id}
                for row in index.stack_frames
            ],
        )

    # -- computations --------------------------------------------------------

    def computation(self, module: Module, message: Any) -> Computation:
        if not message.name:
            self.fail("a computation has no name")
        if message.id in self.computations:
            self.fail(f"there are two computations with the id {message.id}")
        if not message.instructions:
            self.fail(f"computation {message.name!r} holds no instruction")
        computation = Computation(message.name, module)
        computation.execution_thread = message.execution_thread or "main"
        scope = Scope(self.file, self.shapes, self.computations, self.message.payloads)
        by_id = scope.instructions
        by_name: dict[str, Instruction] = {}
        ordered = self.in_order(message)
        for index, fields in enumerate(ordered):
            instruction = self.instruction(computation, fields, index, scope)
            if fields.id in by_id:
                self.fail(f"two instructions of {message.name!r} have the id {fields.id}")
            if by_name.setdefault(instruction.name, instruction) is not instruction:
                self.fail(f"there are two instructions named {instruction.name!r}")
            by_id[fields.id] = instruction
        root = by_id.get(message.root_id)
        if root is None:
            self.fail(f"the root of {message.name!r} is missing")
        self.check_parameters(message)
        self.check_control(message, by_id)
        computation.fill(list(by_id.values()), by_name, root)
        for number, instruction in by_id.items():
            self.instructions[number] = None if number in self.instructions else instruction
        self.computations[message.id] = computation
        return computation

    def in_order(self, message: Any) -> list[Any]:
        """The instruction messages in the schedule's order, or as they stand."""
        stored = list(message.instructions)
        sequence = self.schedule.get(message.id)
        if sequence is None:
            return stored
        by_id = {fields.id: fields for fields in stored}
        order = list(sequence.instruction_ids)
        if len(order) != len(stored) or set(order) != set(by_id):
            self.fail(f"the schedule does not list each instruction of {message.name!r} once")
        return [by_id[number] for number in order]

    def check_parameters(self, message: Any) -> None:
        numbers = [i.parameter_number for i in message.instructions if i.opcode == "parameter"]
        if sorted(numbers) != list(range(len(numbers))):
            self.fail(
                f"parameters of {message.name!r} are numbered {sorted(numbers)[:8]}, "
                f"not 0 to {len(numbers) - 1}"
            )

    def check_control(self, message: Any, by_id: dict[int, Instruction]) -> None:
        for fields in message.instructions:
            for number in fields.control_predecessor_ids:
                if number not in by_id:
                    self.fail(
                        f"%{fields.name} waits for instruction {number}, "
                        f"which {message.name!r} does not have"
                    )

    def instruction(
        self, computation: Computation, fields: Any, index: int, scope: Scope
    ) -> Instruction:
        if not fields.name or not fields.opcode:
            self.fail(f"an instruction of {computation.name!r} has no name or no opcode")
        operands = []
        for number in fields.operand_ids:
            operand = scope.instructions.get(number)
            if operand is None:
                self.fail(
                    f"operand {number} of %{fields.name} ({fields.opcode}) does not stand above "
                    f"it in {computation.name!r}: it is missing, comes later, or the operands "
                    "form a cycle"
                )
            operands.append(operand)
        for number in fields.called_computation_ids:
            if number not in self.computations:
                self.fail(
                    f"%{fields.name} ({fields.opcode}) calls computation {number}, which does not "
                    "stand above it: it is missing, comes later, or computations call each other "
                    "in a cycle"
                )
        return Instruction(
            fields.name,
            fields.opcode,
            self.shapes.read(fields.shape),
            tuple(operands),
            computation,
            index,
            0,
            str(fields.parameter_number) if fields.opcode == "parameter" else "",
            InstructionFields(fields, scope),
        )


def _assigned(assignment: Any, replicas: int, partitions: int) -> tuple[int, ...]:
    """Device ids by replica and partition; ``()`` where some are missing."""
    columns = [each.replica_device_ids for each in assignment.computation_devices]
    if len(columns) != partitions or any(len(column) != replicas for column in columns):
        return ()
    return tuple(column[replica] for replica in range(replicas) for column in columns)


def _aliases_text(aliases: tuple[Alias, ...]) -> str | None:
    parts = (
        f"{integers_text(a.output_index)}: "
        f"({a.parameter}, {integers_text(a.parameter_index)}, {a.kind})"
        for a in aliases
    )
    return f"{{ {', '.join(parts)} }}" if aliases else None


def _donors_text(donors: tuple[Donor, ...]) -> str | None:
    parts = (f"({donor.parameter}, {integers_text(donor.parameter_index)})" for donor in donors)
    return f"{{ {', '.join(parts)} }}" if donors else None


def _layout_text(layout: tuple[tuple[Shape, ...], Shape] | None) -> str | None:
    if layout is None:
        return None
    parameters, result = layout
    return f"{{({numbered(map(str, parameters))})->{result}}}"
