import pytest

from hloscope.cli import main


class Answer:
    """What one run of the command line gave."""

    def __init__(self, code, out, err):
        self.code = code
        self.out = out
        self.err = err


@pytest.fixture
def hloscope(capsys):
    """Run the command line in this process."""

    def run(*arguments):
        code = main(arguments)
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return run
