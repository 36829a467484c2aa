import hloscope
from hloscope.ir import parse_text
from hloscope.subjects import ModuleSubject

TEXT = """
HloModule m
ENTRY e {
  a = f32[256,256] constant({...})
  small = f32[4] constant({3, 1, 4, 1})
  ramp = s32[4] constant({0, 1, 2, 3})
  r = f32[256,256] negate(a), metadata={source_file="train.py" source_line=7}
  ROOT t = (f32[256,256], f32[4], s32[4]) tuple(r, small, ramp)
}
"""


def report(**options):
    return hloscope.constants(ModuleSubject(parse_text(TEXT), "m"), **options)


def table(of, name):
    return next(table for table in of.tables if table.name == name)


def test_large_ones_are_listed_and_all_are_summed():
    found = report()
    (row,) = table(found, "constants").rows
    assert row[0].value == 256 * 256 * 4
    assert row[1:5] == ("f32[256,256]", "unknown", "-", "unknown")
    assert row[6] == "train.py:7"
    assert found.summary.startswith("3 constants of 256 KiB in the executable; 1 of 64.0 KiB")


def test_what_is_not_known_is_said():
    assert "contents unknown: the dump elides its elements." in report().notes
    assert any(note.startswith("names and origins unknown") for note in report().notes)


def test_a_smaller_size_lists_more_and_tells_what_they_hold():
    rows = table(report(smallest=1), "constants").rows
    # The same size: by name, "ramp" before "small".
    assert [(row[1], row[2]) for row in rows] == [
        ("f32[256,256]", "unknown"),
        ("s32[4]", "iota"),
        ("f32[4]", "data"),
    ]


def test_everything_names_the_instruction_and_how_the_origin_is_known():
    (row,) = table(report(everything=True), "constants").rows
    assert row[-2:] == ("a", "the arrays that the step held are not known")


def test_a_module_without_large_ones_says_so(fixtures_dir):
    found = hloscope.constants(fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo")
    assert found.summary == (
        "257 constants of 4.61 KiB in the executable, none of them as large as 64.0 KiB."
    )
    assert found.tables == ()
