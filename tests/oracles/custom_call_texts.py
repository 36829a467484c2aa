"""A custom call over parameters of given shapes, as an instruction."""

from __future__ import annotations

from hloscope.ir import Instruction, parse_text

__all__ = ["custom_call"]


def custom_call(
    operands: str, result: str, target: str, config: str = "", extra: str = ""
) -> Instruction:
    """The root of a module that holds nothing else.

    Args:
        operands: Shapes between semicolons.
        result: Shape of the result.
        target: The custom call's target.
        config: Its backend_config, as JSON or as an MLIR dictionary.
        extra: Further attributes, with a comma before each.
    """
    shapes = operands.split("; ")
    lines = "\n".join(f"p{n} = {shape} parameter({n})" for n, shape in enumerate(shapes))
    arguments = ", ".join(f"p{n}" for n in range(len(shapes)))
    backend = f", backend_config={config}" if config else ""
    return parse_text(
        f"HloModule m\nENTRY e {{\n{lines}\nROOT r = {result} custom-call({arguments}){extra}, "
        f'custom_call_target="{target}"{backend}\n}}'
    ).entry.root
