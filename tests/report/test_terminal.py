import dataclasses
import io
import re

import pytest

from hloscope.pipeline.findings import Basis, Category, Column, Quantity, Report, Table, Text, Unit
from hloscope.pipeline.rules import SECTIONS, RuleRegistry
from hloscope.report import terminal
from hloscope.report.json import report_document


class Terminal(io.StringIO):
    def isatty(self):
        return True


def written(report, **options):
    stream = io.StringIO()
    terminal.write(report, stream, **options)
    return stream.getvalue()


def test_the_report_reads_from_verdict_to_evidence_to_fix_to_trust(report):
    assert written(report) == (
        "1 warning in 1 of 2 classes checked; 7 not checked.\n"
        "\n"
        "subject  train.py:step\n"
        "target   h100\n"
        "compile  24.1 s\n"
        "\n"
        "1  sync in hot paths      not checked  no rule for this yet\n"
        "2  recompilation          not checked  no rule for this yet\n"
        "3  baked constants        found        1 finding, 12.0 MiB\n"
        "4  dtype churn            not checked  no rule for this yet\n"
        "5  redundant work         not checked  no rule for this yet\n"
        "6  data path              not checked  no rule for this yet\n"
        "7  sharding and donation  none found   HS702 not checked: no trace given\n"
        "8  compile time           not checked  no rule for this yet\n"
        "9  memory                 not checked  no rule for this yet\n"
        "\n"
        "HS301 warning: A literal of real data is baked into the executable.\n"
        "  at       train.py:41\n"
        "  scope    jit(train_step)/transpose(jvp(UNet))/down_blocks_1/../dot_general\n"
        "  leaf     state['params']['table']\n"
        "  hlo      %constant.3 in main.7\n"
        "  evidence size 12.0 MiB, time 12.5 ms (modelled: roofline), copies unknown\n"
        "  note     it is no splat\n"
        "  fix      Pass it as an argument of the step.\n"
        "\n"
        "FLOPs by kind\n"
        "kind              flops\n"
        "dot          3.10 GFLOP\n"
        "convolution        none\n"
        "fusions are counted by what they hold\n"
        "\n"
        "trust: 31,855 instructions read; 12 of 14 custom calls understood; 0 of 3 loops\n"
        "       with a known trip count.\n"
        "       2 custom calls of unknown cost: my_kernel\n"
        "note: constants of under 1 MiB are not listed\n"
    )


def test_nothing_is_wider_than_eighty_columns_off_a_terminal(report):
    long = dataclasses.replace(
        report.findings[0],
        message="word " * 60,
        site=dataclasses.replace(report.findings[0].site, leaf="state" + "['deep']" * 40),
    )
    columns = (Column("a"), Column("b"), Column("n", Unit.BYTES))
    row = ("x" * 200, "y" * 90, Quantity("n", 1, Unit.BYTES))
    wide = Table("t", "T", columns, (row,))
    text = written(dataclasses.replace(report, findings=(long,), tables=(wide,)))
    assert max(len(line) for line in text.splitlines()) <= 80


def test_a_pipe_gets_no_escape_codes(report, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in written(report)


def test_a_terminal_gets_colour_unless_no_color_is_set(report, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    plain = written(report)
    stream = Terminal()
    terminal.write(report, stream)
    assert "\x1b[" in stream.getvalue()
    assert re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    terminal.write(report, stream)
    assert stream.getvalue() == plain


def test_control_characters_from_a_dump_are_shown_not_obeyed(report):
    site = dataclasses.replace(report.findings[0].site, op_name="jit(f)/\x1b[31mred\x07")
    evil = dataclasses.replace(report.findings[0], site=site)
    text = written(dataclasses.replace(report, findings=(evil,)))
    assert "\x1b" not in text
    assert "\\x1b[31mred\\x07" in text


def test_many_findings_of_one_code_are_counted_rather_than_printed(report):
    many = report.findings * (terminal.SHOWN_PER_CODE + 7)
    text = written(dataclasses.replace(report, findings=many))
    assert text.count("HS301 warning") == terminal.SHOWN_PER_CODE
    assert "and 7 more HS301, listed by --json" in text


@pytest.mark.parametrize(
    ("cost", "said"), [(None, "2 findings"), (5 * 2**20, "2 findings, largest 12.0 MiB")]
)
def test_a_verdict_says_how_many_and_the_largest_at_stake(report, cost, said):
    first = report.findings[0]
    if cost is None:
        pair = (dataclasses.replace(first, cost=None),) * 2
    else:
        pair = (first, dataclasses.replace(first, cost=Quantity("size", cost, Unit.BYTES)))
    text = written(dataclasses.replace(report, findings=pair))
    row = next(line for line in text.splitlines() if line.startswith("3  "))
    assert row == f"3  baked constants        found        {said}"


def test_how_several_quantities_in_a_row_are_known_is_said_once(report):
    def modelled(name, value, model="roofline"):
        return Quantity(name, value, Unit.SECONDS, Basis.MODELLED, model)

    evidence = (
        Quantity("bytes", 2048, Unit.BYTES),
        modelled("floor", 1.0),
        modelled("memory", 0.5),
        modelled("links", 0.25, "ring"),
    )
    finding = dataclasses.replace(report.findings[0], evidence=evidence, cost=evidence[0])
    text = " ".join(written(dataclasses.replace(report, findings=(finding,))).split())
    assert (
        "bytes 2.00 KiB, floor 1.00 s, memory 500 ms (both modelled: roofline), "
        "links 250 ms (modelled: ring)"
    ) in text


def test_a_failure_inside_is_told_in_the_report(report):
    text = written(dataclasses.replace(report, failures=("HS401 failed: ValueError: x",)))
    assert text.endswith("failed: HS401 failed: ValueError: x\n")


def test_a_report_of_one_table_is_just_that_table():
    table = Table("archs", "", (Column("name"), Column("presets")), (("unet", "smoke, small"),))
    assert written(Report("archs", "", {}, tables=(table,))) == (
        "name  presets\nunet  smoke, small\n"
    )


def test_how_a_tables_numbers_are_known_stands_below_it_under_a_letter():
    def flops(value, basis=Basis.EXACT, model=None):
        return Quantity("flops", value, Unit.FLOPS, basis, model)

    columns = (Column("kind"), Column("FLOPs", Unit.FLOPS))
    rows = (
        ("dot", flops(3_000_000)),
        ("kernel", flops(12_000_000, Basis.MODELLED, "its author")),
        ("call", flops(None, Basis.UNKNOWN)),
    )
    assert written(Report("flops", "", {}, tables=(Table("t", "", columns, rows),))) == (
        "kind         FLOPs\n"
        "dot     3.00 MFLOP\n"
        "kernel  12.0 MFLOP [a]\n"
        "call       unknown\n"
        "[a] modelled: its author\n"
    )


def spacious() -> Table:
    columns = (
        Column("buffer", text=Text.NAME, spare=True),
        Column("leaf", text=Text.PATH),
        Column("bytes", Unit.BYTES),
    )
    leaf = "state['opt_state'][0].mu['decoder']['layers']['mlp']['up_projection']['kernel']"
    row = ("a_fusion_with_a_very_long_name.12", leaf, Quantity("bytes", 2048, Unit.BYTES))
    return Table("t", "Buffers", columns, (row,))


def test_a_spare_column_gives_way_and_is_said_to_be_missing(monkeypatch):
    report = Report("memory", "", {}, tables=(spacious(),))
    monkeypatch.setenv("COLUMNS", "60")
    assert written(report).splitlines() == [
        "Buffers",
        "leaf                                                   bytes",
        "state/opt_state/../layers/mlp/up_projection/kernel  2.00 KiB",
        "no room for: buffer; a wider terminal or --json has it",
    ]


def test_with_room_nothing_is_left_out_or_shortened(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    text = written(Report("memory", "", {}, tables=(spacious(),)))
    assert "a_fusion_with_a_very_long_name.12" in text
    assert "state['opt_state'][0].mu['decoder']" in text
    assert "no room" not in text


def test_a_long_title_of_a_table_wraps(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    title = " ".join(["rows of a kernel"] * 6)
    table = Table("t", title, (Column("kind"),), (("dot",),))
    lines = written(Report("flops", "", {}, tables=(table,))).splitlines()
    assert max(map(len, lines)) <= 60
    assert " ".join(lines[:-2]) == title


def test_a_column_that_is_not_drawn_is_in_the_document_alone():
    columns = (Column("kind"), Column("reason", drawn=False))
    report = Report("flops", "", {}, tables=(Table("t", "", columns, (("dot", "why"),)),))
    assert written(report) == "kind\ndot\n"
    assert "why" in str(report_document(report))


def test_a_table_without_rows_is_its_note():
    table = Table("t", "By kind", (Column("kind"),), (), "There are none.")
    assert written(Report("flops", "", {}, tables=(table,))) == "By kind\nThere are none.\n"


def test_a_rule_is_explained_section_by_section():
    rules = RuleRegistry()

    def function():
        yield from ()

    function.__doc__ = "Large literals.\n\n" + "\n".join(
        f"{title}:\n    Text of it:\n\n        code()\n" for title in SECTIONS
    )
    rules.register("HS301", "large-constant", Category.BAKED_CONSTANTS)(function)
    stream = io.StringIO()
    terminal.write_rule(rules["HS301"], stream)
    sections = "".join(f"\n{title}\n  Text of it:\n\n      code()\n" for title in SECTIONS)
    assert stream.getvalue() == (
        "HS301 large-constant\nclass 3: baked constants\n\nLarge literals.\n" + sections
    )
