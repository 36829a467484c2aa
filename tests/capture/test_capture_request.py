"""The words of a command line, read."""

from __future__ import annotations

import pytest

from hloscope.capture.request import (
    CaptureRequest,
    Source,
    SourceKind,
    parse_compiler_options,
    parse_mesh,
    parse_options,
    parse_source,
)
from hloscope.errors import UsageError


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("a/train.py:step", Source(SourceKind.FILE, "a/train.py", "step")),
        ("train.py", Source(SourceKind.FILE, "train.py", "step")),
        ("/x/y.py:Cls.make", Source(SourceKind.FILE, "/x/y.py", "Cls.make")),
        ("package.module:step", Source(SourceKind.MODULE, "package.module", "step")),
    ],
)
def test_a_source_is_a_file_or_a_module(text, source):
    assert parse_source(text) == source


@pytest.mark.parametrize("text", ["a.py:", "a.py:1x", "a b:step", ":step", "a.py:step()"])
def test_a_source_that_is_neither_is_refused(text):
    with pytest.raises(UsageError, match=r"not the name|neither"):
        parse_source(text)


def test_a_mesh_keeps_the_order_of_its_axes():
    assert list(parse_mesh("fsdp=4, data=2").items()) == [("fsdp", 4), ("data", 2)]


@pytest.mark.parametrize("text", ["", "data", "data=", "data=0", "=2", "data=2,", "data=2,data=4"])
def test_a_mesh_that_says_nothing_is_refused(text):
    with pytest.raises(UsageError) as caught:
        parse_mesh(text)
    assert caught.value.hint


def test_a_mesh_that_does_not_fit_shows_the_arithmetic():
    request = CaptureRequest(
        Source(SourceKind.ARCH, "unet"), target="h100:4", mesh={"data": 2, "fsdp": 4}
    )
    with pytest.raises(UsageError) as caught:
        request.parsed_target()
    assert "2 x 4 = 8 devices asked" in caught.value.message
    assert "h100:4 has 4" in caught.value.message
    assert "data=2,fsdp=4" in str(caught.value.place)


def test_a_mesh_that_fits_passes():
    request = CaptureRequest(
        Source(SourceKind.ARCH, "unet"), target="v5e:2x4", mesh={"data": 2, "fsdp": 4}
    )
    assert request.parsed_target().devices == 8


def test_compiler_options_get_the_type_that_they_look_like():
    assert parse_compiler_options(["--a=false", "b=3", "c=0.5", "d=x=y", "e=TRUE"]) == {
        "a": False,
        "b": 3,
        "c": 0.5,
        "d": "x=y",
        "e": True,
    }


@pytest.mark.parametrize("pair", ["a", "=1", ""])
def test_an_option_without_a_key_or_value_is_refused(pair):
    with pytest.raises(UsageError):
        parse_options([pair])


def test_a_request_survives_json():
    request = CaptureRequest(
        Source(SourceKind.FILE, "a.py", "step"),
        target="cpu:4",
        options={"depth": "3"},
        mesh={"b": 2, "a": 2},
        compiler_options={"x": True},
    )
    again = CaptureRequest.from_json(request.to_json())
    assert again.to_json() == request.to_json()
    assert list(again.mesh) == ["b", "a"]
