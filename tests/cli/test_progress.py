import io

import pytest

from hloscope.cli.progress import PhaseProgress

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_the_phase_that_runs_and_takes_it_away_again():
    stream = Terminal()
    with PhaseProgress(stream) as progress:
        progress("trace", None)
        progress("trace", 0.01)
        progress("compile", None)
        assert "trace: 0 s" in stream.getvalue()
        progress("compile", 61.25)
    text = stream.getvalue()
    assert "compile: 61.2 s" in text
    assert "trace: 10" not in text  # under a second leaves no line


def test_off_a_terminal_nothing_moves():
    stream = io.StringIO()
    with PhaseProgress(stream) as progress:
        progress("lower", None)
        assert stream.getvalue() == ""
        progress("lower", 1.5)
    assert stream.getvalue() == "lower: 1.50 s\n"


def test_an_error_ends_the_live_line():
    stream = Terminal()

    def interrupted():
        with PhaseProgress(stream) as progress:
            progress("compile", None)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert SHOW_CURSOR in stream.getvalue()
    assert HIDE_CURSOR not in stream.getvalue().split(SHOW_CURSOR)[-1]
