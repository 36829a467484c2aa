# The fakes take what the API takes.
# ruff: noqa: ARG001
import json
import re

import pytest

import hloscope.api
from hloscope.errors import CaptureError, ParseError, UsageError
from hloscope.pipeline.findings import (
    Basis,
    Category,
    Finding,
    Quantity,
    Report,
    Severity,
    Site,
    Unit,
)
from hloscope.pipeline.rules import SECTIONS, Limits


def report_with(*severities, **fields):
    findings = tuple(
        Finding("HS301", "large-constant", Category.BAKED_CONSTANTS, severity, "It costs.", Site())
        for severity in severities
    )
    return Report("audit", "step.hlo", {"target": "cpu"}, findings=findings, **fields)


@pytest.fixture
def audited(monkeypatch):
    """Puts a function in the place of the API's audit, and keeps what it was called with."""
    calls = []

    def put(answer):
        def fake(source=None, **options):
            calls.append((source, options))
            if isinstance(answer, BaseException):
                raise answer
            return answer

        monkeypatch.setattr("hloscope.audit", fake, raising=False)
        return calls

    return put


@pytest.mark.parametrize(
    ("found", "fail_on", "code"),
    [
        ([Severity.ERROR], None, 0),
        ([], "note", 0),
        ([Severity.NOTE], "note", 1),
        ([Severity.NOTE], "warning", 0),
        ([Severity.WARNING], "warning", 1),
        ([Severity.ERROR], "warning", 1),
        ([Severity.WARNING], "error", 0),
        ([Severity.ERROR], "error", 1),
    ],
)
def test_fail_on_decides_the_exit_code(hloscope, audited, found, fail_on, code):
    audited(report_with(*found))
    gate = ["--fail-on", fail_on] if fail_on else []
    assert hloscope("audit", "step.hlo", *gate).code == code


def test_a_failure_inside_exits_2_with_the_report_and_a_message(hloscope, audited):
    audited(report_with(Severity.NOTE, failures=("HS401 failed: ValueError: x",)))
    answer = hloscope("audit", "step.hlo")
    assert answer.code == 2
    assert "HS301 note: It costs." in answer.out
    assert answer.err == "error: HS401 failed: ValueError: x\n"


def test_every_option_reaches_the_api(hloscope, audited):
    calls = audited(report_with())
    answer = hloscope(
        *("audit", "--arch", "unet", "--preset", "smoke", "--set", "batch=4", "--set", "dtype=f"),
        *("--target", "h100:8", "--mesh", "data=2,fsdp=4", "--timeout", "30", "--install"),
        *("--xla", "xla_gpu_enable_triton_gemm=false", "--xla", "--xla_n=3", "--no-cache"),
        *("--trace", "profile_dir"),
        *("--bad", "closed-over", "--bad", "per-step-null", "--bad", "closed-over"),
    )
    assert answer.code == 0, answer.err
    ((source, options),) = calls
    options.pop("progress")
    assert options.pop("config").limits == Limits()
    assert source is None
    assert options == {
        "trace": "profile_dir",
        "arch": "unet",
        "preset": "smoke",
        "settings": {"batch": "4", "dtype": "f"},
        "bad": ("closed-over", "per-step-null"),
        "target": "h100:8",
        "mesh": {"data": 2, "fsdp": 4},
        "xla": {"xla_gpu_enable_triton_gemm": False, "xla_n": 3},
        "timeout": 30.0,
        "install": True,
        "cache": False,
        "module": None,
    }
    assert list(options["mesh"]) == ["data", "fsdp"]


def test_json_is_the_document_and_nothing_else(hloscope, audited):
    audited(report_with(Severity.NOTE))
    answer = hloscope("audit", "step.hlo", "--json")
    document = json.loads(answer.out)
    assert document["schema"] == "hloscope.report/1"
    assert document["findings"][0]["code"] == "HS301"
    assert answer.err == ""


def test_an_error_is_place_what_evidence_and_hint_on_stderr(hloscope, audited):
    audited(
        ParseError(
            "expected a shape", file="a.hlo", line=3, column=5, source="%x = foo", hint="Look."
        )
    )
    answer = hloscope("audit", "a.hlo")
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err == (
        "error: a.hlo:3:5: expected a shape\n    %x = foo\n        ^\nhint: Look.\n"
    )


def test_an_error_under_json_is_a_document_too(hloscope, audited):
    audited(CaptureError("the step cannot be traced", phase="trace", place="train.py:step"))
    answer = hloscope("audit", "train.py:step", "--json")
    assert answer.code == 2
    document = json.loads(answer.out)
    assert document["schema"] == "hloscope.error/1"
    assert (document["kind"], document["phase"]) == ("CaptureError", "trace")
    assert answer.err == "error: train.py:step: the step cannot be traced\n"


def test_a_defect_of_ours_is_a_message_and_its_traceback_is_for_who_asks(
    hloscope, audited, monkeypatch
):
    audited(ZeroDivisionError("division by zero"))
    monkeypatch.delenv("HLOSCOPE_TRACEBACK", raising=False)
    answer = hloscope("audit", "step.hlo")
    assert answer.code == 2
    assert "hloscope itself failed: ZeroDivisionError: division by zero" in answer.err
    assert "Traceback" not in answer.err
    monkeypatch.setenv("HLOSCOPE_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        hloscope("audit", "step.hlo")


def test_interruption_exits_130(hloscope, audited):
    audited(KeyboardInterrupt())
    answer = hloscope("audit", "step.hlo")
    assert answer.code == 130
    assert answer.err == "interrupted\n"


def test_phases_of_over_a_second_leave_a_line_on_stderr(hloscope, monkeypatch):
    def fake(source=None, *, progress, **options):
        for phase, seconds in (("trace", 0.5), ("compile", 24.06)):
            progress(phase, None)
            progress(phase, seconds)
        return report_with()

    monkeypatch.setattr("hloscope.audit", fake, raising=False)
    assert hloscope("audit", "step.hlo").err == "compile: 24.1 s\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["audti"], "Did you mean 'audit'?"),
        (["audit", "--taget", "h100", "x.hlo"], "--target"),
        (["audit", "--fail-on", "fatal", "x.hlo"], "'note', 'warning', 'error'"),
        (["check", "donations"], "Did you mean 'donation'?"),
        (["audit", "--mesh", "data", "x.hlo"], "data=2,fsdp=4"),
        (["audit", "--set", "batch", "--arch", "unet"], "key=value"),
        (["audit"], "nothing to look at"),
        (["audit", "--arch", "unet", "x.hlo"], "both SOURCE (x.hlo) and --arch unet"),
        (["audit", "--preset", "smoke", "train.py:step"], "only --arch has them"),
        (["audit", "--arch", "unet", "--module", "m"], "--module does not apply"),
        (["explain", "HS999"], "there is no rule HS999"),
    ],
)
def test_a_request_that_cannot_be_meant_exits_2_with_the_way_out(hloscope, arguments, said):
    answer = hloscope(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_a_usage_error_under_json_is_a_document(hloscope):
    answer = hloscope("audit", "--taget", "h100", "--json")
    assert answer.code == 2
    document = json.loads(answer.out)
    assert (document["kind"], document["place"]) == ("UsageError", "hloscope audit")


def test_no_command_at_all_shows_the_help(hloscope):
    answer = hloscope()
    assert answer.code == 2
    assert "Commands:" in answer.out + answer.err


@pytest.mark.parametrize("passed", [True, False])
def test_a_check_exits_by_whether_it_holds(hloscope, monkeypatch, passed):
    asked = []

    def fake(name, source=None, **options):
        asked.append((name, source))
        return Report("check donation", "x", {}, passed=passed, summary="So it is.")

    monkeypatch.setattr("hloscope.check", fake, raising=False)
    answer = hloscope("check", "donation", "x.hlo")
    assert answer.code == (0 if passed else 1)
    assert answer.out.startswith("So it is.\n")
    assert asked == [("donation", "x.hlo")]


def test_list_asks_for_the_modules_instead(hloscope, audited, monkeypatch):
    calls = audited(report_with())

    def listed(source=None, **options):
        return Report("list", source, {"modules": Quantity("modules", 3)})

    monkeypatch.setattr(hloscope_api(), "list_modules", listed)
    answer = hloscope("audit", "dump/", "--list")
    assert answer.code == 0
    assert "modules  3" in answer.out
    assert calls == []


def hloscope_api():
    return hloscope.api


def test_archs_lists_every_architecture_with_its_presets(hloscope):
    text = hloscope("archs").out
    assert "unet" in text
    assert "causal_transformer" in text
    document = json.loads(hloscope("archs", "--json").out)
    table = document["tables"][0]
    assert table["name"] == "archs"
    assert {row[0] for row in table["rows"]} >= {"unet", "causal_transformer", "hierarchical_mmdit"}
    bad = next(table for table in document["tables"] if table["name"] == "bad")
    assert ["undonated-state", "HS701", "all"] in bad["rows"]


def test_archs_with_a_name_says_what_that_one_takes_and_a_wrong_name_is_refused(hloscope):
    text = hloscope("archs", "moe_transformer").out
    assert "mesh axes   data, fsdp, tensor, sequence, expert" in text
    for word in ("head_chunks", "dots_with_no_batch_dims", "undonated-state"):
        assert f"{word} " in text or f"{word}," in text
    document = json.loads(hloscope("archs", "unet", "--json").out)
    assert [table["name"] for table in document["tables"]] == ["settings", "bad"]
    wrong = hloscope("archs", "unett")
    assert wrong.code == 2
    assert "Did you mean unet" in wrong.err


def test_explain_shows_a_rule_by_code_or_name_and_lists_them_without(hloscope):
    text = hloscope("explain", "hs301").out
    assert text.startswith("HS301 large-constant\nclass 3: baked constants\n")
    for title in SECTIONS:
        assert f"\n{title}\n  " in text
    assert hloscope("explain", "large-constant").out == text
    document = json.loads(hloscope("explain", "HS301", "--json").out)
    assert [section["title"] for section in document["sections"]] == list(SECTIONS)
    assert {"HS301", "HS401", "HS701"} <= set(hloscope("explain").out.split())


def test_the_version_names_jax_and_jaxlib_too(hloscope):
    answer = hloscope("--version")
    assert answer.code == 0
    assert re.fullmatch(r"hloscope \S+ \(jax \S+, jaxlib \S+\)\n", answer.out)


def test_targets_are_listed_without_a_command(hloscope, tmp_path, monkeypatch):
    monkeypatch.setenv("HLOSCOPE_CACHE_DIR", str(tmp_path))
    assert "H100 SXM5" in hloscope("targets").out
    document = json.loads(hloscope("targets", "--json").out)
    assert document["tables"][0]["name"] == "targets"
    assert "Nothing had to be installed" in hloscope("targets", "install", "cpu").out
    assert hloscope("targets", "remove", "v5e").out.startswith("Nothing to remove.\n")
    assert hloscope("targets", "install", "h10").code == 2


def test_every_command_explains_itself_at_eighty_columns_with_an_example(hloscope, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in (
        ["audit"],
        ["flops"],
        ["check", "donation"],
        ["archs"],
        ["kernels"],
        ["bench"],
        ["targets"],
        ["targets", "install"],
        ["targets", "remove"],
        ["explain"],
    ):
        answer = hloscope(*command, "--help")
        assert answer.code == 0
        assert max(len(line) for line in answer.out.splitlines()) <= 80
        assert f"hloscope {' '.join(command)}" in answer.out.split("Examples:")[1]


def test_the_summary_beside_a_command_is_its_own_first_sentence(hloscope):
    listed = hloscope("--help").out.split("Commands:\n")[1].split("\n\n")[0]
    for row in listed.splitlines():
        name, summary = row.split(maxsplit=1)
        assert f"  {summary}\n" in hloscope(name, "--help").out


def test_unknown_numbers_are_said_to_be_unknown(hloscope, audited):
    unknown = Quantity("peak", None, Unit.BYTES, Basis.UNKNOWN)
    audited(Report("audit", "x", {"peak": unknown}))
    assert "peak     unknown\n" in hloscope("audit", "x.hlo").out


def test_usage_errors_carry_their_place(hloscope, audited):
    audited(UsageError("no such axis", place="--mesh d=2", hint="Use data."))
    assert hloscope("audit", "x.hlo").err == "error: --mesh d=2: no such axis\nhint: Use data.\n"
