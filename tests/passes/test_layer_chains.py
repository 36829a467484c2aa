"""Layers by their products, in programs written down here."""

from __future__ import annotations

import pytest

from hloscope.ir import parse_text
from hloscope.passes.layer_chains import LayerChains
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.session import Session
from hloscope.subjects import ModuleSubject


class Program:
    """HLO text, product by product; each multiplies what the one before has put out."""

    def __init__(self) -> None:
        self.lines = ["x0 = f32[8,64] parameter(0)"]
        self.last, self.width, self.products = "x0", 64, 0

    def times(self, width: int, between: str = "tanh") -> Program:
        """Multiply by a matrix of so many columns, and let another operation follow."""
        n = self.products = self.products + 1
        self.lines += [
            f"w{n} = f32[{self.width},{width}] parameter({n})",
            f"d{n} = f32[8,{width}] dot({self.last}, w{n}), "
            "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            f"x{n} = f32[8,{width}] {between}(d{n})",
        ]
        self.last, self.width = f"x{n}", width
        return self

    def text(self, others: str = "") -> str:
        body = "\n  ".join([*self.lines, f"ROOT r = f32[8,{self.width}] negate({self.last})"])
        return f"HloModule m\n{others}\nENTRY e {{\n  {body}\n}}\n"


def chains_in(text: str) -> LayerChains:
    load_passes()
    return Session(ModuleSubject(parse_text(text), "text")).get(LayerChains)


def layers(number: int, *widths: int) -> Program:
    program = Program()
    for _ in range(number):
        for width in widths:
            program.times(width)
    return program


def test_equal_layers_one_behind_another_are_counted():
    found = chains_in(layers(6, 256, 64).text())
    assert (found.times, found.products, found.saved) == (6, 12, 10)
    assert found.share == pytest.approx(10 / 12)
    assert found.example.opcode == "dot"


def test_what_stands_between_the_products_may_differ():
    program = Program()
    for between in ("tanh", "cosine", "negate", "abs", "sine", "exponential"):
        program.times(256, between).times(64, between)
    assert chains_in(program.text()).saved == 10


def test_two_stacks_of_different_depth_are_counted_each():
    program = layers(6, 256, 64)
    program.times(128)
    for _ in range(5):
        program.times(32).times(128)
    found = chains_in(program.text())
    assert (found.times, found.saved) == (6, pytest.approx(10 + 8))


def test_a_product_more_where_a_long_skip_connection_joins_does_not_end_a_chain():
    program = layers(3, 256, 64, 512, 64, 128, 64)
    program.times(64)
    for _ in range(3):
        for width in (256, 64, 512, 64, 128, 64):
            program.times(width)
    found = chains_in(program.text())
    assert found.times == 6
    assert found.saved == pytest.approx(30)


def test_three_layers_are_no_chain():
    assert chains_in(layers(3, 256, 64).text()) == LayerChains(1, 6, 0.0, None)


def test_products_that_do_not_depend_on_each_other_are_no_chain():
    lines = ["x = f32[8,64] parameter(0)"]
    for n in range(1, 9):
        lines.append(f"w{n} = f32[64,64] parameter({n})")
        lines.append(
            f"d{n} = f32[8,64] dot(x, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        )
    lines.append(f"ROOT r = ({', '.join(['f32[8,64]'] * 8)}) tuple(d1, d2, d3, d4, d5, d6, d7, d8)")
    body = "\n  ".join(lines)
    found = chains_in(f"HloModule m\n\nENTRY e {{\n  {body}\n}}\n")
    assert (found.times, found.products, found.saved) == (1, 8, 0)


def test_equal_products_at_uneven_distances_are_no_chain():
    program = Program().times(256).times(64)
    for wide in (1, 4, 9):
        for n in range(wide):
            program.times(65 + 10 * wide + n)
        program.times(64).times(256).times(64)
    assert chains_in(program.text()).share < 0.2


LOOP = """
body{n} {{
  p{n} = (s32[], f32[8,64], f32[64,64]) parameter(0)
  i{n} = s32[] get-tuple-element(p{n}), index=0
  one{n} = s32[] constant(1)
  j{n} = s32[] add(i{n}, one{n})
  x{n} = f32[8,64] get-tuple-element(p{n}), index=1
  w{n} = f32[64,64] get-tuple-element(p{n}), index=2
  y{n} = f32[8,64] dot(x{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  z{n} = f32[8,64] dot(y{n}, w{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  ROOT t{n} = (s32[], f32[8,64], f32[64,64]) tuple(j{n}, z{n}, w{n})
}}

condition{n} {{
  q{n} = (s32[], f32[8,64], f32[64,64]) parameter(0)
  k{n} = s32[] get-tuple-element(q{n}), index=0
  end{n} = s32[] constant(3)
  ROOT less{n} = pred[] compare(k{n}, end{n}), direction=LT
}}
"""


def test_the_loops_of_equal_layers_are_equal():
    lines = ["x = f32[8,64] parameter(0)", "w = f32[64,64] parameter(1)", "i = s32[] constant(0)"]
    last = "x"
    for n in range(5):
        shapes = "(s32[], f32[8,64], f32[64,64])"
        lines += [
            f"start.{n} = {shapes} tuple(i, {last}, w)",
            f"loop.{n} = {shapes} while(start.{n}), condition=condition{n}, body=body{n}",
            f"out.{n} = f32[8,64] get-tuple-element(loop.{n}), index=1",
        ]
        last = f"out.{n}"
    body = "\n  ".join([*lines, f"ROOT r = f32[8,64] negate({last})"])
    loops = "".join(LOOP.format(n=n) for n in range(5))
    found = chains_in(f"HloModule m\n{loops}\nENTRY e {{\n  {body}\n}}\n")
    assert (found.times, found.products, found.saved) == (5, 10, pytest.approx(8))
    assert found.example.opcode == "while"


def test_a_program_without_products_has_no_layers():
    text = "HloModule m\n\nENTRY e {\n  ROOT x = f32[8] parameter(0)\n}\n"
    assert chains_in(text) == LayerChains(1, 0, 0.0, None)
    assert chains_in(text).share == 0
