"""HS708: exchanges that nothing hides."""

from __future__ import annotations

import pytest

from hloscope.chips import parse_target


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
