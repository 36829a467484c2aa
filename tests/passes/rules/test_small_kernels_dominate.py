"""Traces of many short kernels, and of few long ones."""

from dataclasses import replace

import pytest
from oracles.built_traces import BuiltTrace

from hloscope.chips import ChipKind
from hloscope.errors import Unavailable
from hloscope.pipeline.findings import Severity, Unit
from hloscope.pipeline.rules import RULES, Limits, call
from hloscope.traces.summary import Trace

STEP = """HloModule jit_step

FileNames
1 "train.py"

FunctionNames
1 "update"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=1 end_column=2}
2 {file_name_id=1 function_name_id=1 line=40 end_line=40 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

ENTRY main {
  a = f32[64] parameter(0)
  one = f32[64] add(a, a), metadata={op_name="jit(step)/add" stack_frame_id=1}
  two = f32[64] multiply(one, a), metadata={op_name="jit(step)/mul" stack_frame_id=1}
  ROOT big = f32[64] negate(two), metadata={op_name="jit(step)/neg" stack_frame_id=2}
}
"""


@pytest.fixture
def found_in_trace(tmp_path, session_of):
    def find(built, limits=None, kind=ChipKind.GPU):
        trace = built.read(tmp_path)
        (host,) = trace.hosts
        devices = tuple(replace(device, kind=kind) for device in host.devices)
        trace = Trace(trace.name, (replace(host, devices=devices),))
        rule = RULES["HS508"]
        session = session_of("HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n", trace)
        session = type(session)(session.subject, given={Limits: limits or Limits()})
        return call(rule, session.arguments(rule.needs))

    return find


def short_steps(number=100, length=2, gap=4):
    built = BuiltTrace({3: STEP})
    for _ in range(number):
        built.run(3, ("one", "add", length), ("two", "mul", length), ("big", "neg", 20), gap_us=gap)
    return built


def test_short_kernels_and_the_gaps_behind_them_are_found(found_in_trace):
    (finding,) = found_in_trace(short_steps())
    kernels, short, time, gaps, share = finding.evidence
    assert (kernels.value, short.value) == (300, 200)
    assert (time.value, time.unit) == (pytest.approx(200 * 2e-6), Unit.SECONDS)
    # Behind the long kernels lie gaps, too, which are not theirs.
    assert gaps.value == pytest.approx(200 * 4e-6)
    # Of each step 24 us of kernels and three gaps, of which the last step has two.
    window = (100 * (24 + 12) - 4) * 1e-6
    assert share.value == pytest.approx(200 * 6e-6 / window)
    assert finding.cost.value == pytest.approx(200 * 6e-6)
    assert finding.severity is Severity.ERROR
    assert (finding.site.file, finding.site.line) == ("train.py", 12)
    assert finding.notes[0].startswith("train.py:12")
    assert finding.notes[0].endswith("200 of 200 short kernels")


def test_long_kernels_are_not_short(found_in_trace):
    assert found_in_trace(short_steps(length=6)) == ()
    assert found_in_trace(short_steps(length=6), Limits(short_kernel_seconds=6e-6))


def test_short_kernels_that_take_little_of_the_time_are_not_found(found_in_trace):
    assert found_in_trace(short_steps(gap=0.1), Limits(launch_share=0.2)) == ()


def test_few_kernels_are_not_found(found_in_trace):
    assert found_in_trace(short_steps(number=49)) == ()
    assert found_in_trace(short_steps(number=50))


def test_short_kernels_beside_more_long_ones_are_not_found(found_in_trace):
    built = short_steps()
    for _ in range(101):
        built.run(3, ("big", "neg", 20))
    assert found_in_trace(built) == ()


def test_copies_are_no_kernels(found_in_trace):
    built = BuiltTrace()
    for begin in range(300):
        built.kernel("MemcpyD2D", 4 * begin, 1)
    assert found_in_trace(built) == ()


def test_short_kernels_of_no_known_instruction_are_named_by_themselves(found_in_trace):
    built = BuiltTrace()
    for begin in range(300):
        built.kernel("void at::elementwise<int>", 4 * begin, 1)
    (finding,) = found_in_trace(built)
    assert finding.site.instruction == "void at::elementwise<int>"
    assert finding.site.file is None


def test_without_a_gpu_nothing_is_checked(found_in_trace):
    with pytest.raises(Unavailable, match="no GPU"):
        found_in_trace(short_steps(), kind=ChipKind.TPU)


def test_without_a_trace_nothing_is_checked(session_of):
    session = session_of("HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n")
    with pytest.raises(Unavailable, match="no trace given"):
        session.arguments(RULES["HS508"].needs)
