"""HS705: state that devices hold alike though they split the batch."""

from __future__ import annotations

import pytest

from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits

# Adam-like state of one weight; nothing is allocated, so it may be as large as a real one.
STATE = """
def make(param, moment, batch, sizes=(8,), names=("data",), n=16384):
    def build(devices):
        mesh = Mesh(np.array(devices).reshape(sizes), names)

        def array(spec, *dims):
            return shape(*dims, sharding=NamedSharding(mesh, spec))

        weights = lambda spec: {"w": array(spec, n, n), "b": array(P(), n)}
        state = {"params": weights(param), "mu": weights(moment)}

        def step(state, batch):
            loss = lambda p: ((batch @ p["w"] + p["b"]) ** 2).mean()
            grads = jax.grad(loss)(state["params"])
            mu = jax.tree.map(lambda m, g: 0.9 * m + g, state["mu"], grads)
            return {"params": jax.tree.map(lambda p, m: p - m, state["params"], mu), "mu": mu}

        return Step(step, (state, array(batch, 64, n)), donate=(0,))

    return build
"""
WEIGHT = 4 * 16384**2
REPLICATED = STATE + "step = make(P(), P(), P('data'))"


@pytest.mark.parametrize("target", ["cpu:8", "v5e:2x4"])
def test_data_parallel_training_holds_a_copy_of_everything_on_each_device(found_in, target):
    (finding,) = found_in("HS705", REPLICATED, target)
    held, sharded, freed, share, copies = (one.value for one in finding.evidence)
    assert (held, sharded, freed) == (2 * WEIGHT, 2 * WEIGHT // 8, 2 * WEIGHT * 7 // 8)
    assert copies == 8
    assert "mesh axis data" in finding.message
    assert [note.partition(":")[0] for note in finding.notes] == [
        "state['mu']['w']",
        "state['params']['w']",
    ]
    if target == "cpu:8":  # of a CPU nobody knows whether memory is short
        assert finding.severity is Severity.NOTE
        assert share == pytest.approx(7 / 8, rel=1e-3)
    else:
        assert finding.severity is Severity.WARNING
        assert share == freed / 16_911_433_728


@pytest.mark.parametrize(
    ("call", "target"),
    [
        ("make(P('data'), P('data'), P('data'))", "cpu:8"),
        # A batch that every device sees whole is not split by the axis.
        ("make(P(None, 'model'), P(None, 'model'), P(), names=('model',))", "cpu:8"),
        ("make(P(), P(), P())", "cpu:8"),
        # Copies that are small, or small beside the chip's memory.
        ("make(P(), P(), P('data'), n=4096)", "cpu:8"),
        ("make(P(), P(), P('data'))", "h100:8"),
        # No dimension can be split by 8.
        ("make(P(), P(), P('data'), n=16380)", "cpu:8"),
    ],
)
def test_state_that_is_sharded_small_or_cannot_be_sharded_is_left_alone(found_in, call, target):
    assert found_in("HS705", f"{STATE}step = {call}", target) == ()


def test_one_device_has_nobody_to_share_with(found_in):
    code = f"{STATE}step = make(P(), P(), P('data'), sizes=(1,))"
    assert found_in("HS705", code, "cpu", Limits(state_share=0, replicated_bytes=0)) == ()


def test_moments_that_are_sharded_already_are_not_counted(found_in):
    code = f"{STATE}step = make(P(), P('data'), P('data'))"
    (finding,) = found_in("HS705", code, "cpu:8")
    assert finding.evidence[0].value == WEIGHT
    assert finding.site.leaf == "state['params']['w']"


def test_a_state_that_is_sharded_over_one_of_two_axes_is_no_more_than_a_note(found_in):
    code = (
        f"{STATE}step = make(P('fsdp'), P('fsdp'), P(('data', 'fsdp')), (2, 4), ('data', 'fsdp'))"
    )
    (finding,) = found_in("HS705", code, "v5e:2x4", Limits(state_share=0.01))
    assert finding.severity is Severity.NOTE
    assert [one.value for one in finding.evidence[:2]] == [WEIGHT // 2, WEIGHT // 4]
    assert "mesh axis data," in finding.message


def test_a_dump_tells_it_by_the_shardings_that_it_prints(captured, told):
    session = captured(REPLICATED, "cpu:8")
    (finding,) = told("HS705", session, dump=True)
    assert finding.evidence[2].value == 2 * WEIGHT * 7 // 8
    assert "devices" in finding.message
