"""Images: which Graphviz draws them, and what is said where there is none."""

import os
import stat

import pytest

from hloscope.drawing import render as rendering
from hloscope.drawing.render import (
    Renderer,
    RenderError,
    check_output,
    find_renderer,
    format_of,
    render,
    write_image,
)
from hloscope.errors import UsageError

DOT = "digraph { a -> b }\n"


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine without any Graphviz."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(rendering.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(rendering.sys, "executable", str(tmp_path / "python"))
    return tmp_path


def test_the_ending_says_the_format():
    assert [format_of(f"a.{e}") for e in ("svg", "PNG", "dot", "gv")] == [
        "svg",
        "png",
        "dot",
        "dot",
    ]
    with pytest.raises(UsageError, match=r"\.dot, \.png, \.svg"):
        format_of("a.pdf")


def test_images_are_what_their_format_says():
    assert render(DOT, "svg").startswith(b"<?xml")
    assert render(DOT, "png").startswith(b"\x89PNG")
    assert render(DOT, "dot") == DOT.encode()


def test_without_graphviz_the_error_says_what_to_install(nowhere):
    with pytest.raises(RenderError, match="no Graphviz") as raised:
        check_output(nowhere / "a.svg")
    assert "pip install graphviz-pure" in raised.value.hint


def test_without_graphviz_dot_text_is_written_all_the_same(nowhere):
    assert check_output(nowhere / "a.dot") is None
    assert write_image(nowhere / "a.dot", DOT) == len(DOT)
    assert (nowhere / "a.dot").read_text() == DOT


def test_the_systems_dot_is_taken_first(nowhere):
    program(nowhere, "graphviz-pure", "exit 0")
    assert find_renderer().name == "graphviz-pure"
    path = program(nowhere, "dot", "exit 0")
    assert find_renderer() == Renderer(path, "dot")


def test_a_renderer_that_fails_is_quoted(tmp_path):
    path = program(tmp_path, "dot", "echo 'syntax error in line 1' >&2; exit 3")
    with pytest.raises(RenderError, match="exit code 3") as raised:
        render(DOT, "svg", Renderer(path, "dot"))
    assert "syntax error in line 1" in raised.value.detail


def test_a_renderer_that_cannot_be_run_is_a_typed_error(tmp_path):
    with pytest.raises(RenderError, match="cannot be run"):
        render(DOT, "svg", Renderer(str(tmp_path / "gone"), "dot"))


def test_a_folder_that_is_not_there_is_said_before_anything_is_drawn(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        check_output(tmp_path / "none" / "a.svg")


def test_a_file_that_cannot_be_written_is_a_typed_error(tmp_path):
    os.mkdir(tmp_path / "a.dot")
    with pytest.raises(UsageError, match="cannot be written"):
        write_image(tmp_path / "a.dot", DOT)
