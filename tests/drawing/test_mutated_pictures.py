"""Whatever parses is drawn, or refused with a typed error."""

import contextlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.training_steps import KEPT, REMAT, SCAN

from hloscope.drawing.around import draw_around
from hloscope.drawing.dot import write_dot
from hloscope.drawing.remat import Side, draw_remat
from hloscope.drawing.scope import draw_scopes
from hloscope.errors import HloscopeError
from hloscope.pipeline.session import AnalysisFailedError

TOKEN = re.compile(r"[\w.\-]+|[^\w\s]")
place = st.floats(0, 1, exclude_max=True)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(
    text=st.sampled_from([KEPT, REMAT, SCAN]),
    changes=st.lists(st.tuples(place, place, st.sampled_from([None, "", "7"])), max_size=3),
)
def test_a_mutated_step_is_drawn_or_refused_by_type(session_of, text, changes):
    for where, other, value in changes:
        found = TOKEN.search(text, int(where * (len(text) - 1)))
        second = TOKEN.search(text, int(other * (len(text) - 1)))
        if found is not None and second is not None:
            new = second.group() if value is None else value
            text = text[: found.start()] + new + text[found.end() :]
    try:
        session = session_of(text)
    except HloscopeError:
        return
    for draw in (
        lambda: draw_remat(Side("step", session)),
        lambda: draw_scopes(session, "step"),
        lambda: draw_around(session, "step", "mul.1", hops=3),
    ):
        with contextlib.suppress(HloscopeError):
            try:
                write_dot(draw())
            except AnalysisFailedError as failed:
                raise failed.error from None
