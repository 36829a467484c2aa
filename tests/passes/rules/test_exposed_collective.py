"""HS708: exchanges that nothing hides."""

from __future__ import annotations

import pytest
from oracles.traced_devices import gpu
from oracles.xspaces import space

from hloscope.chips import parse_target
from hloscope.errors import Unavailable
from hloscope.pipeline.findings import Basis
from hloscope.traces.reading import read_trace


def recorded(fixtures_dir, name):
    return (fixtures_dir / "compiled" / "today" / f"{name}.hlo").read_text()


DATA = """
def make(devices):
    mesh = Mesh(np.array(devices), ("data",))
    everywhere, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))

    def loss(w, x):
        return (jnp.tanh(x @ w) ** 2).mean()

    def train(w, x):
        return w - 0.1 * jax.grad(loss)(w, x)

    w = shape(2048, 2048, sharding=everywhere)
    return Step(train, (w, shape({rows}, 2048, sharding=split)), donate=(0,))

step = make
"""


@pytest.mark.parametrize("target", ["h100:4", "v5e:2x2"])
def test_a_gradient_that_is_summed_at_the_end_of_a_small_step_is_exposed(found_in, target):
    (finding,) = found_in("HS708", DATA.format(rows=64), target)
    assert finding.site.file == "train.py"
    assert "all-reduce over data" in finding.message or "reduce-scatter" in finding.message
    assert finding.cost.value > 0


def test_one_that_the_step_dwarfs_is_left_alone(found_in):
    assert found_in("HS708", DATA.format(rows=1 << 20), "h100:4") == ()


def test_exchanges_that_are_waited_for_at_once_are_told(findings_of, fixtures_dir):
    text = recorded(fixtures_dir, "gpu_m_scan_syncoff")
    findings = findings_of("HS708", text, parse_target("h100").chip)
    assert findings
    assert all("waited for at once" in " ".join(finding.notes) for finding in findings)
    assert all("latency-hiding" in finding.fix for finding in findings)


def test_a_step_whose_exchanges_are_hidden_is_left_alone(findings_of, fixtures_dir):
    text = (fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo").read_text()
    assert findings_of("HS708", text, parse_target("v6e").chip) == ()


STEP = """
HloModule jit_step, is_scheduled=true, num_partitions=4

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

ENTRY main {
  p = f32[1024,1024]{1,0} parameter(0)
  dot.1 = f32[1024,1024]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT all-reduce.1 = f32[1024,1024]{1,0} all-reduce(dot.1), channel_id=1,
    replica_groups=[1,4]<=[4], use_global_device_ids=true, to_apply=add,
    metadata={op_name="jit(step)/psum" source_file="train.py" source_line=7}
}
"""


@pytest.fixture
def ran(tmp_path):
    """A trace of two devices: products and all-reduces of one step, in microseconds."""

    def trace(first, second, operation="all-reduce.1", name="ncclDevKernel_AllReduce", **more):
        planes = [
            gpu(
                number,
                {7: [("gemm", *first, "dot.1")], 8: [(name, *second, operation)]},
                **more,
            )
            for number in range(2)
        ]
        (tmp_path / "h.xplane.pb").write_bytes(space(*planes))
        return read_trace(tmp_path / "h.xplane.pb")

    return trace


def test_with_a_trace_the_time_is_measured(findings_of, ran):
    chip = parse_target("h100").chip
    (modelled,) = findings_of("HS708", STEP, chip)
    assert modelled.cost.basis is Basis.MODELLED
    # From 0 to 60 a product, from 50 to 80 the all-reduce: 20 of 80 are exposed.
    (finding,) = findings_of("HS708", STEP, chip, ran((0, 60), (50, 30)))
    assert (finding.cost.basis, finding.cost.value) == (Basis.EXACT, pytest.approx(20e-6))
    share = finding.evidence[1]
    assert (share.name, share.value) == ("share of the trace's window", pytest.approx(0.25))
    assert finding.site.line == modelled.site.line == 7
    assert finding.notes == ("measured: 40.0 us of 60.0 us in 2 runs on all devices",)


def test_what_a_run_hides_is_no_finding_whatever_the_model_says(findings_of, ran):
    chip = parse_target("h100").chip
    assert findings_of("HS708", STEP, chip, ran((0, 60), (10, 30))) == ()


def test_a_trace_needs_no_chip(findings_of, ran):
    (finding,) = findings_of("HS708", STEP, ran((0, 60), (60, 20)))
    assert finding.cost.value == pytest.approx(20e-6)
    assert "1 of 1 ran without anything computed beside" in finding.notes
    with pytest.raises(Unavailable, match="no chip given"):
        findings_of("HS708", STEP)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"module": "jit_other"}, "the trace has no exchange of jit_step, of jit_other instead"),
        ({"operation": "all-reduce.7"}, "another jit_step ran than this one"),
    ],
)
def test_a_trace_of_another_program_is_told_and_the_model_stands(findings_of, ran, other, told):
    trace = ran((0, 60), (10, 30), **other)
    (finding,) = findings_of("HS708", STEP, parse_target("h100").chip, trace)
    assert finding.cost.basis is Basis.MODELLED
    assert any(note.startswith(f"not measured: {told}") for note in finding.notes)
    with pytest.raises(Unavailable, match=told):
        findings_of("HS708", STEP, trace)


def test_devices_that_wait_for_one_of_them_are_told_so(findings_of, tmp_path):
    # Device 1 computes 50 us longer; what is sent takes 10.
    planes = [
        gpu(
            number,
            {7: [("gemm", 0, compute, "dot.1"), ("ncclAllReduce", compute, rest, "all-reduce.1")]},
        )
        for number, (compute, rest) in enumerate([(30, 60), (80, 10), (30, 60)])
    ]
    (tmp_path / "h.xplane.pb").write_bytes(space(*planes))
    (finding,) = findings_of("HS708", STEP, read_trace(tmp_path / "h.xplane.pb"))
    assert finding.notes[-1] == (
        "devices waited 100 us for the last of them to come, most of all for GPU 1"
    )
    assert finding.fix.startswith("Give all devices the same work")
