import json

import pytest

from hloscope.capture.plugins import COMPONENTS, MANIFEST, plugin_folder
from hloscope.chips import CHIPS
from hloscope.errors import TargetError, UsageError
from hloscope.targets import install_targets, list_targets, remove_targets


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HLOSCOPE_CACHE_DIR", str(tmp_path))
    return tmp_path


def pretend(component, jaxlib):
    """A folder that says of itself that it is a whole plug-in."""
    folder = plugin_folder(COMPONENTS[component])
    if jaxlib is not None:
        folder = folder.with_name(f"{folder.name}-of-{jaxlib}")
    folder.mkdir(parents=True)
    manifest = {
        "component": component,
        "python": "cp311",
        "jaxlib": jaxlib or "current",
        "versions": {"libtpu": "0.0.1"},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest))
    (folder / "library.so").write_bytes(bytes(1000))
    return folder


def rows(report, name):
    return {row[0]: row for t in report.tables if t.name == name for row in t.rows}


def test_every_chip_is_listed_with_what_compiling_for_it_takes():
    found = rows(list_targets(), "targets")
    assert list(found) == list(CHIPS)
    assert found["cpu"][3] == "ready"
    assert found["h100"][1] == "989 TFLOP/s"


def test_a_plug_in_in_the_cache_is_listed_with_its_size_and_makes_its_chips_ready():
    folder = pretend("tpu", None)
    report = list_targets()
    chips = rows(report, "targets")
    assert chips["v5e"][3] == chips["v6e"][3] == "ready"
    plugin = rows(report, "plugins")["tpu"]
    assert plugin[3].value == 1000 + (folder / MANIFEST).stat().st_size
    assert plugin[4] == "yes"


def test_a_plug_in_for_another_jaxlib_is_told_apart():
    pretend("tpu", "0.0.9")
    report = list_targets()
    assert rows(report, "targets")["v5e"][3] == "other jaxlib"
    assert rows(report, "plugins")["tpu"][4] == "no"


def test_removing_takes_every_folder_of_the_plug_in_away():
    pretend("tpu", None)
    pretend("tpu", "0.0.9")
    pretend("cuda12", "0.0.9")
    report = remove_targets(["v5e"])
    assert report.summary.startswith("Removed TPU compiler plug-in: ")
    assert set(rows(report, "plugins")) == {"cuda12"}
    assert remove_targets(["v5e"]).summary == "Nothing to remove."


def test_what_is_there_already_is_not_installed_again():
    pretend("tpu", None)
    told = []
    report = install_targets(["v5e", "v6e:2x2"], progress=told.append)
    assert report.summary == "Ready to compile for v5e, v6e:2x2."
    assert told == ["TPU compiler plug-in: already there"]


def test_the_cpu_needs_nothing():
    assert "Nothing had to be installed" in install_targets(["cpu:8"]).summary


def test_an_unknown_chip_is_refused_before_anything_is_installed():
    told = []
    with pytest.raises(TargetError, match="no chip called 'h10'"):
        install_targets(["v5e", "h10"], progress=told.append)
    assert told == []


def test_a_folder_of_wheels_must_exist(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        install_targets(["v5e"], wheels=tmp_path / "missing")
