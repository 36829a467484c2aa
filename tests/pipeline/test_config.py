from dataclasses import fields
from pathlib import Path

import pytest

from hloscope.errors import UsageError
from hloscope.pipeline.audit import audit
from hloscope.pipeline.config import (
    DEFAULT,
    Configuration,
    Suppression,
    find_configuration,
    read_configuration,
)
from hloscope.pipeline.findings import Category, Finding, Severity, Site, Status
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.rules import Limits, Rule
from hloscope.pipeline.session import Session

load_passes()  # the codes that a configuration may name


def finding(code="HS401", **site):
    return Finding(
        code, "float32-product", Category.DTYPE_CHURN, Severity.ERROR, "It costs.", Site(**site)
    )


HEAD = finding(
    op_name="jit(step)/jvp(head)/dot_general",
    file="models/transformer.py",
    line=168,
    leaf="state.params['head']",
)


@pytest.fixture
def project(tmp_path):
    """Writes a pyproject.toml and gives its path."""

    def write(text: str, name: str = "pyproject.toml") -> Path:
        file = tmp_path / name
        file.write_text(text)
        return file

    return write


def test_thresholds_rules_and_suppressions_are_read_from_the_table(project):
    file = project(
        """
        [project]
        name = "mine"
        [tool.hloscope]
        constant_bytes = 4096
        product_flops_share = 0.5
        select = ["HS4", "hs701"]
        ignore = ["HS401:head"]
        """
    )
    config = read_configuration(file)
    assert config.limits == Limits(constant_bytes=4096, product_flops_share=0.5)
    assert config.select == ("HS4", "HS701")
    assert config.ignore == (Suppression("HS401:head", "HS401", "head"),)
    assert config.source == str(file)


def test_the_nearest_file_with_the_table_counts(project, tmp_path):
    project("[tool.hloscope]\nconstant_bytes = 7\n")
    inner = tmp_path / "package" / "module"
    inner.mkdir(parents=True)
    (tmp_path / "package" / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    assert find_configuration(inner).limits.constant_bytes == 7
    (inner / "pyproject.toml").write_text("[tool.hloscope]\nconstant_bytes = 8\n")
    assert find_configuration(inner).limits.constant_bytes == 8


def test_without_a_table_the_defaults_hold(project, tmp_path):
    project("[project]\nname = 'mine'\n")
    assert find_configuration(tmp_path) is DEFAULT
    assert DEFAULT.selects("HS999")


def test_another_file_may_hold_the_keys_at_its_top(project):
    assert read_configuration(project("constant_bytes = 9\n", "audit.toml")) == Configuration(
        Limits(constant_bytes=9), source=str(project("constant_bytes = 9\n", "audit.toml"))
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [("64 MiB", 64 << 20), ("1.5 KiB", 1536), ("2 GB", 2 * 10**9), ("512 B", 512)],
)
def test_sizes_may_be_texts(project, text, number):
    file = project(f'[tool.hloscope]\nconstant_bytes = "{text}"\n')
    assert read_configuration(file).limits.constant_bytes == number


@pytest.mark.parametrize(
    ("line", "says", "hint"),
    [
        ("constant_byte = 1", "constant_byte", "constant_bytes"),
        ("constant_bytes = 1.5", "1.5", "whole number of bytes"),
        ('constant_bytes = "big"', "big", "64 MiB"),
        ("constant_bytes = true", "True", "whole number"),
        ("constant_bytes = -1", "-1", "whole number"),
        ("product_flops_share = 2", "2", "from 0 to 1"),
        ('product_flops_share = "1%"', "1%", "from 0 to 1"),
        ("ignore = 'HS401'", "HS401", "list of texts"),
        ("ignore = ['HS411:head']", "HS411", "HS401"),
        ("select = ['dtype']", "dtype", "HS401"),
    ],
)
def test_what_is_wrong_is_an_error_with_the_file_and_the_nearest_name(project, line, says, hint):
    file = project(f"[tool.hloscope]\n{line}\n")
    with pytest.raises(UsageError) as caught:
        read_configuration(file)
    assert says in caught.value.message
    assert caught.value.place == str(file)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "says"),
    [("[tool.hloscope", "not TOML"), ("[tool]\nhloscope = 1", "not a table"), ("", "no table")],
)
def test_a_file_that_cannot_be_read_is_an_error(project, text, says):
    with pytest.raises(UsageError, match=says):
        read_configuration(project(text))


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        read_configuration(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("place", "matches"),
    [
        ("", True),
        ("head", True),
        ("tail", False),
        ("*/jvp(head)/*", True),
        ("jvp(head)/*", False),  # a pattern is of the whole name
        ("params['head']", True),
        ("state.params['*']", True),  # brackets mean themselves
        ("transformer.py", True),
        ("models/transformer.py", True),
        ("former.py", False),
        ("transformer.py:168", True),
        ("transformer.py:16", False),
    ],
)
def test_a_place_is_a_file_a_line_or_a_part_of_a_scope(place, matches):
    assert Suppression("x", "HS401", place).matches(HEAD) is matches


def test_a_class_covers_all_of_its_rules():
    assert Suppression("HS4", "HS4").matches(HEAD)
    assert not Suppression("HS3", "HS3").matches(HEAD)
    assert not Suppression("HS402", "HS402").matches(HEAD)


class Nothing:
    name = "test"

    def inputs(self):
        return {}

    def header(self):
        return {}


def yields(*findings):
    def function():
        yield from findings

    return Rule("HS401", "float32-product", Category.DTYPE_CHURN, function, "", {})


def audited(config, *findings):
    return audit(Session(Nothing()), Nothing(), {"HS401": yields(*findings)}, config)


def test_a_suppressed_finding_gates_nothing_and_is_named():
    config = Configuration(ignore=(Suppression("HS401:head", "HS401", "head"),))
    other = finding(op_name="jit(step)/mlp", file="mlp.py", line=3)
    report = audited(config, HEAD, other)
    assert report.findings == (other,)
    assert [(one.finding, one.by) for one in report.suppressed] == [(HEAD, "HS401:head")]
    assert report.notes[0] == (
        "1 finding suppressed by ignore = 'HS401:head': HS401 models/transformer.py:168"
    )
    verdict = report.verdicts[3]
    assert (verdict.status, verdict.reason) == (
        Status.FOUND,
        "1 suppressed by the configuration",
    )


def test_a_class_with_nothing_else_says_that_something_was_suppressed():
    report = audited(Configuration(ignore=(Suppression("HS4", "HS4"),)), HEAD)
    verdict = report.verdicts[3]
    assert verdict.status is Status.NONE_FOUND
    assert verdict.reason == "1 suppressed by the configuration"


def test_an_entry_that_matches_nothing_is_named():
    report = audited(Configuration(ignore=(Suppression("HS401:tail", "HS401", "tail"),)), HEAD)
    assert report.findings == (HEAD,)
    assert report.notes[0] == "ignore = 'HS401:tail' matches no finding"


def test_a_rule_that_is_not_selected_is_not_checked():
    report = audited(Configuration(select=("HS3",)), HEAD)
    assert report.findings == ()
    verdict = report.verdicts[3]
    assert verdict.status is Status.NOT_CHECKED
    assert verdict.reason == "not selected by the configuration"


def test_the_thresholds_are_all_documented_with_their_defaults():
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    for each in fields(Limits):
        row = next(line for line in page.splitlines() if line.startswith(f"| `{each.name}` |"))
        shown = row.split("|")[2].strip().strip("`").strip('"')
        number = eval_size(shown)
        assert number == each.default, each.name


def eval_size(text):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    return float(text)


def test_the_entry_for_a_leaf_is_the_first_that_names_it():
    config = Configuration(
        ignore=(
            Suppression("HS701:train.py:7", "HS701", "train.py:7"),
            Suppression("HS703:opt_state", "HS703", "opt_state"),
            Suppression("HS7:state['opt*", "HS7", "state['opt*"),
        )
    )
    assert config.entry_for("HS701", "state['opt_state'].mu") == "HS7:state['opt*"
    assert config.entry_for("HS703", "state['opt_state'].mu") == "HS703:opt_state"
    assert config.entry_for("HS701", "state['params']") == ""
    assert DEFAULT.entry_for("HS701", "state['params']") == ""
