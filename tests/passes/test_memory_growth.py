"""The memory passes do four times the work for four times the instructions: calls are counted."""

import sys

import pytest

from hloscope.ir import parse_text
from hloscope.passes.live_ranges import LiveRanges
from hloscope.passes.memory_use import MemoryUse
from hloscope.passes.residuals import Residuals


def chain(length: int) -> str:
    """Each instruction overwrites the one before."""
    lines = "\n".join(
        f'x{k + 1} = f32[256] negate(x{k}), metadata={{op_name="jit(f)/layer_{k % 7}/neg"}}'
        for k in range(length)
    )
    return (
        f"HloModule m, is_scheduled=true\nENTRY e {{\nx0 = f32[256] parameter(0)\n{lines}\n"
        f"ROOT r = f32[1] slice(x{length}), slice={{[0:1]}}\n}}"
    )


def saved(length: int) -> str:
    """A forward pass whose every result is kept for a backward pass in reverse order."""
    forward = "\n".join(
        f'h{k + 1} = f32[256] custom-call(h{k}), custom_call_target="k", '
        f'metadata={{op_name="jit(f)/jvp(l)/k"}}'
        for k in range(length)
    )
    backward = "\n".join(
        f'g{k} = f32[256] custom-call(g{k + 1}, h{k}), custom_call_target="k", '
        f'metadata={{op_name="jit(f)/transpose(jvp(l))/k"}}'
        for k in reversed(range(length))
    )
    return (
        f"HloModule m, is_scheduled=true\nENTRY e {{\nh0 = f32[256] parameter(0)\n{forward}\n"
        f"g{length} = f32[256] negate(h{length})\n{backward}\n"
        "ROOT r = f32[1] slice(g0), slice={[0:1]}\n}"
    )


def updated(length: int) -> str:
    """A state of many leaves, each donated, read early and written late."""
    parameters = "\n".join(f"p{k} = f32[{k + 1}] parameter({k})" for k in range(length))
    read = "\n".join(
        f'a{k} = f32[{k + 1}] custom-call(p{k}), custom_call_target="k"' for k in range(length)
    )
    written = "\n".join(
        f'n{k} = f32[{k + 1}] custom-call(a{k}), custom_call_target="k"' for k in range(length)
    )
    alias = ", ".join(f"{{{k}}}: ({k}, {{}}, may-alias)" for k in range(length))
    shapes = ", ".join(f"f32[{k + 1}]" for k in range(length))
    names = ", ".join(f"n{k}" for k in range(length))
    return (
        f"HloModule m, is_scheduled=true, input_output_alias={{ {alias} }}\n"
        f"ENTRY e {{\n{parameters}\n{read}\n{written}\nROOT r = ({shapes}) tuple({names})\n}}"
    )


def overlapping(length: int) -> str:
    """Asynchronous calls, all of which are started before the first one is ended."""
    starts = "\n".join(
        f"s{k} = ((f32[256]), f32[256], u32[]) async-start(p), calls=body{k}" for k in range(length)
    )
    ends = "\n".join(f"d{k} = f32[256] async-done(s{k})" for k in range(length))
    bodies = "\n".join(
        f"body{k} {{\nx = f32[256] parameter(0)\nb = f32[512] broadcast(x), dimensions={{}}\n"
        f'ROOT r = f32[256] custom-call(b), custom_call_target="k"\n}}'
        for k in range(length)
    )
    return (
        f"HloModule m, is_scheduled=true\n{bodies}\nENTRY e {{\np = f32[256] parameter(0)\n"
        f"{starts}\n{ends}\nROOT r = f32[1] slice(d0), slice={{[0:1]}}\n}}"
    )


def calls(session, *types) -> int:
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for wanted in types:
            session.get(wanted)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("make", [chain, saved, updated, overlapping])
def test_work_grows_with_the_instructions(make, session_of):
    small, large = (
        calls(session_of(parse_text(make(length))), LiveRanges, MemoryUse, Residuals)
        for length in (250, 1000)
    )
    assert large < 4.6 * small
