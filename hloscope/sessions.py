"""A session over a program, with the chip and the limits that the user named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.rules import Limits
from hloscope.pipeline.session import Session
from hloscope.sources import Progress, Subject

if TYPE_CHECKING:
    from hloscope.chips import Chip
    from hloscope.ir import Module
    from hloscope.passes.traced_join import TraceJoin
    from hloscope.traces.summary import Trace

__all__ = ["chip_of", "given_chip", "join_of", "open_session"]


def chip_of(subject: Subject, name: str | None) -> Chip | None:
    """The chip that is named, else the subject's own, if it says one."""
    from hloscope.answers.roofline import chip_for, is_chip_known

    return chip_for(subject, name) if name is not None or is_chip_known(subject) else None


def given_chip(chip: Chip | None) -> Mapping[type, object]:
    """A chip as :func:`open_session` takes it; nothing where there is none."""
    from hloscope.chips import Chip

    return {} if chip is None else {Chip: chip}


def open_session(
    subject: Subject,
    progress: Progress | None,
    limits: Limits | None = None,
    given: Mapping[type, object] | None = None,
) -> Session:
    """A session over a subject, with all passes at hand.

    Args:
        subject: What is looked at.
        progress: Told of every analysis.
        limits: Thresholds of the rules; the default ones if left out.
        given: Further inputs by type.
    """
    load_passes()
    everything: dict[type, object] = dict(given or {})
    if limits is not None:
        everything[Limits] = limits
    return Session(subject, given=everything, progress=progress)


def join_of(trace: Trace, chip: Chip | None = None) -> TraceJoin:
    """A trace held against the programs that it embeds.

    Args:
        trace: The run.
        chip: What ran it; as the recording says, where left out.
    """
    from hloscope.passes.traced_join import join_trace
    from hloscope.subjects import ModuleSubject

    def session(module: Module, ran_on: Chip) -> Session:
        return open_session(ModuleSubject(module, module.name), None, given=given_chip(ran_on))

    return join_trace(trace, session, chip)
