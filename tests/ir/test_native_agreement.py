"""The text parser against XLA's own, on recorded, compiled and random programs.

XLA's parser reads the text and hands back a protobuf, which our protobuf
reader turns into a module; the text parser reads the same text. (That the
protobuf reader is right is held against XLA's printer elsewhere.)
"""

from pathlib import Path

import pytest
from oracles.equality import differences
from oracles.random_programs import random_program

from hloscope.ir import parse_text, read_proto

native = pytest.importorskip("jaxlib._hlo", reason="XLA's own parser is the oracle")

FOLDER = Path(__file__).parents[3] / "shared" / "fixtures"
# XLA's parser aborts the process on the mutated files; the rest is no single module.
BAD = ("MUTATED", "NOT_HLO", "TRUNCATED", "MULTI", "BROKEN")
# Written by hand: XLA gives new names to instructions whose names it meets again in
# another computation, fills in layouts, and keeps its own order.
HANDWRITTEN = (
    "fp8_gemm_loop",
    "while_with_known_trip_count",
    "xla_test_gpu_copy_insertion_test_L248",
    "xla_test_hlo_parser_test_L8301",
    "xla_test_triton_gemm_fusion_test_L2272",
    "xla_test_while_loop_unroller_test_L897",
)
# Its stack frames are printed in a way that today's XLA takes for broken and drops.
FRAMES_LOST = ("tpu_v6e8_llama3_8b_train_step",)
TEXTS = sorted(
    path.relative_to(FOLDER).as_posix()
    for path in FOLDER.rglob("*.hlo")
    if not path.name.startswith(BAD) and path.stem not in HANDWRITTEN + FRAMES_LOST
)
NOT_IN_PROTO = (
    "num_partitions",
    "replica_count",
    "allow_spmd_sharding_propagation_to_parameters",
    "allow_spmd_sharding_propagation_to_output",
    "alias_passthrough_params",
    "entry_computation_layout",  # XLA writes one where the text has none
)


def as_printed(key, text):
    """Percent signs and quotes that older printers left out, and a default that 0.10 drops."""
    if (key, text) == ("has_dynamic_root", "false"):
        return None
    return text.replace("%", "").strip('"')


def native_reading(text):
    try:
        module = native.hlo_module_from_text(text)
    except Exception as error:
        pytest.skip(f"this jaxlib refuses the text: {str(error).splitlines()[0][:80]}")
    return read_proto(module.as_serialized_hlo_module_proto())


def disagreements(text):
    theirs = native_reading(text)
    ours = parse_text(text)
    found = differences(ours, theirs, not_in_header=NOT_IN_PROTO, normal=as_printed, limit=50)
    without_layout = ours.header.entry_layout is None
    return [
        sentence
        for sentence in found
        # XLA drops the tiling of the context word in the results of host sends and receives.
        if not ("(send)" in sentence or "(recv)" in sentence)
        if not (without_layout and sentence.startswith("header entry_layout"))
        # A computation that is not scheduled has no order to keep.
        if ours.is_scheduled or not sentence.endswith("in their order")
    ]


@pytest.mark.parametrize("name", TEXTS)
def test_a_recorded_module_reads_as_xla_reads_it(fixtures_dir, name):
    assert disagreements((fixtures_dir / name).read_text()) == []


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_random_programs_read_as_xla_reads_them(block):
    import jax

    for seed in range(block * 25, block * 25 + 25):
        function, arguments, donated = random_program(seed)
        jitted = jax.jit(function, donate_argnums=donated)
        lowered = jitted.lower(*arguments)
        assert disagreements(lowered.compile().as_text()) == [], seed
        assert disagreements(lowered.compiler_ir("hlo").as_hlo_text()) == [], seed
