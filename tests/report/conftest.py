import pytest

from hloscope.pipeline.findings import (
    Basis,
    Category,
    Column,
    Finding,
    Quantity,
    Report,
    Severity,
    Site,
    Status,
    Table,
    Trust,
    Unit,
    Verdict,
)

SCOPE = "jit(train_step)/transpose(jvp(UNet))/down_blocks_1/attention/" + "x" * 60 + "/dot_general"


def verdict(category):
    if category is Category.BAKED_CONSTANTS:
        return Verdict(category, Status.FOUND, "", ("HS301",))
    if category is Category.SHARDING:
        return Verdict(category, Status.NONE_FOUND, "HS702 not checked: no trace given", ("HS701",))
    return Verdict(category, Status.NOT_CHECKED, "no rule for this yet")


@pytest.fixture
def finding():
    return Finding(
        "HS301",
        "large-constant",
        Category.BAKED_CONSTANTS,
        Severity.WARNING,
        "A literal of real data is baked into the executable.",
        Site("main.7", "constant.3", SCOPE, "train.py", 41, "state['params']['table']"),
        (
            Quantity("size", 12_582_912, Unit.BYTES),
            Quantity("time", 0.0125, Unit.SECONDS, Basis.MODELLED, "roofline"),
            Quantity("copies", None, Unit.COUNT, Basis.UNKNOWN),
        ),
        Quantity("size", 12_582_912, Unit.BYTES),
        "Pass it as an argument of the step.",
        ("it is no splat",),
    )


@pytest.fixture
def report(finding):
    return Report(
        "audit",
        "train.py:step",
        {"target": "h100", "compile": Quantity("compile", 24.06, Unit.SECONDS)},
        tuple(verdict(category) for category in Category),
        (finding,),
        (
            Table(
                "kinds",
                "FLOPs by kind",
                (Column("kind"), Column("flops", Unit.FLOPS)),
                (("dot", Quantity("flops", 3_100_000_000, Unit.FLOPS)), ("convolution", "none")),
                "fusions are counted by what they hold",
            ),
        ),
        Trust(31_855, 14, 12, 3, 0, ("2 custom calls of unknown cost: my_kernel",)),
        "1 warning in 1 of 2 classes checked; 7 not checked.",
        None,
        ("constants of under 1 MiB are not listed",),
        (),
    )
