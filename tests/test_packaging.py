"""What pyproject.toml ships, against what is there."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
FOLDERS = {name: ROOT / folder for name, folder in SETUPTOOLS["package-dir"].items()}


def test_every_folder_with_modules_is_shipped_under_its_mapped_name():
    there = {
        ".".join((name, *init.parent.relative_to(folder).parts))
        for name, folder in FOLDERS.items()
        for init in folder.rglob("__init__.py")
    }
    assert sorted(SETUPTOOLS["packages"]) == sorted(there)


def test_the_folders_at_the_top_are_not_importable_by_their_bare_names():
    mapped = [name for name in FOLDERS if name != "hloscope"]
    assert mapped
    assert all(name.startswith("hloscope.") for name in mapped)
