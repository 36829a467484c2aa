"""Every architecture, end to end, on every kind of chip: capture, read, audit.

The ordinary suite takes three on all of them, and on the CPU those that other tests
compile too. ``HLOSCOPE_TEST_EVERYTHING`` takes all on all.
"""

import os

import pytest
from oracles.equality import differences
from quick_compile import QUICK

import hloscope
from hloscope.capture import CaptureRequest, Source, SourceKind, capture
from hloscope.ir import parse_text, read_proto
from hloscope.models import registry
from hloscope.passes.aliasing import Aliasing
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.trip_counts import TripCounts
from hloscope.pipeline.findings import Category, Status
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.session import Session
from hloscope.subjects import ArtifactSubject

TARGETS = ("cpu", "h100", "v5e")
EVERYTHING = bool(os.environ.get("HLOSCOPE_TEST_EVERYTHING"))
ON_ALL = ("unet", "causal_transformer", "hierarchical_mmdit")
# As tests/models/test_bad_switches.py compiles them: the cache has them, or gives them to it.
QUICKLY = ("simple_dit", "ssm")
SLOW = (("unet", "v5e"), ("hierarchical_mmdit", "v5e"))
CHOSEN = [(arch, target) for arch in ON_ALL for target in TARGETS]
CHOSEN += [(arch, "cpu") for arch in QUICKLY]
if EVERYTHING:
    CHOSEN += [
        (arch, target)
        for arch in registry.names()
        for target in TARGETS
        if (arch, target) not in CHOSEN
    ]
STEPS = [
    pytest.param(*step, marks=pytest.mark.slow)
    if step in SLOW or (EVERYTHING and step[0] not in ON_ALL)
    else step
    for step in CHOSEN
]


@pytest.fixture(scope="module")
def artifact_of(capture_arch):
    """Capture an architecture's smoke step for a target."""
    done = {}

    def get(arch, target):
        if (arch, target) not in done:
            if target == "cpu" and arch in QUICKLY:
                source = Source(SourceKind.ARCH, arch)
                done[arch, target] = capture(
                    CaptureRequest(source, target=target, preset="smoke", compiler_options=QUICK)
                )
            else:
                done[arch, target] = capture_arch(arch, target)
        return done[arch, target]

    return get


def session_of(artifact):
    load_passes()
    return Session(ArtifactSubject(artifact))


@pytest.mark.parametrize(("arch", "target"), STEPS)
def test_every_state_leaf_is_aliased(artifact_of, arch, target):
    aliasing = session_of(artifact_of(arch, target)).get(Aliasing)
    assert aliasing.not_aliased == ()
    assert len(aliasing.state) > 20


@pytest.mark.parametrize(("arch", "target"), STEPS)
def test_an_audit_has_nine_verdicts_and_claims_only_what_it_looked_at(artifact_of, arch, target):
    report = hloscope.audit(ArtifactSubject(artifact_of(arch, target)))
    assert [verdict.category for verdict in report.verdicts] == list(Category)
    for verdict in report.verdicts:
        assert bool(verdict.rules) == (verdict.status is not Status.NOT_CHECKED)
    assert report.failures == ()
    assert report.trust is not None


@pytest.mark.parametrize(("arch", "target"), STEPS)
def test_what_was_compiled_reads_as_xla_reads_it(artifact_of, arch, target):
    native = pytest.importorskip("jaxlib._hlo")
    text = artifact_of(arch, target).hlo_text
    theirs = native.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    found = differences(
        parse_text(text),
        read_proto(theirs),
        not_in_header=(
            "num_partitions",
            "replica_count",
            "allow_spmd_sharding_propagation_to_parameters",
            "allow_spmd_sharding_propagation_to_output",
            "alias_passthrough_params",
        ),
    )
    assert found == []


@pytest.mark.parametrize(("arch", "target"), STEPS)
def test_every_loop_has_a_trip_count(artifact_of, arch, target):
    trips = session_of(artifact_of(arch, target)).get(TripCounts)
    assert all(trip.count is not None for trip in trips.values())


# Ragged products are dense on CPUs and GPUs, and grouped on TPUs; XLA for GPUs pads the
# 73 tokens of uvit's smoke step to 80, which is 2.7% of its products.
OTHERWISE = ("moe_transformer", "uvit")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arch", [n for n in registry.names() if n not in OTHERWISE] if EVERYTHING else ON_ALL
)
def test_products_agree_between_chips_within_two_percent(artifact_of, arch):
    counted = {
        target: session_of(artifact_of(arch, target)).get(FlopLedger).total.nominal
        for target in TARGETS
    }
    assert max(counted.values()) / min(counted.values()) < 1.02, counted


@pytest.mark.parametrize("target", TARGETS)
def test_the_float32_head_is_found_at_its_line(capture_arch, target):
    report = hloscope.audit(ArtifactSubject(capture_arch("causal_transformer", target)))
    found = [f for f in report.findings if f.code == "HS401" and "head" in (f.site.op_name or "")]
    assert [(f.site.file, bool(f.site.line)) for f in found] == [("models/next_token.py", True)]


def test_fsdp_over_four_chips_still_aliases_every_leaf(capture_arch):
    artifact = capture_arch("causal_transformer", "v5e:2x2", fsdp=4)
    session = session_of(artifact)
    assert session.get(Aliasing).not_aliased == ()
    assert artifact.module.num_partitions == 4
    assert any(leaf.sharding and "fsdp" in leaf.sharding for leaf in artifact.signature.inputs)


def test_a_saved_artifact_reports_the_same_when_loaded(capture_arch, tmp_path):
    artifact = capture_arch("causal_transformer", "h100")
    path = tmp_path / "step.hloscope"
    artifact.save(path)
    before = hloscope.audit(ArtifactSubject(artifact))
    after = hloscope.audit(str(path))
    assert after.findings == before.findings
    assert after.verdicts == before.verdicts
    assert after.trust == before.trust
