import pytest

from hloscope.ir.argument_roles import find_updated, guess_roles
from hloscope.ir.signature import Role


@pytest.mark.parametrize(
    ("donated", "results", "updated"),
    [
        ({"state": [(4,)], "x": [(8,)]}, [(4,), ()], {"state"}),  # the batch becomes nothing
        ({"x": [(8,)]}, [(8,)], {"x"}),
        ({"logits": [(8, 2)]}, [()], set()),
        ({"state": [(4,)], "spare": [(4,)]}, [(4,)], {"state"}),  # one result for two
        ({"state": [(4,)], "spare": [(4,)]}, [(4,), (4,)], {"state", "spare"}),
        ({"params": [(4,)]}, [(6,)], {"params"}),  # grown, and named so
        ({"counters": [()]}, [()], {"counters"}),
        ({"data": [(8,), ()]}, [()], set()),  # any step returns some scalar
    ],
)
def test_a_donated_argument_is_updated_where_a_result_can_be_its_new_value(
    donated, results, updated
):
    assert find_updated(donated, results) == updated


def test_what_is_donated_but_not_updated_keeps_the_role_of_its_name():
    roles = guess_roles(["state", "batch", "logits"], find_updated({"batch": [(8,)]}, [()]))
    assert roles == {"state": Role.STATE, "batch": Role.BATCH, "logits": Role.OTHER}
