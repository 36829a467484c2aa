"""What crosses to the backward pass by the flow, against what the buffers say of it."""

import pytest

from hloscope.drawing.flow import shape_at
from hloscope.drawing.step_flow import StepFlow
from hloscope.passes.residuals import Residuals
from hloscope.passes.step_parts import StepPart, part_of


def crossing(step):
    """Every array that is made forward and read backward, by the flow alone."""
    return {
        (maker, index): shape_at(maker.shape, index).bytes
        for part in (StepPart.BACKWARD, StepPart.REPLAYED)
        for node in step.of(part)
        for maker in step.flow.makers(node)
        for index in step.flow.arrays(maker, node)
        if step.parts[maker] is StepPart.FORWARD
        and maker.opcode != "parameter"
        and maker not in step.flow.carried
    }


@pytest.mark.parametrize(
    "name",
    [
        "cpu_remat_unroll",
        "gpu_attn_grad",
        "gpu_scan_remat",
        "gpu_scan_train",
        "tpu_scan_remat",
    ],
)
def test_both_count_the_same_arrays_and_bytes(session_of, fixtures_dir, name):
    session = session_of((fixtures_dir / "compiled" / "today" / f"{name}.hlo").read_text())
    found = crossing(session.get(StepFlow))
    residuals = session.get(Residuals)
    assert found
    assert len(found) == len(residuals.residuals)
    assert sum(found.values()) == residuals.total


def holds_both(fusion):
    """Whether a fusion computes for the forward and for the backward pass."""
    (body,) = fusion.called
    parts = {part_of(instruction) for instruction in (fusion, *body.instructions)}
    return {StepPart.FORWARD, StepPart.BACKWARD} <= parts


@pytest.mark.parametrize("name", ["gpu_remat_unroll", "tpu_remat_unroll"])
def test_they_differ_only_by_fusions_of_both_passes(session_of, fixtures_dir, name):
    """The flow takes a fusion as a whole, the buffers each of its arrays by itself."""
    session = session_of((fixtures_dir / "compiled" / "today" / f"{name}.hlo").read_text())
    flow = {maker for maker, _ in crossing(session.get(StepFlow))}
    buffers = {one.buffer.instruction for one in session.get(Residuals).residuals}
    assert flow & buffers
    assert flow ^ buffers
    assert all(holds_both(fusion) for fusion in flow ^ buffers)


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_where_xla_merged_repetitions_more_crosses_than_the_names_say(
    session_of, fixtures_dir, target
):
    path = fixtures_dir / "compiled" / "today" / f"{target}_remat_unroll_nocse.hlo"
    session = session_of(path.read_text())
    step = session.get(StepFlow)
    assert step.merged
    assert sum(crossing(step).values()) > session.get(Residuals).total
