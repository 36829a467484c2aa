"""Sessions over small modules."""

import pytest

from hloscope.ir import parse_text
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.session import Session
from hloscope.subjects import ModuleSubject


@pytest.fixture(scope="session")
def session_of():
    load_passes()

    def make(text):
        return Session(ModuleSubject(parse_text(text), "step.hlo"))

    return make
