import pytest

from hloscope.errors import UsageError
from hloscope.pipeline.findings import Category
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.rules import RULES, SECTIONS, RuleRegistry, parse_docstring

SECTION_TEXT = """
    What it does:
        Looks for literals.

    Why it costs:
        They sit in the executable.

    Example:
        .. code::

            f = jit(lambda x: x + table)

    Use instead:
        Pass the table as an argument.
"""


def literals():
    yield from ()


def with_doc(doc):
    def function():
        yield from ()

    function.__doc__ = doc
    return function


def test_a_rule_keeps_its_docstring_section_by_section():
    rules = RuleRegistry()
    function = with_doc("Literals in the\n    executable.\n\n    More words.\n" + SECTION_TEXT)
    assert rules.register("HS301", "large-constant", Category.BAKED_CONSTANTS)(function) is function
    rule = rules["HS301"]
    assert rule.summary == "Literals in the executable."
    assert tuple(rule.sections) == SECTIONS
    assert rule.sections["Why it costs"] == "They sit in the executable."
    assert rule.sections["Example"] == ".. code::\n\n    f = jit(lambda x: x + table)"


@pytest.mark.parametrize("heading", SECTIONS)
def test_a_docstring_that_lacks_a_section_is_refused_by_its_name(heading):
    doc = SECTION_TEXT.replace(f"{heading}:", "Something:")
    register = RuleRegistry().register("HS301", "large-constant", Category.BAKED_CONSTANTS)
    with pytest.raises(ValueError, match=f"HS301: the docstring lacks '{heading}'"):
        register(with_doc(doc))


def test_an_empty_section_counts_as_missing():
    doc = SECTION_TEXT.replace("        Pass the table as an argument.\n", "")
    with pytest.raises(ValueError, match="lacks 'Use instead'"):
        parse_docstring("HS301", doc)


def test_headings_may_be_written_with_number_signs():
    doc = "\n".join(f"## {title}\n\ntext of {title}\n" for title in SECTIONS)
    summary, sections = parse_docstring("HS301", doc)
    assert summary == ""
    assert sections == {title: f"text of {title}" for title in SECTIONS}


def test_sections_out_of_order_or_twice_are_refused():
    order = [SECTIONS[1], SECTIONS[0], *SECTIONS[2:]]
    with pytest.raises(ValueError, match="come in the order"):
        parse_docstring("HS301", "\n".join(f"{title}\ntext" for title in order))
    with pytest.raises(ValueError, match="twice"):
        parse_docstring("HS301", "\n".join(f"{title}\ntext" for title in (*SECTIONS, SECTIONS[0])))


@pytest.mark.parametrize(
    ("code", "name", "category"),
    [
        ("HS401", "large-constant", Category.BAKED_CONSTANTS),
        ("HS31", "large-constant", Category.BAKED_CONSTANTS),
        ("HS301", "Large constant", Category.BAKED_CONSTANTS),
    ],
)
def test_codes_and_names_have_one_form(code, name, category):
    with pytest.raises(ValueError, match=code):
        RuleRegistry().register(code, name, category)


def test_a_code_or_a_name_is_given_once():
    rules = RuleRegistry()
    rules.register("HS301", "large-constant", Category.BAKED_CONSTANTS)(with_doc(SECTION_TEXT))
    with pytest.raises(ValueError, match="taken by HS301"):
        rules.register("HS301", "other", Category.BAKED_CONSTANTS)
    with pytest.raises(ValueError, match="taken by HS301"):
        rules.register("HS302", "large-constant", Category.BAKED_CONSTANTS)


def test_explain_finds_by_code_or_name_and_gives_the_nearest():
    rules = RuleRegistry()
    rules.register("HS301", "large-constant", Category.BAKED_CONSTANTS)(with_doc(SECTION_TEXT))
    rules.register("HS701", "unaliased-state", Category.SHARDING)(with_doc(SECTION_TEXT))
    assert rules.explain("hs301").name == "large-constant"
    assert rules.explain("unaliased-state").code == "HS701"
    with pytest.raises(UsageError) as raised:
        rules.explain("HS302")
    assert "HS301 (large-constant)" in (raised.value.hint or "")
    with pytest.raises(UsageError) as raised:
        rules.explain("large-const")
    assert raised.value.hint == "Try one of: HS301 (large-constant)."


def test_every_pass_of_the_package_can_be_loaded_twice():
    first = load_passes()
    rules = dict(RULES)
    assert load_passes() == first
    assert dict(RULES) == rules
    assert "hloscope.passes.rules" in first
