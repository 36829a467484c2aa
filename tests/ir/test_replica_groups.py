"""Replica groups in each spelling, against numpy's own reshape and transpose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloscope.ir.replica_groups import parse_replica_groups


def test_lists_are_taken_as_they_stand():
    assert parse_replica_groups("{{0,1},{2,3}}") == ((0, 1), (2, 3))
    assert parse_replica_groups("{{0},{1,2,3}}") == ((0,), (1, 2, 3))
    assert parse_replica_groups("{}") == ()


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['dp'=2,'tp'=4] {'tp'}", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("mesh['dp'=2,'tp'=4] {'dp'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['dp'=2,'tp'=4] {'dp','tp'}", (tuple(range(8)),)),
        ("mesh['a'=4], device_ids=(3,2,1,0) {'a'}", ((3, 2, 1, 0),)),
        ("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}", ((0, 2), (1, 3))),
        ("mesh['a'=4] {'a':(1)2}", ((0, 2), (1, 3))),
        ("mesh['a'=4] {'a':(2)2}", ((0, 1), (2, 3))),
    ],
)
def test_the_spellings_that_xla_prints(text, groups):
    assert parse_replica_groups(text) == groups


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.randoms())
def test_iota_is_arange_reshape_transpose_reshape(shape, random):
    permutation = list(range(len(shape)))
    random.shuffle(permutation)
    total = int(np.prod(shape))
    size = random.choice([n for n in range(1, total + 1) if total % n == 0])
    expected = np.arange(total).reshape(shape).transpose(permutation).reshape(-1, size)
    text = (
        f"[{total // size},{size}]<=[{','.join(map(str, shape))}]"
        f"T({','.join(map(str, permutation))})"
    )
    assert parse_replica_groups(text) == tuple(map(tuple, expected.tolist()))


@pytest.mark.parametrize(
    "text",
    [
        "[2,4]<=[9]",
        "[2,4]<=[2,4]T(0,0)",
        "[8]<=[8]",
        "[0,4]<=[0]",
        "mesh['a'=2] {'b'}",
        "mesh['a'=0] {'a'}",
        "mesh['a'=99999999,'b'=99999999] {'a'}",
        "mesh['a'=4] {'a':(0)2}",
        "junk",
    ],
)
def test_groups_that_do_not_multiply_out_are_refused(text):
    with pytest.raises(ValueError, match=r"multiply|axis|expected|permutation|names no"):
        parse_replica_groups(text)
