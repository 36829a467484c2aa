"""What crosses to the backward pass by the flow, against what the buffers say of it."""

import pytest

from hloscope.drawing.flow import shape_at
from hloscope.drawing.step_flow import StepFlow
from hloscope.passes.residuals import Residuals
from hloscope.passes.step_parts import StepPart


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
        "gpu_remat_unroll",
        "gpu_scan_remat",
        "gpu_scan_train",
        "tpu_remat_unroll",
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


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_where_xla_merged_repetitions_more_crosses_than_the_names_say(
    session_of, fixtures_dir, target
):
    path = fixtures_dir / "compiled" / "today" / f"{target}_remat_unroll_nocse.hlo"
    session = session_of(path.read_text())
    step = session.get(StepFlow)
    assert step.merged
    assert sum(crossing(step).values()) > session.get(Residuals).total
