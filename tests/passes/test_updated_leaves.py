"""Which leaf a summed gradient belongs to: the one whose new value it becomes."""

from __future__ import annotations

import pytest

from hloscope.ir import Module
from hloscope.ir.load import load_module
from hloscope.passes.collectives import Collectives
from hloscope.passes.exchanges import Exchanges
from hloscope.passes.updated_leaves import UpdatedLeaves

SUM = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
GROUPS = "channel_id=1, replica_groups={}, to_apply=add"


def leaves(session) -> dict[str, tuple[str, ...]]:
    """For each exchange by name the paths of the leaves that it updates."""
    updated = session.get(UpdatedLeaves)
    return {
        row.instruction.name: tuple(leaf.path for leaf in updated.of(row.instruction))
        for row in session.get(Collectives).rows
    }


# Momentum, and all gradients scaled by their common norm: it reaches both leaves.
CLIPPED = f"""HloModule m, num_partitions=8, input_output_alias={{
 {{0}}: (0, {{}}, may-alias), {{1}}: (1, {{}}, may-alias), {{2}}: (2, {{}}, may-alias),
 {{3}}: (3, {{}}, may-alias) }}
{SUM}
ENTRY e {{
 w = f32[8,4] parameter(0), metadata={{op_name="state['params']['w']"}}
 b = f32[8] parameter(1), metadata={{op_name="state['params']['b']"}}
 mw = f32[8,4] parameter(2), metadata={{op_name="state['mu']['w']"}}
 mb = f32[8] parameter(3), metadata={{op_name="state['mu']['b']"}}
 x = f32[8,8] parameter(4), metadata={{op_name="batch['x']"}}
 zero = f32[] constant(0)
 wide = f32[8,8] broadcast(b), dimensions={{0}}
 h = f32[8,8] add(x, wide)
 y = f32[8,4] dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 gb0 = f32[8] reduce(y, zero), dimensions={{1}}, to_apply=add
 gw = f32[8,4] all-reduce(y), {GROUPS}
 gb = f32[8] all-reduce(gb0), {GROUPS}
 sw = f32[8,4] multiply(gw, gw)
 nw = f32[] reduce(sw, zero), dimensions={{0,1}}, to_apply=add
 norm = f32[] all-reduce(nw), {GROUPS}
 nb = f32[8] broadcast(norm), dimensions={{}}
 nwide = f32[8,4] broadcast(norm), dimensions={{}}
 cw = f32[8,4] divide(gw, nwide)
 cb = f32[8] divide(gb, nb)
 mw1 = f32[8,4] add(mw, cw)
 mb1 = f32[8] add(mb, cb)
 w1 = f32[8,4] subtract(w, mw1)
 b1 = f32[8] subtract(b, mb1)
 ROOT t = (f32[8,4], f32[8], f32[8,4], f32[8]) tuple(w1, b1, mw1, mb1)
}}"""


def test_a_gradient_is_its_parameters_and_not_its_momentums_and_the_norm_is_nobodys(session_of):
    assert leaves(session_of(CLIPPED)) == {
        "gw": ("state['params']['w']",),
        "gb": ("state['params']['b']",),
        "norm": (),
    }


def test_gradients_in_one_exchange_have_a_leaf_each(session_of):
    together = (
        CLIPPED.replace(f"gw = f32[8,4] all-reduce(y), {GROUPS}", "gw = f32[8,4] copy(gw0)")
        .replace(f"gb = f32[8] all-reduce(gb0), {GROUPS}", "gb = f32[8] copy(gb1)")
        .replace(
            " sw =",
            f" both = (f32[8], f32[8,4]) all-reduce(gb0, y), {GROUPS}\n"
            " gb1 = f32[8] get-tuple-element(both), index=0\n"
            " gw0 = f32[8,4] get-tuple-element(both), index=1\n sw =",
        )
    )
    lines = together.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(" gw ="))
    moved = lines[start : start + 2]
    del lines[start : start + 2]
    at = next(n for n, line in enumerate(lines) if line.startswith(" sw ="))
    lines[at:at] = moved
    found = leaves(session_of("\n".join(lines)))
    assert found["both"] == ("state['params']['b']", "state['params']['w']")


# The backward pass of a loop over layers writes each layer's gradient into a stack.
SCANNED = f"""HloModule m, num_partitions=8, input_output_alias={{ {{0}}: (0, {{}}, may-alias) }}
{SUM}
body {{
 p = (s32[], f32[4,8,8], f32[4,8,8]) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 ws = f32[4,8,8] get-tuple-element(p), index=1
 gs = f32[4,8,8] get-tuple-element(p), index=2
 one = s32[] constant(1)
 zero = s32[] constant(0)
 next = s32[] add(i, one)
 part = f32[1,8,8] dynamic-slice(ws, i, zero, zero), dynamic_slice_sizes={{1,8,8}}
 w = f32[8,8] reshape(part)
 y = f32[8,8] dot(w, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 g = f32[1,8] reduce-scatter(y), channel_id=1, replica_groups={{}}, dimensions={{0}}, to_apply=add
 r = f32[1,1,8] reshape(g)
 up = f32[4,8,8] dynamic-update-slice(gs, r, i, zero, zero)
 ROOT t = (s32[], f32[4,8,8], f32[4,8,8]) tuple(next, ws, up)
}}
condition {{
 p = (s32[], f32[4,8,8], f32[4,8,8]) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 n = s32[] constant(4)
 ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
 w = f32[4,8,8] parameter(0), metadata={{op_name="state['layers']['w']"}}
 zero = s32[] constant(0)
 none = f32[] constant(0)
 empty = f32[4,8,8] broadcast(none), dimensions={{}}
 start = (s32[], f32[4,8,8], f32[4,8,8]) tuple(zero, w, empty)
 loop = (s32[], f32[4,8,8], f32[4,8,8]) while(start), condition=condition, body=body
 gs = f32[4,8,8] get-tuple-element(loop), index=2
 new = f32[4,8,8] subtract(w, gs)
 ROOT t = (f32[4,8,8]) tuple(new)
}}"""


def test_a_gradient_is_followed_out_of_the_loop_that_stacks_it(session_of):
    assert leaves(session_of(SCANNED)) == {"g": ("state['layers']['w']",)}


def test_every_weight_gradient_of_a_recorded_tpu_step_names_its_leaf(session_of, fixtures_dir):
    path = fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo"
    session = session_of(load_module(str(path)).module)
    rows = session.get(Exchanges).rows
    scattered = {
        leaf.path: row.collective
        for row in rows
        if row.collective.kind.value == "reduce-scatter"
        for leaf in row.updated
    }
    layer = "state['model']['scanned_layers']"
    assert set(scattered) == {
        "state['lm_head']['weight'].value",
        *(f"{layer}['mlp']['{name}_proj']['weight'].value" for name in ("up", "gate", "down")),
        *(f"{layer}['self_attn']['{name}_proj']['weight'].value" for name in "qkvo"),
    }
    # A shard of the leaf, or of one of its 32 layers, comes out of each.
    sizes = {leaf.path: leaf.dimensions for row in rows for leaf in row.updated}
    for path, collective in scattered.items():
        elements = 1
        for size in sizes[path][1:] if collective.times.nominal == 32 else sizes[path]:
            elements *= size
        assert collective.instruction.shape.num_elements == elements
    reduced = [row for row in rows if row.collective.kind.value == "all-reduce" and row.updated]
    assert [[leaf.path for leaf in row.updated] for row in reduced if len(row.updated) == 1] == [
        ["state['model']['embed_tokens']['weight'].value"]
    ]


@pytest.mark.parametrize(
    ("dump", "gradients"),
    [
        ("gpu_llama31_8b_1x8_unscheduled", 291),
        ("gpu_llama3_8b_activation_offloading_unscheduled", 12),
    ],
)
def test_every_exchange_of_a_dump_without_names_is_about_some_parameter(
    session_of, fixtures_dir, dump, gradients
):
    session = session_of(load_module(str(fixtures_dir / "hlo" / f"{dump}.hlo")).module)
    rows = session.get(Exchanges).rows
    assert all(len(row.moved + row.updated + row.sources) == 1 for row in rows)
    updated = [row for row in rows if row.updated]
    # One gradient for each of the model's weights, and each of another's size where sizes differ.
    assert len({row.updated[0].path for row in updated}) == len(updated) == gradients
    slots = {leaf.path: leaf.dimensions for row in rows for leaf in row.updated}
    entry = session.get(Module).entry
    assert len(slots) <= len(entry.parameters)
    assert all(row.collective.kind.value == "all-gather" for row in rows if row.moved)
