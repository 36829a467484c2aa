"""What ``tensor`` and ``sequence`` make a layer send, against the textbook, by hand."""

from __future__ import annotations

import pytest

from hloscope.passes.aliasing import Aliasing
from hloscope.passes.collectives import CollectiveKind
from hloscope.passes.exchanges import Exchanges
from hloscope.passes.reshards import Reshards
from hloscope.passes.step_parts import StepPart
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.session import Session
from hloscope.subjects import ArtifactSubject

# ``causal_transformer`` at ``smoke``.
LAYERS, BATCH, TOKENS, WIDTH = 2, 8, 32, 64
BFLOAT16, FLOAT32 = 2, 4


@pytest.fixture
def exchanged(capture_arch):
    """The exchanges of a sound program, each along axes of the mesh."""

    def get(target: str, **mesh: int):
        load_passes()
        artifact = capture_arch("causal_transformer", target, **mesh)
        assert artifact.full_rematerializations == ()
        session = Session(ArtifactSubject(artifact))
        assert session.get(Aliasing).not_aliased == ()
        assert session.get(Reshards).rows == []
        rows = session.get(Exchanges).rows
        assert all(row.axes for row in rows)
        return rows

    return get


def sent(rows, axis, kind, part, within=""):
    """What one device sends of that kind in operations whose name holds ``within``."""
    return [
        row.collective.wire_bytes
        for row in rows
        if (row.axes, row.collective.kind, row.part) == ((axis,), kind, part)
        and within in row.named.op_name
    ]


@pytest.mark.parametrize(
    ("target", "mesh"),
    [
        ("h100:8", {"fsdp": 2, "tensor": 4}),
        ("v5e:2x4", {"data": 2, "sequence": 2, "tensor": 2}),
    ],
)
def test_a_layer_sums_its_tokens_over_tensor_twice_each_way(exchanged, target, mesh):
    rows = exchanged(target, **mesh)
    devices, others = mesh["tensor"], 8 // mesh["tensor"]
    # A sum behind attention and one behind the MLP, of what the device has of the tokens:
    # 2 S (n-1)/n by the ring.
    once = 2 * (BATCH * TOKENS * WIDTH * BFLOAT16 // others) * (devices - 1) // devices
    for part in (StepPart.FORWARD, StepPart.BACKWARD):
        for layer in range(LAYERS):
            sums = sent(rows, "tensor", CollectiveKind.ALL_REDUCE, part, f"layer_{layer}")
            assert sums == [once, once]
    # The words are split: what a device does not have of the embedding is zero.
    assert sent(rows, "tensor", CollectiveKind.ALL_REDUCE, StepPart.FORWARD, "embed") == [once]
    kinds = {row.collective.kind for row in rows if row.axes == ("tensor",)}
    assert kinds == {CollectiveKind.ALL_REDUCE}


def test_a_layer_gathers_its_keys_and_values_over_sequence_and_scatters_their_gradients(exchanged):
    rows = exchanged("h100:8", data=2, sequence=4)
    # S (n-1)/n each, of the half of the batch that a device has.
    each = (BATCH // 2) * TOKENS * WIDTH * 3 // 4
    for layer in range(LAYERS):
        scope = f"layer_{layer}"
        gathered = sent(rows, "sequence", CollectiveKind.ALL_GATHER, StepPart.FORWARD, scope)
        assert sum(gathered) == 2 * each * BFLOAT16
        back = sent(rows, "sequence", CollectiveKind.REDUCE_SCATTER, StepPart.BACKWARD, scope)
        # Logits are float32, and so is the gradient of the keys before it is rounded.
        assert sorted(back) == [each * BFLOAT16, each * FLOAT32]
    # Each device has made the gradients of all parameters of its own tokens.
    sums = [row for row in rows if row.updated]
    assert {row.axes for row in sums} == {("data", "sequence")}
    assert {row.collective.kind for row in sums} == {CollectiveKind.ALL_REDUCE}
