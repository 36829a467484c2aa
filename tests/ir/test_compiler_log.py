"""What XLA says on standard error while it compiles."""

from __future__ import annotations

import dataclasses

import pytest

from hloscope.ir.compiler_log import SlowFold, read_slow_folds, slow_folds_from_document

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
