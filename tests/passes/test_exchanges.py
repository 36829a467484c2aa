"""What an exchange is for: its axes, its part of the step, its leaf."""

from __future__ import annotations

import pytest

from hloscope.ir import parse_text
from hloscope.passes.exchanges import Exchanges
from hloscope.passes.step_parts import StepPart, part_of
from hloscope.pipeline.inputs import MeshAxes


@pytest.mark.parametrize(
    ("op_name", "part"),
    [
        ("jit(f)/jvp()/attn/dot_general", StepPart.FORWARD),
        ("jit(f)/transpose(jvp())/checkpoint/attn/dot_general", StepPart.BACKWARD),
        ("jit(f)/transpose(jvp())/checkpoint/rematted_computation/dot", StepPart.REPLAYED),
        ("jit(f)/transpose(jvp())/dot;jit(f)/x/rematted_computation/dot", StepPart.BACKWARD),
        ("jit(f)/jvp()/my_rematted_computation/dot", StepPart.FORWARD),
        ("jit(f)/optimizer/add", StepPart.OTHER),
        ("", StepPart.OTHER),
    ],
)
def test_the_part_of_the_step_is_read_from_whole_components_of_the_first_name(op_name, part):
    text = (
        f'HloModule m\nENTRY e {{ ROOT p = f32[] parameter(0), metadata={{op_name="{op_name}"}} }}'
    )
    assert part_of(parse_text(text).entry.root) is part


SUM = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"


def test_a_gathered_shard_is_named_by_its_leaf_and_axis(session_of):
    text = """HloModule m, num_partitions=8
ENTRY e {
 p = f32[16,8] parameter(0), metadata={op_name="state['params']['w']"}
 c = bf16[16,8] convert(p)
 t = bf16[16,8] copy(c)
 ROOT g = bf16[64,8] all-gather(t), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0},
   use_global_device_ids=true, metadata={op_name="jit(f)/jvp()/dense/dot_general"}
}"""
    (row,) = session_of(text, MeshAxes({"data": 2, "fsdp": 4})).get(Exchanges).rows
    assert row.axes == ("fsdp",)
    assert row.part is StepPart.FORWARD
    assert row.dtypes == ("bf16",)
    (bare,) = session_of(text).get(Exchanges).rows
    assert bare.axes is None


def test_a_module_that_names_its_mesh_needs_no_other(session_of):
    text = """HloModule m, num_partitions=8
ENTRY e {
 p = f32[16,8] parameter(0)
 ROOT g = f32[64,8] all-gather(p), channel_id=1, replica_groups=mesh['dp'=2,'tp'=4] {'tp'},
   dimensions={0}, use_global_device_ids=true
}"""
    (row,) = session_of(text).get(Exchanges).rows
    assert row.axes == ("tp",)


def test_a_collective_without_a_name_has_that_of_what_it_sends(session_of):
    text = f"""HloModule m, num_partitions=8
{SUM}
wrapped {{
 p = f32[16] parameter(0)
 ROOT r = f32[16] all-reduce(p), channel_id=1, replica_groups={{}}, to_apply=add
}}
ENTRY e {{
 p = f32[16] parameter(0)
 n = f32[16] negate(p), metadata={{op_name="jit(f)/transpose(jvp())/dense/dot_general"}}
 s = ((f32[16]), f32[16]) async-start(n), calls=wrapped
 ROOT d = f32[16] async-done(s), calls=wrapped
}}"""
    (row,) = session_of(text).get(Exchanges).rows
    assert row.part is StepPart.BACKWARD
    assert row.named.name == "n"


def test_every_exchange_of_a_recorded_step_has_its_part(session_of, fixtures_dir):
    text = (fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo").read_text()
    rows = session_of(text).get(Exchanges).rows
    assert len(rows) == 33
    parts = [row.part for row in rows]
    assert {part: parts.count(part) for part in set(parts)} == {
        StepPart.FORWARD: 13,
        StepPart.BACKWARD: 13,
        StepPart.REPLAYED: 7,
    }
    gathered = [row for row in rows if row.collective.kind.value == "all-gather"]
    assert all(row.leaf and row.leaf.startswith("state") for row in gathered)
