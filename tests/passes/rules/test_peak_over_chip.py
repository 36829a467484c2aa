import dataclasses

import pytest

from hloscope.chips import parse_target
from hloscope.errors import Unavailable
from hloscope.pipeline.findings import Basis, Severity


def outer(size: int) -> str:
    jax = pytest.importorskip("jax")

    def sorted_rows(x):
        return jax.numpy.sort(x[:, None] + x[None], axis=1).sum()

    return jax.jit(sorted_rows).lower(jax.ShapeDtypeStruct((size,), "float32")).compile().as_text()


def test_a_program_that_needs_more_than_the_chip_has_is_found(findings_of):
    chip = parse_target("v5e").chip
    (finding,) = findings_of("HS901", outer(70_000), chip)  # 4 x 70,000^2 = 18.3 GiB
    peak = next(q for q in finding.evidence if q.name == "peak")
    assert peak.value >= 4 * 70_000**2
    assert peak.basis is Basis.MODELLED
    assert finding.cost.value == peak.value - chip.memory_bytes
    assert finding.severity is Severity.ERROR
    assert "v5e" in finding.message


def test_a_program_that_fits_is_left_alone(findings_of):
    assert findings_of("HS901", outer(70_000), parse_target("h100").chip) == ()
    assert findings_of("HS901", outer(1_000), parse_target("v5e").chip) == ()


def test_a_chip_whose_memory_is_unknown_is_said_to_be(findings_of):
    chip = dataclasses.replace(parse_target("v5e").chip, memory_bytes=None)
    with pytest.raises(Unavailable, match="memory of v5e"):
        findings_of("HS901", outer(8), chip)


def test_without_a_chip_or_a_schedule_nothing_is_claimed(findings_of):
    with pytest.raises(Unavailable, match="chip"):
        findings_of("HS901", outer(8))
    unscheduled = "HloModule m\nENTRY e {\n ROOT p = f32[8] parameter(0)\n}"
    with pytest.raises(Unavailable, match="not scheduled"):
        findings_of("HS901", unscheduled, parse_target("v5e").chip)
