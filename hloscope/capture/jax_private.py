"""Everything that hloscope reads through JAX's private interfaces.

Tried on JAX 0.10.2 (Python 3.11) and 0.12.0.1 (Python 3.13). Each function
says what it reads and answers ``None`` (or a reason) where a version does not
have it, so that a JAX that moved something costs a fact and not the capture.
"""

from __future__ import annotations

import contextlib
import functools
import re
from dataclasses import dataclass
from typing import Any

import jax

from hloscope.ir.metadata import SourceLocation, users_frame

__all__ = [
    "EntryNumbers",
    "argument_names",
    "called_by_user",
    "cost_analysis_on_cpu",
    "entry_numbers",
    "hide_frames_under",
    "hoisted_constants",
    "is_saveable",
    "known_primitives",
    "live_part",
    "module_text",
    "offload_destination",
    "optimized_module",
    "place_of",
    "policy_parts",
    "scan_counts",
    "scope_of",
    "unwrapped",
]


@dataclass(frozen=True, slots=True)
class EntryNumbers:
    """How flattened arguments and results are numbered in the entry computation.

    Attributes:
        parameters: For each flattened argument its parameter number, or
            ``None`` where jit dropped it.
        first_result: Position of the step's first result leaf; ordering tokens
            of effects come before it.
    """

    parameters: tuple[int | None, ...]
    first_result: int


def hide_frames_under(folder: str) -> None:
    """Leave the frames of files whose names begin so out of the HLO's source locations.

    Uses ``jax._src.source_info_util.register_exclusion``; without it the frames
    stay, which costs clarity and nothing else.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import source_info_util

        source_info_util.register_exclusion(folder)


def unwrapped(stage: Any) -> Any:
    """JAX's own stage inside one of flax's wrappers (``nnx.jit`` makes such)."""
    for attribute in ("traced", "lowered", "compiled"):
        inner = getattr(stage, attribute, None)
        if inner is not None and hasattr(inner, "in_tree"):
            return inner
    return stage


def argument_names(lowered: Any, count: int) -> list[str] | None:
    """The name of each flattened argument, as JAX spells it in ``op_name``.

    Reads the debug info that ``lower`` keeps in its ``compile_args``.

    Args:
        lowered: A ``jax.stages.Lowered``.
        count: How many flattened arguments there are, dropped ones included.
    """
    try:
        names = lowered._lowering.compile_args["all_args_info"].debug_info.arg_names
    except (AttributeError, KeyError, TypeError):
        return None
    if names is None or len(names) < count or any(n is None for n in names[-count:]):
        return None
    # Constants that JAX hoists into arguments come first.
    return [str(name) for name in names[len(names) - count :]]


def entry_numbers(lowered: Any, count: int) -> EntryNumbers | None:
    """Which flattened argument became which entry parameter.

    The entry computation takes the tokens of ordered effects, then the
    constants that JAX hoisted, then the arguments that jit kept. Reads the
    lowering's ``const_args`` and, of its ``compile_args``, ``kept_var_idx`` and
    ``ordered_effects``.

    Args:
        lowered: A ``jax.stages.Lowered``.
        count: How many flattened arguments there are, dropped ones included.
    """
    try:
        kept = sorted(lowered._lowering.compile_args["kept_var_idx"])
        tokens = len(lowered._lowering.compile_args["ordered_effects"])
        hoisted = len(getattr(lowered._lowering, "const_args", ()))
    except (AttributeError, KeyError, TypeError):
        return None
    parameters: list[int | None] = [None] * count
    for position, index in enumerate(kept):
        # Hoisted constants count as the first of the flattened arguments.
        if 0 <= index - hoisted < count:
            parameters[index - hoisted] = tokens + position
    return EntryNumbers(tuple(parameters), first_result=tokens)


def hoisted_constants(lowered: Any) -> list[tuple[Any, int]]:
    """The constants that JAX hoisted into arguments, each with its parameter number.

    Reads what :func:`entry_numbers` reads; empty where a version does not have it.

    Args:
        lowered: A ``jax.stages.Lowered``.
    """
    try:
        kept = sorted(lowered._lowering.compile_args["kept_var_idx"])
        tokens = len(lowered._lowering.compile_args["ordered_effects"])
        constants = list(getattr(lowered._lowering, "const_args", ()))
    except (AttributeError, KeyError, TypeError):
        return []
    return [
        (constants[index], tokens + position)
        for position, index in enumerate(kept)
        if index < len(constants)
    ]


def optimized_module(compiled: Any) -> Any | None:
    """The compiled ``HloModule`` object of jaxlib.

    Reads ``_executable.xla_executable``; an executable of several modules
    gives ``None``.
    """
    try:
        modules = compiled._executable.xla_executable.hlo_modules()
    except (AttributeError, NotImplementedError, jax.errors.JaxRuntimeError):
        return None
    return modules[0] if len(modules) == 1 else None


def module_text(lowered: Any) -> str:
    """The module before optimization as text, with metadata and small constants only.

    ``Lowered.as_text("hlo")`` prints every constant in full and leaves out
    what the passes need, so this asks jaxlib for XLA's own long form.
    """
    from jaxlib import _hlo  # type: ignore[attr-defined]

    options = _hlo.HloPrintOptions()
    options.print_large_constants = False
    options.print_metadata = True
    module = lowered.compiler_ir("hlo").as_hlo_module()
    return str(module.to_string(options))


def cost_analysis_on_cpu(module: Any) -> dict[str, float]:
    """XLA's generic cost analysis of any module, run by the CPU client.

    A GPU executable without a GPU has no cost analysis of its own.
    """
    from jaxlib import _jax

    client = jax.devices("cpu")[0].client
    return dict(_jax.hlo_module_cost_analysis(client, module))


@functools.cache
def known_primitives() -> frozenset[str]:
    """Names of the primitives in JAX's public list, ``jax.extend.core.primitives``."""
    from jax.extend.core import primitives

    members = (getattr(primitives, name) for name in dir(primitives) if name.endswith("_p"))
    return frozenset(str(member.name) for member in members)


def scope_of(equation: Any) -> str:
    """The name stack of an equation, relative to its jaxpr; empty where there is none.

    Reads ``source_info.name_stack``.
    """
    return str(getattr(getattr(equation, "source_info", None), "name_stack", ""))


def place_of(equation: Any) -> tuple[str, int] | None:
    """File and line of the user's code that an equation comes from.

    The frame is the one that an instruction's location names, out of those that
    lowering writes into the HLO, and the file is named as lowering names it.
    Reads ``source_info.traceback`` with ``jax._src.source_info_util.user_frames``.
    """
    try:
        from jax._src import source_info_util

        frames = [
            SourceLocation(_named_as_lowering_does(frame.file_name), frame.start_line)
            for frame in source_info_util.user_frames(equation.source_info.traceback)
        ]
    except (ImportError, AttributeError, TypeError):
        return None
    frame = users_frame(frames)
    return None if frame is None else (frame.file, frame.line)


def _named_as_lowering_does(file: str) -> str:
    pattern = getattr(jax.config, "jax_hlo_source_file_canonicalization_regex", None)
    return re.sub(pattern, "", file) if pattern else file


def called_by_user(equation: Any) -> str:
    """Name of the function of JAX's that the user's code called to make an equation.

    ``astype`` for ``x.astype(...)``, ``_operator_mul`` for ``x * y``; wrappers
    that only hand a call on are left out. Empty where no frame of the user's is
    kept, as inside jitted functions of JAX's own. Reads
    ``source_info.traceback`` with ``jax._src.source_info_util.is_user_filename``.
    """
    try:
        from jax._src import source_info_util

        traceback = equation.source_info.traceback
        codes, _ = traceback.raw_frames()
        called = ""
        for code in codes:
            if source_info_util.is_user_filename(code.co_filename):
                return called
            if "_forward_" not in code.co_qualname:
                called = code.co_name
    except (ImportError, AttributeError, TypeError):
        pass
    return ""


def scan_counts(equation: Any) -> tuple[int, int]:
    """How many operands of a scan are constants, and how many it carries; these come first.

    Reads the parameters ``num_consts`` and ``num_carry``, in newer versions the
    parts of ``ft_in``.

    Raises:
        KeyError: This version of JAX keeps them elsewhere.
    """
    params = equation.params
    if "num_carry" in params:
        return int(params["num_consts"]), int(params["num_carry"])
    consts, carried, _ = params["ft_in"].unpack()
    return len(consts), len(carried)


def live_part(jaxpr: Any) -> Any | None:
    """A jaxpr without the equations that no result needs.

    Uses ``dce_jaxpr`` of ``jax.interpreters.partial_eval``.
    """
    try:
        from jax.interpreters.partial_eval import dce_jaxpr

        alive, _ = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)
    except (ImportError, AttributeError, TypeError):
        return None
    return alive


def policy_parts(policy: Any, *, constants: bool = False) -> tuple[str, list[Any]]:
    """What made a remat policy, by name, and what the policy holds.

    JAX's policies are functions that close over their names, in 0.10 some are
    frozen dataclasses; a user's may be a partial, or have its names in its code.
    Reads closures and fields.

    Args:
        policy: What ``jax.checkpoint`` was given.
        constants: Whether what stands in the function's code counts as held.
    """
    if isinstance(policy, functools.partial):
        kind, held = policy_parts(policy.func, constants=constants)
        return kind, [*held, *policy.args, *policy.keywords.values()]
    name = getattr(policy, "__qualname__", None)
    if name is None:
        return type(policy).__name__, list(getattr(policy, "__dict__", {}).values())
    kind = str(name).partition(".")[0]
    cells = getattr(policy, "__closure__", None) or ()
    held = [cell.cell_contents for cell in cells if _is_filled(cell)]
    if constants:
        held += getattr(getattr(policy, "__code__", None), "co_consts", ())
    return kind, held


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def offload_destination(said: Any) -> str | None:
    """The memory that a policy's answer offloads to; ``None`` where it offloads nothing.

    Reads ``dst`` of ``jax._src.interpreters.partial_eval.Offloadable``.
    """
    destination = getattr(said, "dst", None)
    return None if destination is None else str(destination)


def is_saveable(said: Any) -> bool:
    """Whether a policy's answer keeps a value: true, or ``Saveable``, told by its type's name."""
    return said is True or type(said).__name__ == "SaveableType"
