"""``hloscope remat``: what a user reads of checkpoints, one program or several policies."""

from __future__ import annotations

import io

import pytest

import hloscope
from hloscope.api import compare_remat
from hloscope.errors import TargetError, UsageError
from hloscope.report import terminal


def written(report):
    stream = io.StringIO()
    terminal.write(report, stream)
    return stream.getvalue()


def table(report, name):
    return next(table for table in report.tables if table.name == name)


def test_a_recorded_step_says_what_runs_again_and_what_it_spares(fixtures_dir):
    report = hloscope.remat(fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo")
    assert "20.2% of the step's product FLOPs run again" in report.summary
    assert "It repeats 7 exchanges between devices." in report.summary
    figures = {row[0]: row[1].value for row in table(report, "step").rows}
    assert figures["recomputed"] == sum(row[2].value for row in table(report, "regions").rows)
    assert figures["rebuilt"] > figures["kept"] > 0
    assert any("does not tell" in note or "not known" in note for note in report.notes)
    assert max(map(len, written(report).splitlines())) <= 80


def test_a_step_without_a_checkpoint_says_so_first(fixtures_dir):
    report = hloscope.remat(fixtures_dir / "compiled" / "today" / "gpu_scan_train.hlo")
    assert report.summary == "Nothing is computed again: no checkpoint in the step."
    assert [table.name for table in report.tables] == ["step"]


def test_an_unscheduled_module_does_not_pretend_to_know_what_is_spared(fixtures_dir):
    report = hloscope.remat(fixtures_dir / "hlo" / "gpu_maxtext_1n1g_before_optimizations.hlo")
    assert "rebuilt" not in {row[0] for row in table(report, "step").rows}
    assert any("not scheduled" in note for note in report.notes)


@pytest.fixture(scope="module")
def ladder(need_target):
    need_target("h100")
    return compare_remat(
        ["none", "dots", "full"], arch="causal_transformer", preset="smoke", target="h100"
    )


def test_policies_keep_less_the_more_they_run_again(ladder):
    rows = {row[0]: row for row in table(ladder, "policies").rows}
    kept = [rows[policy][3].value for policy in ("none", "dots", "full")]
    again = [rows[policy][4].value for policy in ("none", "dots", "full")]
    assert kept == sorted(kept, reverse=True)
    assert again[0] == again[1] == 0 < again[2]
    assert {row[7] for row in rows.values()} == {"yes"}


def test_the_cheapest_that_fits_runs_nothing_again_where_there_is_room(ladder):
    assert ladder.summary.startswith("Cheapest that fits h100: none, which runs nothing again;")


def test_what_cannot_be_compared_is_refused_before_anything_is_compiled():
    with pytest.raises(UsageError, match="no value of remat"):
        compare_remat(["none", "half"], arch="causal_transformer")
    with pytest.raises(UsageError, match="has no option 'remat'"):
        compare_remat(["none"], arch="unet")
    with pytest.raises(UsageError, match="for an architecture"):
        compare_remat(["none"])
    with pytest.raises(TargetError):
        compare_remat(["none"], arch="causal_transformer", chip="h1000")
