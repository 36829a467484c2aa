"""The file that holds one artifact, whole and broken."""

from __future__ import annotations

import io
import json
import random
import zipfile

import pytest

from hloscope.capture.artifact import FORMAT, Artifact, LiteralFacts
from hloscope.errors import HloscopeError, InputError
from hloscope.ir.compiler_log import FullRematerialization, SlowFold
from hloscope.ir.jaxpr_count import JaxprCount, JaxprFlops, JaxprSite, UncountedPrimitive
from hloscope.ir.named_points import Crossing, Maker, NamedPoint, NamedPoints, RematPolicy
from hloscope.ir.signature import InputLeaf, OutputLeaf, Role, Signature

ARTIFACT = Artifact(
    hlo_text="HloModule m\n\nENTRY %e () -> f32[] {\n  ROOT %c = f32[] constant(1)\n}\n",
    lowered_text="HloModule m.before\n",
    signature=Signature(
        inputs=(
            InputLeaf("state['w']", Role.STATE, "bf16", (4, 8), True, 0, "P('a',)", "device"),
            InputLeaf("unused", Role.OTHER, "f32", (), None, None),
        ),
        outputs=(OutputLeaf("[0]", "bf16", (4, 8), None),),
    ),
    target="h100:8",
    device_kind="NVIDIA H100 80GB HBM3",
    devices=8,
    source="train.py:step",
    name="train",
    mesh={"fsdp": 4, "data": 2},
    versions={"jax": "0.12.0.1"},
    flags={"XLA_FLAGS": "--xla_a=1"},
    timings={"trace": 0.5, "compile": 24.25},
    xla_cost={"flops": 1e15},
    xla_cost_note="the executable's",
    xla_memory={"temp_size_in_bytes": 2**40},
    literals=(LiteralFacts("c.1", "f32", (64, 64), "splat", "nan", "00ff"),),
    jaxpr=JaxprCount(
        total=JaxprFlops(10, None, 12),
        by_kind={"matmul": JaxprFlops(10, None, 12)},
        recomputed=JaxprFlops(2, 2, 2),
        sites=(JaxprSite("matmul", "train.py", 3, True, False, 4, 3, 1, 0),),
        uncounted=(UncountedPrimitive("ffi_call", "f", 2, "f32[] -> f32[]", "why"),),
        models=("textbook",),
        notes=("a loop",),
    ),
    named_points=NamedPoints(
        (
            NamedPoint(
                "ffn_in",
                "bf16",
                (2, 8),
                "jvp(f)",
                "train.py",
                5,
                Maker("dot_general", "jvp(f)", "train.py", 4),
                (12, None),
                2,
                Crossing.KEPT,
                1,
            ),
            NamedPoint(
                "x", "f32", (), "", None, None, Maker("", "", None, None), (), 1, Crossing.LAST, 0
            ),
        ),
        (RematPolicy("mine(a; b)", ("a",), ("b",), ("c",), True, True, "pinned_host"),),
        ("ffn_in", "x"),
    ),
    slow_folds=(SlowFold("sort.1", "f32[8]", "jit(f)/sort", 2.5, ended=True),),
    full_rematerializations=(
        FullRematerialization("sin.0", "f32[8,4]", "jit(f)/sin", "{devices=[1,8]<=[8]}", "{x}"),
    ),
    persistent_cache=False,
    warnings=("odd",),
)


def test_a_saved_artifact_loads_as_it_was(tmp_path):
    ARTIFACT.save(tmp_path / "a.hloscope")
    again = Artifact.load(tmp_path / "a.hloscope")
    assert again == ARTIFACT
    assert list(again.mesh) == ["fsdp", "data"]


def test_what_is_not_known_stays_unknown(tmp_path):
    import dataclasses

    bare = dataclasses.replace(
        ARTIFACT, lowered_text=None, xla_cost=None, xla_cost_note="why not", xla_memory=None
    )
    bare.save(tmp_path / "a.hloscope")
    again = Artifact.load(tmp_path / "a.hloscope")
    assert (again.lowered_text, again.xla_cost, again.xla_memory) == (None, None, None)
    assert again.lowered is None
    assert again.xla_cost_note == "why not"


def test_the_same_artifact_is_the_same_bytes(tmp_path):
    for name in "ab":
        ARTIFACT.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_saving_leaves_nothing_else_behind(tmp_path):
    ARTIFACT.save(tmp_path / "a.hloscope")
    ARTIFACT.save(tmp_path / "a.hloscope")
    assert [path.name for path in tmp_path.iterdir()] == ["a.hloscope"]


def test_a_folder_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        ARTIFACT.save(tmp_path / "no" / "a.hloscope")


def test_the_module_is_parsed_on_demand():
    assert ARTIFACT.module.entry.root.opcode == "constant"


def test_a_file_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        Artifact.load(tmp_path / "a.hloscope")


def test_a_folder_is_no_artifact(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Artifact.load(tmp_path)


def zipped(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("_", ".", 1), text)
    return stream.getvalue()


DOCUMENT = ARTIFACT._document()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "broken"),
        (b"HloModule m", "broken"),
        (zipped(readme_txt="hello"), "not one of hloscope's"),
        (zipped(artifact_json="{", optimized_hlo=""), "broken"),
        (zipped(artifact_json="[" * 100_000, optimized_hlo=""), "broken"),
        (zipped(artifact_json="[]", optimized_hlo=""), "incomplete"),
        (zipped(artifact_json='{"format": 1}', optimized_hlo=""), "incomplete"),
        (zipped(artifact_json='{"format": "1"}', optimized_hlo=""), "format 1"),
        (zipped(artifact_json='{"format": 99}', optimized_hlo=""), "format 99"),
        (
            zipped(artifact_json=json.dumps({**DOCUMENT, "target": 3}), optimized_hlo=""),
            "incomplete",
        ),
        (
            zipped(artifact_json=json.dumps({**DOCUMENT, "timings": [1]}), optimized_hlo=""),
            "incomplete",
        ),
        (
            zipped(artifact_json=json.dumps({**DOCUMENT, "named_points": {}}), optimized_hlo=""),
            "incomplete",
        ),
        (zipped(artifact_json=json.dumps(DOCUMENT), optimized_hlo=b"\xff\xfe"), "broken"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} bytes",
)
def test_a_foreign_or_broken_file_is_refused_with_the_reason(tmp_path, data, said):
    path = tmp_path / "a.hloscope"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        Artifact.load(path)
    assert said in caught.value.message
    assert str(path) in str(caught.value)


def test_a_later_format_is_refused_by_its_number(tmp_path):
    path = tmp_path / "a.hloscope"
    later = {**DOCUMENT, "format": FORMAT + 1}
    path.write_bytes(zipped(artifact_json=json.dumps(later), optimized_hlo=""))
    with pytest.raises(InputError, match=f"format {FORMAT + 1}"):
        Artifact.load(path)


def test_an_artifact_of_before_the_jaxprs_count_loads_and_says_so(tmp_path):
    path = tmp_path / "a.hloscope"
    old = {key: value for key, value in DOCUMENT.items() if not key.startswith("jaxpr")}
    path.write_bytes(zipped(artifact_json=json.dumps({**old, "format": 1}), optimized_hlo=""))
    again = Artifact.load(path)
    assert again.jaxpr is None
    assert "capture it again" in again.jaxpr_note


def test_an_artifact_of_before_named_values_loads_and_says_so(tmp_path):
    path = tmp_path / "a.hloscope"
    old = {key: value for key, value in DOCUMENT.items() if not key.startswith("named_points")}
    path.write_bytes(zipped(artifact_json=json.dumps({**old, "format": 3}), optimized_hlo=""))
    again = Artifact.load(path)
    assert again.named_points is None
    assert "capture it again" in again.named_points_note


def test_policies_that_were_written_as_words_load_without_their_names(tmp_path):
    path = tmp_path / "a.hloscope"
    points = {"points": [], "policies": ["dots_saveable"]}
    path.write_bytes(
        zipped(artifact_json=json.dumps({**DOCUMENT, "named_points": points}), optimized_hlo="")
    )
    assert Artifact.load(path).named_points == NamedPoints(
        policies=(RematPolicy("dots_saveable"),), names=None
    )


def test_damaged_bytes_never_raise_anything_untyped(tmp_path):
    ARTIFACT.save(tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    rng = random.Random(7)
    path = tmp_path / "damaged"
    refused = 0
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        path.write_bytes(data)
        try:
            Artifact.load(path)
        except HloscopeError:
            refused += 1
    assert refused > 1000
