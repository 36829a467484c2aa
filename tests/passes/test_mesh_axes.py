"""Replica groups against the axes of the mesh."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloscope.passes.mesh_axes import axes_of_groups, axes_of_pairs
from hloscope.pipeline.inputs import MeshAxes

MESH = MeshAxes({"data": 2, "fsdp": 4, "tensor": 2})


def groups_over(axes, mesh):
    """The same by NumPy: move the axes to the end, and every row is a group."""
    names, sizes = list(mesh.sizes), list(mesh.sizes.values())
    devices = np.arange(np.prod(sizes)).reshape(sizes)
    last = [names.index(axis) for axis in axes]
    rest = [k for k in range(len(names)) if k not in last]
    rows = devices.transpose(rest + last).reshape(-1, int(np.prod([sizes[k] for k in last])))
    return tuple(tuple(int(device) for device in row) for row in rows)


@given(st.sets(st.sampled_from(["data", "fsdp", "tensor"]), min_size=1))
def test_the_axes_come_back_from_the_groups_that_they_make(axes):
    named = tuple(axis for axis in MESH.sizes if axis in axes)
    assert axes_of_groups(groups_over(named, MESH), MESH) == named


def test_the_order_of_groups_and_within_groups_does_not_matter():
    groups = tuple(reversed([tuple(reversed(g)) for g in groups_over(["fsdp"], MESH)]))
    assert axes_of_groups(groups, MESH) == ("fsdp",)


def test_no_groups_means_all_devices():
    assert axes_of_groups((), MESH) == ("data", "fsdp", "tensor")


def test_groups_that_follow_no_axis_have_no_name():
    assert axes_of_groups(((0, 3), (1, 2)), MeshAxes({"data": 4})) is None


def test_an_axis_of_one_device_is_never_named():
    mesh = MeshAxes({"data": 4, "tensor": 1})
    assert axes_of_groups(((0, 1, 2, 3),), mesh) == ("data",)


@pytest.mark.parametrize(
    ("pairs", "axes"),
    [
        ([(0, 1), (1, 0)], ("tensor",)),
        ([(0, 2), (2, 4), (4, 6), (6, 0)], ("fsdp",)),
        ([(0, 8), (8, 0)], ("data",)),
        ([(0, 3)], ("fsdp", "tensor")),
        ([(0, 0)], ()),
    ],
)
def test_a_permute_runs_along_the_axes_in_which_its_ends_differ(pairs, axes):
    assert axes_of_pairs(pairs, MESH) == axes


def test_a_permute_between_devices_outside_of_the_mesh_has_no_axes():
    assert axes_of_pairs([(0, 99)], MESH) is None


def test_groups_of_other_devices_than_the_meshs_follow_no_axes_however_large_it_is():
    mesh = MeshAxes({"data": 2, "model": 99_999_999_999})
    assert axes_of_groups(((0, 1),), mesh) is None
    assert axes_of_groups((), mesh) == ("data", "model")
