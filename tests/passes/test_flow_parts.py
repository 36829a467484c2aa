"""Forward and backward by data flow, held against what names say."""

from __future__ import annotations

from collections import Counter

import pytest

from hloscope.ir.load import load_module
from hloscope.passes.exchanges import Exchanges
from hloscope.passes.flow_parts import FlowParts
from hloscope.passes.step_parts import StepPart
from hloscope.pipeline.session import Session
from hloscope.subjects import ArtifactSubject


def test_data_flow_and_names_agree_on_a_recorded_step(session_of, fixtures_dir):
    path = fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo"
    session = session_of(load_module(str(path)).module)
    parts = session.get(FlowParts)
    rows = [row for row in session.get(Exchanges).rows if row.moved or row.updated]
    assert len(rows) == 32
    # By data flow what is run again is part of the backward pass.
    named = {
        row.collective.instruction.name: StepPart.BACKWARD
        if row.part is StepPart.REPLAYED
        else row.part
        for row in rows
    }
    by_flow = {
        row.collective.instruction.name: parts.of(row.collective.instruction) for row in rows
    }
    # The loss is summed along with gradients in one exchange, and gives it its name.
    assert {name for name in named if named[name] is not by_flow[name]} == {"all-reduce.34"}


def test_the_same_on_a_decoder_that_is_compiled_here(capture_arch):
    session = Session(ArtifactSubject(capture_arch("causal_transformer", "cpu:8", fsdp=8)))
    parts = session.get(FlowParts)
    rows = [row for row in session.get(Exchanges).rows if row.moved or row.updated]
    assert {row.part for row in rows} == {StepPart.FORWARD, StepPart.BACKWARD}
    assert [parts.of(row.collective.instruction) for row in rows] == [row.part for row in rows]


@pytest.mark.parametrize(
    ("dump", "gathers"),
    [
        # 7 weights a layer, forward and back; the embedding and the head once each.
        ("gpu_llama31_8b_1x8_unscheduled", {"forward": 7 * 32 + 2, "backward": 7 * 32}),
        # A loop runs the layers; weights in eight bits.
        ("gpu_llama31_405b_fp8_64x8_unscheduled", {"forward": 7 + 2, "backward": 7}),
        ("gpu_llama3_8b_activation_offloading_unscheduled", {"forward": 7 + 2, "backward": 7}),
    ],
)
def test_a_dump_without_names_has_its_weights_gathered_once_each_way(
    session_of, fixtures_dir, dump, gathers
):
    session = session_of(load_module(str(fixtures_dir / "hlo" / f"{dump}.hlo")).module)
    rows = session.get(Exchanges).rows
    assert all(row.by_flow for row in rows)
    found = Counter(row.part.value for row in rows if row.collective.kind.value == "all-gather")
    assert found == gathers
    for row in rows:
        if row.updated and row.collective.payload_bytes > 4:
            assert row.part is StepPart.BACKWARD
        if row.sources and row.collective.instruction.shape.dtype == "f32":
            assert row.part is StepPart.OTHER  # norms, after the gradients


def test_one_gradient_alone_tells_nothing(session_of):
    text = """HloModule m, num_partitions=8, input_output_alias={ {}: (0, {}, may-alias) }
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
 w = f32[8,8] parameter(0)
 y = f32[8,8] dot(w, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 g = f32[8,8] all-reduce(y), channel_id=1, replica_groups={}, to_apply=add
 ROOT r = f32[8,8] subtract(w, g)
}"""
    (row,) = session_of(text).get(Exchanges).rows
    assert row.updated
    assert row.part is StepPart.OTHER
    assert not row.by_flow
