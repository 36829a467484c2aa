"""Which shardings a program asks for itself, by the module before optimization."""

from __future__ import annotations

import pytest

from hloscope.ir import parse_text
from hloscope.passes.requested_shardings import RequestedShardings, elements_of_shard
from hloscope.pipeline.inputs import LoweredModule

LOWERED = """HloModule jit_f
ENTRY e {
  x = f32[64,32] parameter(0)
  w = f32[32,32] parameter(1)
  y = f32[64,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(f)/dot_general"}
  c = f32[64,32] custom-call(y), custom_call_target="Sharding", sharding={devices=[8,1]<=[8]},
    metadata={op_name="jit(f)/sharding_constraint"}
  t = f32[64,32] tanh(c), metadata={op_name="jit(f)/tanh"}
  z = f32[64,32] dot(t, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(f)/second/dot_general"}
  ROOT s = f32[32,64] transpose(z), dimensions={1,0}, metadata={op_name="jit(f)/transpose"}
}"""


@pytest.fixture
def requested(session_of):
    return lambda text: session_of(text, LoweredModule(lambda: parse_text(text))).get(
        RequestedShardings
    )


def test_a_constraint_holds_for_what_makes_the_value_and_what_is_made_of_it_element_by_element(
    requested,
):
    found = requested(LOWERED)
    eighth = 64 * 32 // 8
    assert found.asks_for("jit(f)/sharding_constraint", eighth)
    assert found.asks_for("jit(f)/dot_general", eighth)
    assert found.asks_for("jit(g)/mul;jit(f)/tanh", eighth)
    # Another size is another sharding, and a product's result another value.
    assert not found.asks_for("jit(f)/tanh", 64 * 32)
    assert not found.asks_for("jit(f)/second/dot_general", eighth)


def test_a_constraint_that_leaves_a_dimension_open_asks_for_any_size(requested):
    text = LOWERED.replace(
        "sharding={devices=[8,1]<=[8]},",
        "sharding={devices=[8,1]<=[8]}, frontend_attributes={xla.sdy.sharding="
        '"#sdy.sharding_per_value<[<@mesh, [{\\"a\\"}, {?}]>]>"},',
    )
    assert requested(text).asks_for("jit(f)/tanh", 17)


@pytest.mark.parametrize(
    ("sharding", "elements"),
    [
        ("{replicated}", 60),
        ("{devices=[2,1]<=[2]}", 30),
        ("{devices=[4,1,2]<=[8] last_tile_dim_replicate}", 18),  # 3 of 10 rows, padded
        ("{maximal device=0}", None),
        ("", None),
    ],
)
def test_what_one_device_holds_is_read_from_the_sharding(sharding, elements):
    assert elements_of_shard(sharding, (10, 6)) == elements
