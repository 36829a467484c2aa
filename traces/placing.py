"""Which execution of which program a TPU's operations belong to: told by time.

A TPU's operations do not say; a core runs one program after another, and the line of its
executions tells when. The label of an execution has the program's id: ``jit_step(12)``.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from hloscope.traces.recording import NONE, TextColumn, signed
from hloscope.traces.work import Work

__all__ = ["placed"]

_NUMBERED = re.compile(r"(.*)\((-?\d+)\)")


def placed(work: Work, executions: Work) -> Work:
    """The same with the program, its module and the run of what lies within an execution.

    What an operation says itself stands.

    Args:
        work: Operations of one core.
        executions: Executions of whole programs on it, which do not overlap.
    """
    if not len(work) or not len(executions):
        return work
    order = np.argsort(executions.begins, kind="stable")
    begins, ends = executions.begins[order], executions.ends[order]
    at = np.searchsorted(begins, work.begins, "right") - 1
    inside = (at >= 0) & (work.begins < ends[at])
    execution = order[at]
    names: dict[str, int] = {word: place for place, word in enumerate(work.modules.words)}
    module_of, program_of = [], []
    for word in executions.labels.words:
        match = _NUMBERED.fullmatch(word)
        name, number = (match[1], int(match[2])) if match else (word, 0)
        module_of.append(names.setdefault(name, len(names)))
        program_of.append(signed(number))
    label = executions.labels.codes[execution]
    modules = np.asarray(module_of, np.int32)[label]
    programs = np.asarray(program_of, np.int64)[label]
    said = work.modules.codes
    return replace(
        work,
        modules=TextColumn(np.where(inside & (said == NONE), modules, said), list(names)),
        programs=np.where(inside & (work.programs == 0), programs, work.programs),
        runs=np.where(inside & (work.runs == 0), executions.runs[execution], work.runs),
    )
