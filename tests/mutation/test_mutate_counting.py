"""Breaking a counting rule makes some test fail; the whole table takes minutes, so run a part."""

import pytest
from mutation.mutate_counting import MUTANTS, ROOT, surviving


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_every_edit_of_the_table_fits_its_file_and_changes_it(mutant):
    text = (ROOT / "passes" / mutant.file).read_text(encoding="utf-8")
    assert mutant.old in text
    assert mutant.old != mutant.new
    assert all((ROOT / "tests" / "passes" / test).exists() for test in mutant.tests)


@pytest.mark.slow
def test_a_broken_rule_of_every_file_is_noticed():
    one_a_file = {mutant.file: mutant for mutant in MUTANTS}
    assert len(one_a_file) > 15
    assert surviving(list(one_a_file.values()), jobs=2) == []
