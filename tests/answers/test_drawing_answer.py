"""hloscope draw: what it writes, what it says, and what it refuses."""

import json
from pathlib import Path

import pytest
from oracles.training_steps import KEPT, REMAT

import hloscope
from hloscope.cli.run import run
from hloscope.drawing.view import DrawingView, View, remat_settings
from hloscope.errors import Unavailable, UsageError
from hloscope.ir import parse_text
from hloscope.subjects import ModuleSubject

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def step(tmp_path):
    (tmp_path / "kept.hlo").write_text(KEPT)
    path = tmp_path / "step.hlo"
    path.write_text(REMAT)
    return path


def value(report, what):
    table = next(t for t in report.tables if t.name == "picture")
    return next(cell.value for name, cell in table.rows if name.endswith(what))


def test_the_report_counts_what_is_in_the_file(step, tmp_path):
    file = tmp_path / "remat.svg"
    report = hloscope.draw(step, output=file, view="remat", beside=tmp_path / "kept.hlo")
    assert file.read_bytes().startswith(b"<?xml")
    assert value(report, "file") == file.stat().st_size
    assert value(report, "boxes") == value(report, "drawn") == 14
    assert value(report, "arrows") > 10
    assert value(report, "left out") == 0
    assert report.header["view"] == "remat"
    assert report.header["drawn by"] in ("dot", "graphviz-pure")
    assert str(file) in report.summary
    assert any("%tanh.2 builds it again" in note for note in report.notes)


@pytest.mark.parametrize("ending", ["svg", "png", "dot"])
@pytest.mark.parametrize(
    "options", [{}, {"view": "scope", "depth": 1}, {"view": "remat"}, {"around": "tanh.2"}]
)
def test_every_view_in_every_format(step, tmp_path, ending, options):
    file = tmp_path / f"picture.{ending}"
    hloscope.draw(step, output=file, **options)
    head = {"svg": b"<?xml", "png": b"\x89PNG", "dot": b"digraph"}[ending]
    assert file.read_bytes().startswith(head)


def test_the_title_is_the_file_s_name_not_its_path(step, tmp_path):
    hloscope.draw(step, output=tmp_path / "a.dot")
    text = (tmp_path / "a.dot").read_text()
    assert "step.hlo" in text
    assert str(tmp_path) not in text


def test_the_command_writes_the_file_and_the_documented_json(step, tmp_path, capsys):
    file = tmp_path / "near.dot"
    assert (
        run(["draw", str(step), "--around", "tanh.2", "--hops", "1", "-o", str(file), "--json"])
        == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "draw"
    assert document["tables"][0]["name"] == "picture"
    assert file.read_text().startswith("digraph")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing says where the picture goes"),
        (["-o", "a.pdf"], "pictures are written as"),
        (["-o", "a.dot", "--view", "map"], "no view 'map'"),
        (["-o", "a.dot", "--view", "remat", "--depth", "3"], "--depth does not apply"),
        (["-o", "a.dot", "--hops", "3"], "--hops does not apply"),
        (["-o", "a.dot", "--beside", "b.hlo"], "--beside does not apply"),
        (["-o", "a.dot", "--view", "scope", "--around", "x"], "do not go together"),
        (["-o", "a.dot", "--view", "around"], "needs an instruction"),
        (["-o", "a.dot", "--around", "tanh.7"], "no instruction %tanh.7"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    step, capsys, monkeypatch, tmp_path, arguments, said
):
    monkeypatch.chdir(tmp_path)
    assert run(["draw", str(step), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "a.dot").exists()


def test_a_program_without_a_backward_pass_is_no_picture_of_one(tmp_path):
    path = tmp_path / "forward.hlo"
    path.write_text("HloModule m\nENTRY e { x = f32[4] parameter(0) ROOT n = f32[4] negate(x) }\n")
    with pytest.raises(Unavailable, match="no backward pass"):
        hloscope.draw(path, output=tmp_path / "a.dot", view="remat")


def test_an_instruction_alone_means_its_neighbourhood_and_nothing_means_scopes():
    plain = {"view": None, "around": None, "depth": None, "hops": None, "beside": False}
    assert DrawingView.of(**plain).view is View.SCOPE
    assert DrawingView.of(**{**plain, "around": "x"}).view is View.AROUND
    with pytest.raises(UsageError):
        DrawingView.of(**{**plain, "depth": 0})


def test_an_architecture_is_compiled_with_and_without_where_it_has_the_choice():
    asked = {"batch": "4"}
    assert remat_settings(["batch", "remat"], asked) == (
        {"batch": "4", "remat": "full"},
        {"batch": "4", "remat": "none"},
    )
    assert remat_settings(["remat"], {"remat": "dots"}) == ({"remat": "dots"}, {"remat": "none"})
    assert remat_settings(["remat"], {"remat": "none"}) == ({"remat": "none"}, None)
    assert remat_settings(["batch"], asked) == (asked, None)


def test_an_architectures_second_step_differs_in_remat_only(tmp_path, monkeypatch):
    asked = []

    def load(*_source, **options):
        options.pop("progress")
        asked.append(options)
        chosen = options["settings"].get("remat", "")
        return ModuleSubject(parse_text(KEPT if chosen == "none" else REMAT), chosen)

    monkeypatch.setattr("hloscope.api.load", load)
    common = {"arch": "causal_transformer", "target": "h100", "settings": {"batch": "4"}}
    hloscope.draw(output=tmp_path / "a.dot", view="remat", **common)
    first, second = asked
    assert first == {**common, "settings": {"batch": "4", "remat": "full"}}
    assert second == {**common, "settings": {"batch": "4", "remat": "none"}}
    asked.clear()
    hloscope.draw(output=tmp_path / "a.dot", **common, view="scope")
    assert asked == [common]  # no other view changes what is compiled


def test_steps_of_a_file_are_compiled_for_the_same_target_side_by_side(tmp_path):
    file = tmp_path / "remat.dot"
    report = hloscope.draw(
        f"{EXAMPLES / 'checkpointed.py'}:step",
        beside=f"{EXAMPLES / 'checkpointed.py'}:kept",
        view="remat",
        target="cpu",
        output=file,
    )
    text = file.read_text()
    assert "checkpointed.py:step" in text
    assert "checkpointed.py:kept" in text
    # The CPU compiler merges the repetition with the first computation; other compilers do not.
    assert any("computed again" in note for note in report.notes)
    assert "tanh" in text
