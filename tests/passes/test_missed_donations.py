from hloscope.ir import parse_text
from hloscope.ir.signature import InputLeaf, OutputLeaf, Role, Signature
from hloscope.passes.aliasing import find_aliasing
from hloscope.passes.missed_donations import find_missed_donations

TEXT = """
HloModule m
ENTRY e {
  cache = f32[1024,512]{1,0} parameter(0)
  x = f32[1024,512]{1,0} parameter(1)
  frozen = f32[256,512]{1,0} parameter(2)
  a = f32[1024,512]{1,0} add(cache, x)
  b = f32[256,512]{1,0} negate(frozen)
  ROOT t = (f32[1024,512]{1,0}, f32[256,512]{1,0}) tuple(a, b)
}
"""


def leaf(path, number, dimensions, role=Role.OTHER, donated=False):
    return InputLeaf(path, role, "f32", dimensions, donated, number)


def signature(frozen_role=Role.FROZEN):
    return Signature(
        (
            leaf("x['v']", 1, (1024, 512), Role.BATCH),
            leaf("cache['k']", 0, (1024, 512)),
            leaf("frozen", 2, (256, 512), frozen_role),
        ),
        (OutputLeaf("[0]['k']", "f32", (1024, 512), 0), OutputLeaf("[1]", "f32", (256, 512), 1)),
    )


def missed(text=TEXT, given=None):
    module = parse_text(text)
    given = given or signature()
    return find_missed_donations(module, given, find_aliasing(module, given))


def test_the_argument_whose_new_value_the_result_is_comes_before_others_of_its_shape():
    (pair,) = missed().missed
    assert (pair.leaf.leaf.path, pair.output.path, pair.updated) == ("cache['k']", "[0]['k']", True)
    assert pair.bytes == 1024 * 512 * 4


def test_the_bytes_beside_it_are_of_all_arguments_and_results():
    large, small = 1024 * 512 * 4, 256 * 512 * 4
    assert missed().entry_bytes == (2 * large + small) + (large + small)


def test_a_frozen_argument_is_passed_again_and_not_offered():
    assert [pair.leaf.leaf.path for pair in missed().missed] == ["cache['k']"]
    offered = missed(given=signature(Role.OTHER)).missed
    assert [pair.leaf.leaf.path for pair in offered] == ["cache['k']", "frozen"]


def test_another_layout_is_no_fit():
    other = TEXT.replace("a = f32[1024,512]{1,0}", "a = f32[1024,512]{0,1}").replace(
        "ROOT t = (f32[1024,512]{1,0}", "ROOT t = (f32[1024,512]{0,1}"
    )
    assert missed(other).missed == ()


def test_an_aliased_result_misses_nothing():
    aliased = TEXT.replace("HloModule m", "HloModule m, input_output_alias={ {0}: (0, {}) }")
    assert missed(aliased).missed == ()


def test_the_new_value_of_a_donated_leaf_is_not_offered_to_another():
    # The donated state comes back in another dtype: that is to mend, and no batch to donate.
    text = """
    HloModule m, buffer_donor={ (0, {}) }
    ENTRY e {
      mu = bf16[1024]{0} parameter(0)
      x = f32[1024]{0} parameter(1)
      ROOT r = f32[1024]{0} convert(mu)
    }
    """
    mu = InputLeaf("state['mu']", Role.STATE, "bf16", (1024,), True, 0)
    given = Signature(
        (mu, leaf("x", 1, (1024,), Role.BATCH)), (OutputLeaf("['mu']", "f32", (1024,), 0),)
    )
    assert missed(text, given).missed == ()
