"""What XLA says on standard error while it compiles."""

from __future__ import annotations

import dataclasses

import pytest

from hloscope.ir.compiler_log import (
    FullRematerialization,
    SlowFold,
    full_rematerializations_from_document,
    read_full_rematerializations,
    read_slow_folds,
    slow_folds_from_document,
)

# As jaxlib 0.10 prints it, its advice cut short.
WARNED = """E1129 18:36:04.700902 10559 slow_operation_alarm.cc:73] Constant folding an \
instruction is taking > 1s:

  %reduce_window_sum.7 = f32[1024,1024]{1,0} reduce-window(%constant.2, %constant.3), \
window={size=256x1 pad=127_128x0_0}, to_apply=%region_0.1, \
metadata={op_name="jit(step5)/reduce_window_sum" stack_frame_id=2}

This isn't necessarily a bug; constant-folding is inherently a trade-off.
"""
ENDED = WARNED.replace("cc:73] ", "cc:140] The operation took 1m31.25s\n")
NAMELESS = WARNED.partition(", metadata")[0].replace("reduce_window_sum.7", "pad") + "\n"
FOLD = SlowFold(
    "reduce_window_sum.7", "f32[1024,1024]", "jit(step5)/reduce_window_sum", 1.0, ended=False
)


def test_a_warning_names_the_instruction_and_how_long_it_ran_so_far():
    assert read_slow_folds(WARNED) == (FOLD,)


def test_one_instruction_is_told_once_with_the_time_that_it_took_in_all():
    assert read_slow_folds(WARNED + ENDED) == (
        dataclasses.replace(FOLD, seconds=91.25, ended=True),
    )


def test_an_instruction_without_metadata_is_known_by_its_name():
    _, other = read_slow_folds(WARNED + NAMELESS)
    assert other == SlowFold("pad", "f32[1024,1024]", "", 1.0, ended=False)


@pytest.mark.parametrize(
    "log",
    [
        "",
        WARNED.partition("\n")[0],
        WARNED.replace("Constant folding an instruction", "Compiling module jit_step"),
    ],
)
def test_other_words_and_broken_off_ones_tell_nothing(log):
    assert read_slow_folds(log) == ()


def test_what_a_file_holds_is_read_back():
    assert slow_folds_from_document([dataclasses.asdict(FOLD)]) == (FOLD,)
    assert slow_folds_from_document(None) is None
    with pytest.raises(TypeError):
        slow_folds_from_document([{**dataclasses.asdict(FOLD), "shape": 3}])


# As jaxlib 0.10 prints it, its advice cut short.
INVOLUNTARY = """W1129 20:37:26.251681   21069 spmd_partitioner.cc:656] [SPMD] Involuntary full \
rematerialization. The compiler cannot go from sharding {devices=[2,2,2]<=[8] \
last_tile_dim_replicate} to {devices=[1,8]<=[8]} efficiently for HLO operation \
%sharding_constraint.0 = f32[512,512]{1,0} copy(%tanh.0), sharding={devices=[2,2,2]<=[8] \
last_tile_dim_replicate}, metadata={op_name="jit(f)/sharding_constraint" stack_frame_id=3}. As the \
last resort, SPMD will replicate the tensor.
"""
WHOLE = FullRematerialization(
    "sharding_constraint.0",
    "f32[512,512]",
    "jit(f)/sharding_constraint",
    "{devices=[2,2,2]<=[8] last_tile_dim_replicate}",
    "{devices=[1,8]<=[8]}",
)


def test_the_partitioners_warning_names_the_value_and_both_shardings():
    assert read_full_rematerializations(WARNED + INVOLUNTARY) == (WHOLE,)
    assert read_slow_folds(INVOLUNTARY) == ()


def test_the_same_warning_counts_once_and_the_wording_of_older_versions_is_known():
    older = INVOLUNTARY.replace("cannot go", "was not able to go").replace(
        "efficiently for HLO operation",
        "without doing a full rematerialization of the tensor for HLO operation:",
    )
    assert read_full_rematerializations(INVOLUNTARY + older) == (WHOLE,)


@pytest.mark.parametrize("log", ["", INVOLUNTARY.partition("efficiently")[0]])
def test_a_log_without_the_warning_or_with_half_of_it_has_none(log):
    assert read_full_rematerializations(log) == ()


def test_warnings_in_a_file_are_read_back():
    document = [dataclasses.asdict(WHOLE)]
    assert full_rematerializations_from_document(document) == (WHOLE,)
    assert full_rematerializations_from_document(None) is None
    with pytest.raises(TypeError):
        full_rematerializations_from_document([{**document[0], "target": None}])
