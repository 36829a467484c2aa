"""Module, Computation and Instruction: XLA's own words for XLA's own things.

Built by the text parser and by the protobuf reader. Everything but names,
opcodes, shapes and operands is decoded on first use, because most passes read
few attributes of few instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Protocol

from hloscope.errors import InputError, ParseError
from hloscope.ir.attributes import (
    ConvolutionDims,
    DotDims,
    Slice,
    Window,
    parse_dim_labels,
    parse_frontend_attributes,
    parse_integers,
    parse_padding,
    parse_slices,
    parse_window,
    split_attributes,
)
from hloscope.ir.backend_config import parse_backend_config
from hloscope.ir.header import Alias, Donor, ModuleHeader
from hloscope.ir.literal import Literal
from hloscope.ir.metadata import (
    Metadata,
    SourceLocation,
    StackFrames,
    parse_metadata,
    users_frame,
)
from hloscope.ir.replica_groups import Groups, parse_replica_groups
from hloscope.ir.scan import ScanError, split_list, unescape
from hloscope.ir.shape import Shape

__all__ = ["CALL_KEYS", "AttributeSource", "Computation", "Instruction", "Module"]

CALL_KEYS = (
    "calls",
    "to_apply",
    "condition",
    "body",
    "branch_computations",
    "true_computation",
    "false_computation",
    "called_computations",
    "select",
    "scatter",
)
"""Attributes whose value names computations, in the order of :attr:`Instruction.called`."""


class AttributeSource(Protocol):
    """Where an instruction that was not read from text gets its attributes."""

    def attributes(self) -> dict[str, str]:
        """Attributes in XLA's text spelling."""

    def literal(self, shape: Shape) -> Literal:
        """The value of a constant."""


class Instruction:
    """One HLO instruction.

    Attributes:
        name: Without ``%``; unique within its computation.
        opcode: As XLA spells it, for example ``get-tuple-element``.
        shape: Shape of the result.
        operands: In order.
        computation: The computation that holds it.
        index: Position in the computation's printed order, which is the
            execution order when the module is scheduled.
        line: 1-based line in the text it was read from, 0 otherwise.
        payload: What stands between the parentheses of ``parameter``,
            ``constant`` and ``iota``; empty for the rest.
    """

    __slots__ = (
        "_called",
        "_source",
        "computation",
        "index",
        "line",
        "name",
        "opcode",
        "operands",
        "payload",
        "shape",
    )

    def __init__(
        self,
        name: str,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...],
        computation: Computation,
        index: int,
        line: int,
        payload: str,
        source: str | dict[str, str] | AttributeSource,
    ) -> None:
        self.name = name
        self.opcode = opcode
        self.shape = shape
        self.operands = operands
        self.computation = computation
        self.index = index
        self.line = line
        self.payload = payload
        self._source = source
        self._called: tuple[Computation, ...] | None = None

    def __repr__(self) -> str:
        operands = ", ".join(f"%{operand.name}" for operand in self.operands)
        return f"%{self.name} = {self.shape} {self.opcode}({operands or self.payload})"

    @property
    def attributes(self) -> Mapping[str, str]:
        """Raw value of every attribute by key, brackets and quotes included.

        Raises:
            InputError: The instruction's text does not hold attributes.
        """
        source = self._source
        if isinstance(source, dict):
            return source
        if isinstance(source, str):
            try:
                decoded = split_attributes(source)
            except ScanError as error:
                raise self.error(str(error), source) from None
        else:
            if self.opcode == "constant":
                return source.attributes()  # the source still holds the literal
            decoded = source.attributes()
        self._source = decoded
        return decoded

    def replace_attributes(self, attributes: dict[str, str]) -> None:
        """Give it other attributes; only for readers that rewrite shorthand."""
        self._source = attributes
        self._called = None

    def error(self, message: str, source: str = "") -> InputError:
        """A typed error that points at this instruction, by line where it has one."""
        file = self.computation.module.file
        what = f"%{self.name} ({self.opcode}): {message}"
        hint = "Check whether the file was cut or edited; dump the module again."
        if not self.line:
            return InputError(what, place=file, hint=hint)
        return ParseError(
            what, file=file, line=self.line, column=1, source=source.strip(), hint=hint
        )

    def _decode(self, key: str, reader: Any) -> Any:
        """Run a reader over an attribute; its complaints become errors with a place."""
        value = self.attributes.get(key)
        if value is None:
            return None
        try:
            return reader(value)
        except (ValueError, IndexError, TypeError) as error:
            raise self.error(f"cannot read {key}={value[:60]}: {error}") from None

    @property
    def is_root(self) -> bool:
        """Whether its value is its computation's result."""
        return self.computation.root is self

    @property
    def users(self) -> tuple[Instruction, ...]:
        """Instructions of the same computation that take it as an operand, each once."""
        return self.computation.users_of(self)

    @property
    def called(self) -> tuple[Computation, ...]:
        """Computations it calls, in the order of :data:`CALL_KEYS`.

        Raises:
            InputError: It names a computation that the module does not have.
        """
        if self._called is None:
            names = self.called_names()
            self._called = tuple(
                self._computation(name) for key in CALL_KEYS for name in names.get(key, ())
            )
        return self._called

    def called_names(self) -> dict[str, tuple[str, ...]]:
        """Names of the computations it calls, by attribute."""
        attributes = self.attributes
        return {
            key: self._decode(key, _names)
            for key in CALL_KEYS
            if key in attributes and not (key == "select" and self.opcode != "select-and-scatter")
        }

    def callee(self, key: str) -> Computation | None:
        """The one computation that an attribute such as ``body`` names."""
        names = self.called_names().get(key)
        return self._computation(names[0]) if names else None

    def _computation(self, name: str) -> Computation:
        found = self.computation.module.computations.get(name)
        if found is None:
            raise self.error(f"there is no computation {name!r}")
        return found

    @property
    def control_predecessors(self) -> tuple[Instruction, ...]:
        """Instructions that must run first without giving it a value."""
        result = []
        for name in self._decode("control-predecessors", _names) or ():
            found = self.computation.get(name)
            if found is None:
                raise self.error(f"there is no control predecessor {name}")
            result.append(found)
        return tuple(result)

    @property
    def parameter_number(self) -> int | None:
        """Number of a ``parameter``, ``None`` for anything else."""
        return int(self.payload) if self.opcode == "parameter" else None

    @property
    def tuple_index(self) -> int | None:
        """Which element a ``get-tuple-element`` takes."""
        return self.integer("index", 0) if self.opcode == "get-tuple-element" else None

    def integer(self, key: str, default: int) -> int:
        """An attribute that is one integer, such as ``feature_group_count``."""
        value = self._decode(key, int)
        return default if value is None else int(value)

    def string(self, key: str) -> str | None:
        """An attribute that is a quoted string, unescaped."""
        value = self.attributes.get(key)
        return None if value is None else unescape(value.strip('"'))

    @property
    def metadata(self) -> Metadata:
        """Where it comes from; empty fields where the module does not say."""
        value = self.attributes.get("metadata")
        return parse_metadata(value[1:-1]) if value else _NO_METADATA

    @property
    def op_name(self) -> str:
        """Scope path, or an entry parameter's pytree path; empty if unknown."""
        return self.metadata.op_name

    @property
    def stack(self) -> tuple[SourceLocation, ...]:
        """Python frames, innermost first; empty if unknown."""
        metadata = self.metadata
        if metadata.stack_frame_id:
            return tuple(self.computation.module.stack_frames.walk(metadata.stack_frame_id))
        if metadata.source_file:
            return (SourceLocation(metadata.source_file, metadata.source_line),)
        return ()

    @property
    def location(self) -> SourceLocation | None:
        """The user's innermost Python line, else the innermost of all, if any is known."""
        return users_frame(self.stack)

    @property
    def backend_config(self) -> dict[str, Any]:
        """Decoded backend_config; ``{}`` if none, ``{"opaque": text}`` if not readable."""
        value = self.attributes.get("backend_config")
        return parse_backend_config(value) if value else {}

    @property
    def frontend_attributes(self) -> dict[str, str]:
        """Frontend attributes by name."""
        value = self._decode("frontend_attributes", parse_frontend_attributes)
        return value or {}

    @property
    def custom_call_target(self) -> str | None:
        """Target of a custom call."""
        return self.string("custom_call_target")

    @property
    def sharding(self) -> str | None:
        """Sharding as printed."""
        return self.attributes.get("sharding")

    @property
    def dimensions(self) -> tuple[int, ...]:
        """``dimensions={...}``; empty if absent."""
        value = self._decode("dimensions", parse_integers)
        return value or ()

    @property
    def window(self) -> Window | None:
        """Window of a convolution or reduce-window."""
        value: Window | None = self._decode("window", parse_window)
        return value

    @property
    def dim_labels(self) -> ConvolutionDims | None:
        """Dimension roles of a convolution."""
        value: ConvolutionDims | None = self._decode("dim_labels", parse_dim_labels)
        return value

    @property
    def dot_dims(self) -> DotDims:
        """Contracting and batch dimensions of a dot."""
        return DotDims(
            *(
                self._decode(key, parse_integers) or ()
                for key in (
                    "lhs_contracting_dims",
                    "rhs_contracting_dims",
                    "lhs_batch_dims",
                    "rhs_batch_dims",
                )
            )
        )

    @property
    def slices(self) -> tuple[Slice, ...]:
        """``slice={...}`` of a slice."""
        value = self._decode("slice", parse_slices)
        return value or ()

    @property
    def padding(self) -> tuple[tuple[int, int, int], ...]:
        """(low, high, interior) per dimension of a pad."""
        value = self._decode("padding", parse_padding)
        return value or ()

    @property
    def replica_groups(self) -> Groups | None:
        """Replica groups of a collective; ``()`` is one group of all, ``None`` no attribute."""
        value: Groups | None = self._decode("replica_groups", parse_replica_groups)
        return value

    @property
    def literal(self) -> Literal | None:
        """Value of a constant; ``None`` for anything else."""
        if self.opcode != "constant":
            return None
        source = self._source
        if isinstance(source, (str, dict)):
            return Literal(self.shape, self.payload)
        return source.literal(self.shape)


def _names(text: str) -> tuple[str, ...]:
    """Names in ``%a`` or ``{%a, %b}``."""
    return tuple(part.lstrip("%") for part in split_list(text.strip("{}")))


_NO_METADATA = Metadata()


class Computation:
    """A named sequence of instructions with one root.

    Attributes:
        name: Without ``%``.
        module: The module that holds it.
        instructions: In printed order.
        root: The instruction whose value is the result.
        execution_thread: ``main`` unless the text says otherwise.
    """

    def __init__(self, name: str, module: Module) -> None:
        self.name = name
        self.module = module
        self.instructions: tuple[Instruction, ...] = ()
        self.root: Instruction
        self.execution_thread = "main"
        self._by_name: dict[str, Instruction] = {}
        self._users: list[list[Instruction]] | None = None

    def fill(
        self,
        instructions: list[Instruction],
        by_name: dict[str, Instruction],
        root: Instruction,
    ) -> None:
        """Set the contents once they are read."""
        self.instructions = tuple(instructions)
        self._by_name = by_name
        self.root = root

    def __repr__(self) -> str:
        return f"<Computation %{self.name}: {len(self.instructions)} instructions>"

    def __getitem__(self, name: str) -> Instruction:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Instruction | None:
        """The instruction of that name, if there is one."""
        return self._by_name.get(name)

    @property
    def is_entry(self) -> bool:
        """Whether the module starts here."""
        return self.module.entry is self

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """Parameters sorted by number (their printed order is the schedule's)."""
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(found, key=lambda i: int(i.payload)))

    @property
    def callers(self) -> tuple[Instruction, ...]:
        """Instructions anywhere in the module that call this computation."""
        return self.module.callers_of(self)

    @property
    def is_fusion(self) -> bool:
        """Whether it is the body of a fusion."""
        return any(caller.opcode == "fusion" for caller in self.callers)

    def users_of(self, instruction: Instruction) -> tuple[Instruction, ...]:
        """Instructions here that take ``instruction`` as an operand, each once."""
        if self._users is None:
            users: list[list[Instruction]] = [[] for _ in self.instructions]
            for user in self.instructions:
                for operand in dict.fromkeys(user.operands):
                    users[operand.index].append(user)
            self._users = users
        return tuple(self._users[instruction.index])

    def post_order(self) -> Iterator[Instruction]:
        """Instructions in a topological order, operands before their users."""
        done: set[Instruction] = set()
        for start in self.instructions:
            stack: list[tuple[Instruction, bool]] = [(start, False)]
            while stack:
                instruction, ready = stack.pop()
                if instruction in done:
                    continue
                if ready:
                    done.add(instruction)
                    yield instruction
                else:
                    stack.append((instruction, True))
                    stack += [(o, False) for o in reversed(instruction.operands) if o not in done]


class Module:
    """One HLO module.

    Attributes:
        header: Name, aliases, layouts and the rest of the header line.
        file: Name of what it was read from, for messages.
        computations: By name, in printed order: callees before callers.
        entry: Where execution starts.
        stack_frames: Python frames that instructions refer to.
    """

    def __init__(self, header: ModuleHeader, file: str = "<string>") -> None:
        self.header = header
        self.file = file
        self.computations: dict[str, Computation] = {}
        self.entry: Computation
        self.stack_frames = StackFrames()
        self.buffer_assignment: Any = None
        self._callers: dict[Computation, list[Instruction]] | None = None

    def __repr__(self) -> str:
        return f"<Module {self.name}: {len(self.computations)} computations>"

    @property
    def name(self) -> str:
        """Name of the module."""
        return self.header.name

    @property
    def is_scheduled(self) -> bool:
        """Whether the printed order is the execution order."""
        return self.header.is_scheduled

    @property
    def input_output_alias(self) -> tuple[Alias, ...]:
        """Results that take over a parameter's buffer."""
        return self.header.input_output_alias

    @property
    def buffer_donors(self) -> tuple[Donor, ...]:
        """Parameters donated without a partner among the results."""
        return self.header.buffer_donors

    @property
    def num_partitions(self) -> int:
        """Devices that a partitioned program runs on."""
        return self.header.num_partitions

    @property
    def replica_count(self) -> int:
        """Copies that a replicated program runs as."""
        return self.header.replica_count

    @property
    def devices(self) -> tuple[int, ...]:
        """Ids of the devices that it was compiled for, by their numbers in replica groups."""
        return self.header.devices

    def instructions(self) -> Iterator[Instruction]:
        """All instructions of all computations, in printed order."""
        for computation in self.computations.values():
            yield from computation.instructions

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        """All instructions by name, which is theirs alone in the whole module."""
        return {instruction.name: instruction for instruction in self.instructions()}

    @cached_property
    def num_instructions(self) -> int:
        """Number of instructions in all computations."""
        return sum(len(c.instructions) for c in self.computations.values())

    def callers_of(self, computation: Computation) -> tuple[Instruction, ...]:
        """Instructions that call ``computation``."""
        if self._callers is None:
            callers: dict[Computation, list[Instruction]] = {}
            for instruction in self.instructions():
                for callee in dict.fromkeys(instruction.called):
                    callers.setdefault(callee, []).append(instruction)
            self._callers = callers
        return tuple(self._callers.get(computation, ()))

    def caller_chain(self, computation: Computation) -> tuple[Instruction, ...]:
        """First callers from ``computation`` up to the entry, innermost first."""
        chain: list[Instruction] = []
        seen = {computation}
        while callers := self.callers_of(computation):
            chain.append(callers[0])
            computation = callers[0].computation
            if computation in seen:
                break
            seen.add(computation)
        return tuple(chain)
