"""Compile-only plug-ins: installed from wheels made here, found, listed, removed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import zipfile
from importlib import metadata

import pytest

from hloscope.capture import CaptureRequest, capture, parse_source
from hloscope.capture import plugins as plugins_module
from hloscope.capture.plugin_install import install_component
from hloscope.capture.plugins import (
    COMPONENTS,
    components_of,
    find_plugins,
    installed_plugins,
    plugin_folder,
    remove_plugins,
    requirement_of,
    satisfies,
    split_requirement,
)
from hloscope.chips import parse_target
from hloscope.errors import TargetError

JAXLIB = metadata.version("jaxlib")
LIBTPU = requirement_of("libtpu").removeprefix("==").replace("*", "7")


def make_wheel(folder, name, version, requires=()):
    """A wheel with one module that says its version."""
    folder.mkdir(exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    members = {
        f"{module}/__init__.py": f"version = {version!r}\n",
        f"{info}/METADATA": "\n".join(lines) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{member},,\n" for member in members) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as archive:
        for member, text in {**members, f"{info}/RECORD": record}.items():
            archive.writestr(member, text)


@pytest.fixture
def wheels(tmp_path):
    folder = tmp_path / "wheels"
    make_wheel(
        folder,
        "jax-cuda12-plugin",
        JAXLIB,
        [
            'nvidia-cuda-nvcc-cu12<12.8,>=12.6.85; extra == "with-cuda"',
            'nvidia-cudnn-cu12<10.0,>=9.8; extra == "with-cuda"',
        ],
    )
    make_wheel(folder, "jax-cuda12-pjrt", JAXLIB)
    make_wheel(folder, "nvidia-cuda-nvcc-cu12", "12.7.1")
    make_wheel(folder, "nvidia-cuda-nvcc-cu12", "12.9.9")
    make_wheel(folder, "nvidia-cudnn-cu12", "9.9")
    make_wheel(folder, "libtpu", LIBTPU)
    return folder


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    """An empty cache, and no plug-in in the environment that runs the tests."""
    monkeypatch.setattr(plugins_module, "_IN_ENVIRONMENT", {})


def test_what_is_installed_is_found_with_its_versions(wheels):
    folder = install_component(COMPONENTS["cuda12"], wheels=wheels)
    found = find_plugins(parse_target("h100:8"))
    assert found.folders == (folder,)
    # The plug-in's own metadata allows nvcc up to 12.8 only.
    assert found.versions == {
        "jax-cuda12-plugin": JAXLIB,
        "jax-cuda12-pjrt": JAXLIB,
        "nvidia-cuda-nvcc-cu12": "12.7.1",
    }
    assert (folder / "jax_cuda12_plugin" / "__init__.py").exists()


def test_cudnn_lies_in_a_folder_of_its_own(wheels):
    first = install_component(COMPONENTS["cuda12"], wheels=wheels)
    second = install_component(COMPONENTS["cudnn12"], wheels=wheels)
    found = find_plugins(parse_target("a100"))
    assert found.folders == (first, second)
    assert found.versions["nvidia-cudnn-cu12"] == "9.9"


def test_the_libtpu_that_jax_names_is_installed(wheels):
    make_wheel(wheels, "libtpu", "99.0")
    install_component(COMPONENTS["tpu"], wheels=wheels)
    assert find_plugins(parse_target("v5e:2x2")).versions == {"libtpu": LIBTPU}


def test_a_missing_plugin_names_the_command_and_the_download():
    with pytest.raises(TargetError) as caught:
        find_plugins(parse_target("h100:8"))
    assert "not installed" in caught.value.message
    assert "hloscope targets install h100`" in caught.value.hint
    assert "240 MB" in caught.value.hint


def test_a_plugin_of_another_jaxlib_is_told_from_none(wheels, monkeypatch):
    install_component(COMPONENTS["tpu"], wheels=wheels)
    monkeypatch.setattr(plugins_module, "jaxlib_version", lambda: "9.9.9")
    with pytest.raises(TargetError) as caught:
        find_plugins(parse_target("v5e"))
    assert f"made for jaxlib {JAXLIB}, and 9.9.9 is installed" in caught.value.message
    assert "hloscope targets install v5e`" in caught.value.hint


def test_the_cpu_needs_nothing():
    assert find_plugins(parse_target("cpu:8")).folders == ()
    assert find_plugins(parse_target("local")).folders == ()
    assert components_of(parse_target("cpu")) == ()


def test_a_fit_plugin_of_the_environment_is_used_as_it_is(monkeypatch):
    monkeypatch.setattr(plugins_module, "_IN_ENVIRONMENT", {"cuda12": ("jaxlib-alias",)})
    monkeypatch.setattr(plugins_module, "requirement_of", lambda _: f"=={JAXLIB}")
    versions = {"jaxlib-alias": JAXLIB}
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: versions.get(name) or real(name))
    found = find_plugins(parse_target("h100"))
    assert found.folders == ()
    assert found.versions == {"jaxlib-alias": JAXLIB}
    versions["jaxlib-alias"] = "0.0.1"
    with pytest.raises(TargetError):
        find_plugins(parse_target("h100"))


def test_a_failed_install_leaves_nothing_and_shows_the_installers_words(wheels, own_cache):
    (wheels / f"libtpu-{LIBTPU}-py3-none-any.whl").unlink()
    with pytest.raises(TargetError) as caught:
        install_component(COMPONENTS["tpu"], wheels=wheels)
    assert "does not hold what is needed" in caught.value.message
    assert "libtpu" in caught.value.detail
    assert [p for p in (own_cache / "plugins").iterdir() if p.suffix != ".lock"] == []


def test_a_wheel_that_breaks_half_way_leaves_nothing(wheels, own_cache):
    # The first of the two steps succeeds, the second does not.
    for path in wheels.glob("nvidia_cuda_nvcc*"):
        path.write_bytes(b"PK not a wheel")
    with pytest.raises(TargetError):
        install_component(COMPONENTS["cuda12"], wheels=wheels)
    assert [p for p in (own_cache / "plugins").iterdir() if p.suffix != ".lock"] == []
    assert installed_plugins() == []


def test_an_index_that_cannot_be_reached_is_said_so(monkeypatch):
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    with pytest.raises(TargetError) as caught:
        install_component(COMPONENTS["tpu"])
    assert "out of reach" in caught.value.message
    assert "pip download" in caught.value.hint
    assert "--from DIR" in caught.value.hint


def test_a_disk_without_room_is_said_so_before_anything_is_fetched(monkeypatch):
    usage = type("Usage", (), {"free": 10_000_000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(TargetError, match="10 MB free") as caught:
        install_component(COMPONENTS["tpu"])
    assert "HLOSCOPE_CACHE_DIR" in caught.value.hint


def test_a_disk_that_fills_up_is_said_so(wheels, monkeypatch, tmp_path):
    full = tmp_path / "full"
    full.write_text(
        "#!/bin/sh\necho 'ERROR: Could not install: [Errno 28] No space left on device'\nexit 1\n"
    )
    full.chmod(0o755)
    monkeypatch.setattr("hloscope.capture.plugin_install._installer", lambda: [str(full)])
    with pytest.raises(TargetError, match="disk is full") as caught:
        install_component(COMPONENTS["tpu"], wheels=wheels)
    assert "Errno 28" in caught.value.detail


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path, monkeypatch, wheels):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HLOSCOPE_CACHE_DIR", str(tmp_path / "file" / "below"))
    with pytest.raises(TargetError, match="cannot be written") as caught:
        install_component(COMPONENTS["tpu"], wheels=wheels)
    assert "HLOSCOPE_CACHE_DIR" in caught.value.hint


def test_without_pip_uv_is_asked_and_without_both_it_is_said(wheels, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(TargetError, match="neither pip nor uv"):
        install_component(COMPONENTS["tpu"], wheels=wheels)
    seen = tmp_path / "seen"
    fake = tmp_path / "uv"
    fake.write_text(f'#!/bin/sh\necho "$@" > {seen}\nexit 1\n')
    fake.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(fake))
    with pytest.raises(TargetError):
        install_component(COMPONENTS["tpu"], wheels=wheels)
    assert seen.read_text().startswith(f"pip install --python {sys.executable} --no-deps --target")


def test_two_installs_at_once_do_the_work_once(wheels):
    said = []
    threads = [
        threading.Thread(
            target=install_component,
            args=(COMPONENTS["tpu"],),
            kwargs={"wheels": wheels, "progress": said.append},
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(line.endswith(": installed") for line in said) == 1
    assert sum(line.endswith(": already there") for line in said) == 2
    assert len(installed_plugins()) == 1


def test_an_install_that_is_killed_leaves_nothing_that_counts(wheels, own_cache, tmp_path):
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import sys, time, pathlib\n"
        "target = pathlib.Path(sys.argv[sys.argv.index('--target') + 1])\n"
        "target.mkdir(parents=True)\n"
        "(target / 'half').write_text('')\n"
        "time.sleep(600)\n"
    )
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from hloscope.capture import plugin_install\n"
        "from hloscope.capture.plugins import COMPONENTS\n"
        f"plugin_install._installer = lambda: [sys.executable, {str(slow)!r}]\n"
        f"plugin_install.install_component(COMPONENTS['tpu'], wheels=Path({str(wheels)!r}))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        end = time.monotonic() + 30
        while not list((own_cache / "plugins").glob(".*.partial/half")):
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, 9)
        process.wait()
    assert installed_plugins() == []
    install_component(COMPONENTS["tpu"], wheels=wheels)
    assert find_plugins(parse_target("v5e")).versions == {"libtpu": LIBTPU}
    assert list((own_cache / "plugins").glob("*.partial")) == []


def test_plugins_are_listed_with_their_size_and_removed(wheels):
    install_component(COMPONENTS["cuda12"], wheels=wheels)
    install_component(COMPONENTS["tpu"], wheels=wheels)
    listed = installed_plugins()
    assert [plugin.component.name for plugin in listed] == ["cuda12", "tpu"]
    assert all(plugin.usable and plugin.jaxlib == JAXLIB for plugin in listed)
    tpu = listed[1]
    on_disk = sum(p.stat().st_size for p in tpu.folder.rglob("*") if p.is_file())
    assert tpu.size == on_disk
    assert remove_plugins([tpu]) == on_disk
    assert [plugin.component.name for plugin in installed_plugins()] == ["cuda12"]
    assert not plugin_folder(COMPONENTS["tpu"]).exists()


def test_installing_again_replaces_what_is_there(wheels):
    folder = install_component(COMPONENTS["tpu"], wheels=wheels)
    (folder / "stray").write_text("")
    assert install_component(COMPONENTS["tpu"], wheels=wheels) == folder
    assert (folder / "stray").exists()
    install_component(COMPONENTS["tpu"], wheels=wheels, again=True)
    assert not (folder / "stray").exists()


@pytest.mark.parametrize(
    ("requirement", "name", "specifier"),
    [
        ('libtpu==0.0.50.*; extra == "tpu"', "libtpu", "==0.0.50.*"),
        ("jax_cuda12.plugin[with-cuda]<=1.0,>=1.0", "jax-cuda12-plugin", "<=1.0,>=1.0"),
        ("requests", "requests", ""),
        ("six (>=1.0)", "six", ">=1.0"),
    ],
)
def test_requirements_are_split_into_name_and_versions(requirement, name, specifier):
    assert split_requirement(requirement) == (name, specifier)


@pytest.mark.parametrize(
    ("version", "specifier", "fits"),
    [
        ("0.0.50.1", "==0.0.50.*", True),
        ("0.0.50", "==0.0.50.*", True),
        ("0.0.5", "==0.0.50.*", False),
        ("0.0.501", "==0.0.50.*", False),
        ("0.10.2", "==0.10.2", True),
        ("0.10.21", "==0.10.2", False),
        ("1.0", ">=0.1", False),
    ],
)
def test_a_version_fits_or_does_not(version, specifier, fits):
    assert satisfies(version, specifier) is fits


def test_a_capture_installs_what_is_missing_when_told_to(wheels, mlp_file, monkeypatch):
    asked = []

    def install(component, *, progress):
        asked.append(component.name)
        progress("a line")
        return install_component(component, wheels=wheels)

    monkeypatch.setattr("hloscope.capture.session.install_component", install)
    events = []
    request = CaptureRequest(
        parse_source(f"{mlp_file}:step"), "h100", install=True, with_cudnn=True, use_cache=False
    )
    # The wheels made here hold no plug-in, so JAX does not get its topology.
    with pytest.raises(TargetError, match="does not give a topology"):
        capture(request, progress=events.append)
    assert asked == ["cuda12", "cudnn12"]
    assert [(e.phase, e.note) for e in events if e.note] == [("install", "a line")] * 2
    asked.clear()
    with pytest.raises(TargetError):
        capture(request)
    assert asked == []
