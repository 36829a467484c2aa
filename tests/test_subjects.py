import dataclasses

import pytest

from hloscope.api import audit, check, flops, load
from hloscope.capture.artifact import Artifact, LiteralFacts
from hloscope.chips import Chip, Target
from hloscope.errors import Unavailable, UsageError
from hloscope.ir import InputLeaf, Module, OutputLeaf, Role, Signature
from hloscope.pipeline.findings import Basis, Category, Status
from hloscope.pipeline.inputs import KnownLiterals, LoweredModule, XlaCost, XlaMemory
from hloscope.subjects import ArtifactSubject, ModuleSubject

TEXT = """HloModule jit_step, input_output_alias={ {}: (0, {}, may-alias) }

ENTRY main {
  w = f32[1024,512] parameter(0)
  table = f32[1024,512] constant({...})
  call = f32[1024,512] custom-call(w), custom_call_target="my_kernel"
  ROOT r = f32[1024,512] add(call, table)
}
"""


@pytest.fixture
def artifact():
    leaf = InputLeaf("w", Role.STATE, "f32", (1024, 512), True, 0)
    return Artifact(
        hlo_text=TEXT,
        lowered_text=None,
        signature=Signature((leaf,), (OutputLeaf("", "f32", (1024, 512), 0),)),
        target="h100:8",
        device_kind="NVIDIA H100 80GB HBM3",
        devices=8,
        source="train.py:step",
        name="step",
        mesh={"data": 2, "fsdp": 4},
        versions={"jax": "0.10.2", "jaxlib": "0.10.2", "flax": "0.12"},
        flags={"xla_flag": "True"},
        timings={"trace": 0.5, "lower": 0.25, "compile": 24.06},
        xla_cost={"flops": 2_000.0},
        xla_cost_note="the generic analysis",
        literals=(LiteralFacts("table", "f32", (1024, 512), "data", None, "d1"),),
    )


def test_an_artifact_brings_its_parts_by_type(artifact):
    inputs = ArtifactSubject(artifact).inputs()
    assert inputs[Module].name == "jit_step"
    assert inputs[Signature] is artifact.signature
    assert inputs[Target].devices == 8
    assert inputs[Chip].name == "h100"
    assert inputs[XlaCost].flops == 2_000.0
    assert inputs[KnownLiterals].by_name["table"].kind == "data"
    assert isinstance(inputs[XlaMemory], Unavailable)


def test_the_module_before_optimization_comes_along_where_it_is_known(artifact):
    assert isinstance(ArtifactSubject(artifact).inputs()[LoweredModule], Unavailable)
    text = TEXT.replace("jit_step", "before")
    lowered = dataclasses.replace(artifact, lowered_text=text)
    assert ArtifactSubject(lowered).inputs()[LoweredModule].module.name == "before"
    broken = dataclasses.replace(artifact, lowered_text="HloModule x\n{")
    with pytest.raises(Unavailable, match="before optimization"):
        _ = ArtifactSubject(broken).inputs()[LoweredModule].module


def test_the_head_of_the_report_tells_target_mesh_versions_and_each_phase(artifact):
    header = ArtifactSubject(artifact).header()
    assert header["target"] == "h100:8 (NVIDIA H100 80GB HBM3)"
    assert header["devices"].value == 8
    assert header["mesh"] == "data=2, fsdp=4"
    assert header["flags"] == "xla_flag=True"
    assert header["versions"] == "jax 0.10.2, jaxlib 0.10.2"
    assert [header[phase].value for phase in ("trace", "lower", "compile")] == [0.5, 0.25, 24.06]
    assert header["instructions"].value == 4
    assert header["handed to XLA"].basis is Basis.UNKNOWN
    assert "autotuned" in header["caveat"]
    assert "cache" not in header
    cached = dataclasses.replace(artifact, cached=True)
    assert "cache" in ArtifactSubject(cached).header()


def test_the_size_of_the_module_before_optimization_is_told_without_reading_it(artifact):
    text = TEXT.replace(
        "  call = f32[1024,512] custom-call", "  ROOT %c.1 = f32[1024,512] custom-call"
    )
    lowered = dataclasses.replace(artifact, lowered_text=text + "\nbroken {")
    assert ArtifactSubject(lowered).header()["handed to XLA"].value == 4
    dump = ModuleSubject(artifact.module, "dump")
    assert dump.header()["handed to XLA"].value is None
    beside = ModuleSubject(artifact.module, "dump", read_lowered=lambda: artifact.module)
    assert beside.header()["handed to XLA"].value == 4


def test_an_artifact_file_is_audited_as_what_was_captured(artifact, tmp_path):
    path = tmp_path / "step.hloscope"
    artifact.save(path)
    report = audit(str(path))
    assert report.subject == "train.py:step"
    baked = next(v for v in report.verdicts if v.category is Category.BAKED_CONSTANTS)
    assert baked.status is Status.FOUND
    assert report.findings[0].cost.value == 1024 * 512 * 4
    assert check("donation", path).passed is True
    with pytest.raises(UsageError, match="--target does not apply"):
        load(path, target="cpu")
    with pytest.raises(UsageError, match="--module does not apply"):
        load(path, module="jit_step")


def test_calls_that_could_not_be_counted_are_listed_and_never_zero(artifact):
    report = flops(ArtifactSubject(artifact))
    tables = {table.name: table for table in report.tables}
    unknown = tables["unknown"]
    (_, ours, _), (_, theirs, ratio), (_, jaxpr, _) = tables["comparison"].rows
    assert (ours.value, ours.basis) == (None, Basis.UNKNOWN)
    assert theirs.value == 2_000.0
    assert (ratio.value, ratio.basis) == (None, Basis.UNKNOWN)
    assert jaxpr.value is None
    assert any("no jaxpr's count" in note for note in report.notes)
    assert [row[0] for row in unknown.rows] == ["my_kernel"]
    assert "unknown" in report.summary
    assert "Not counted: 1 custom call." in report.summary


@pytest.mark.parametrize("cost", [None, {"bytes accessed": 1.0}, {"flops": -1.0}])
def test_an_absent_count_of_xla_is_unknown_rather_than_zero(artifact, cost):
    report = flops(ArtifactSubject(dataclasses.replace(artifact, xla_cost=cost)))
    assert report.tables[0].rows[1][1].basis is Basis.UNKNOWN
