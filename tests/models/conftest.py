"""Steps of hloscope's own architectures, built and traced once for all tests."""

from __future__ import annotations

import functools
from typing import Any

import jax
import pytest

from hloscope.models import registry


@functools.cache
def _built(name: str, preset: str, options: tuple[tuple[str, str], ...]) -> Any:
    return registry.get(name).build(preset, dict(options))


@functools.cache
def _traced(name: str, preset: str, options: tuple[tuple[str, str], ...]) -> Any:
    step = _built(name, preset, options)
    return jax.make_jaxpr(step.fn)(*step.args)


@pytest.fixture(scope="session")
def built():
    """The step of an architecture with some options, at ``small`` where nothing is said."""
    return lambda name, preset="small", **options: _built(name, preset, tuple(options.items()))


@pytest.fixture(scope="session")
def traced():
    """The jaxpr of such a step."""
    return lambda name, preset="small", **options: _traced(name, preset, tuple(options.items()))
