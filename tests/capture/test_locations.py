"""File names that mean the same on every machine."""

from __future__ import annotations

import os
import re

import jax
import pytest

from hloscope.capture.locations import shorten_paths, source_prefix_pattern


@pytest.fixture
def shortened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pattern = source_prefix_pattern(["/srv/project", "/srv"])
    return lambda name: re.sub(pattern, "", name)


def test_a_file_below_the_current_folder_is_named_from_there(shortened, tmp_path):
    assert shortened(f"{tmp_path}/examples/train.py") == "examples/train.py"


def test_a_library_is_named_from_the_folder_that_tells_it_as_one(shortened):
    assert shortened(jax.__file__) == "site-packages/jax/__init__.py"
    assert re.fullmatch(r"python3\.\d+/os\.py", shortened(os.__file__))


def test_an_installed_hloscope_is_no_library_of_the_step_that_it_holds(shortened):
    packages = os.path.dirname(os.path.dirname(jax.__file__))
    assert shortened(f"{packages}/hloscope/models/unet.py") == "hloscope/models/unet.py"
    assert shortened(f"{packages}/hloscopes/a.py") == "site-packages/hloscopes/a.py"


def test_an_environment_below_the_current_folder_is_still_a_library(tmp_path, monkeypatch):
    inside = tmp_path / "env" / "site-packages"
    monkeypatch.setattr(
        "hloscope.capture.locations.library_folders", lambda: (str(inside), "/usr/lib")
    )
    monkeypatch.chdir(tmp_path)
    short = re.sub(source_prefix_pattern(), "", f"{inside}/optax/base.py")
    assert short == "site-packages/optax/base.py"


def test_the_deepest_of_the_other_folders_wins(shortened):
    assert shortened("/srv/project/a/b.py") == "a/b.py"
    assert shortened("/srv/other/b.py") == "other/b.py"


def test_of_an_unknown_place_the_last_two_parts_are_kept(shortened):
    assert shortened("/nobody/knows/this/place.py") == "this/place.py"
    assert shortened("/place.py") == "place.py"


def test_what_is_no_absolute_path_stays(shortened):
    for name in ("train.py", "a/b.py", "<string>", "<ipython-input-1>"):
        assert shortened(name) == name


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("--xla_dump_to=/home/me/out", "--xla_dump_to=.../out"),
        ("--a=/x/y/z,/x/w --b=1", "--a=.../z,.../w --b=1"),
        ("see https://docs.jax.dev/en/latest", "see https://docs.jax.dev/en/latest"),
        ("in ~/notes/a.txt", "in .../a.txt"),
        ("a/b and 1/2", "a/b and 1/2"),
    ],
)
def test_paths_inside_a_text_lose_their_folders(text, short):
    assert shorten_paths(text) == short
