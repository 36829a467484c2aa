"""Steps of real JAX code, compiled as a user's file would be."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from hloscope.ir import Module
from hloscope.pipeline.findings import Finding
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.rules import RULES, Limits, call
from hloscope.pipeline.session import Session
from hloscope.traces.summary import Trace

HEAD = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from hloscope import Step

def shape(*sizes, dtype="float32", **more):
    return jax.ShapeDtypeStruct(sizes, dtype, **more)
"""


@pytest.fixture
def captured(tmp_path, need_target):
    """Compile the ``step`` of some code; gives a session over the artifact."""
    import hloscope

    load_passes()

    def make(
        code: str, target: str = "cpu", limits: Limits | None = None, **xla: bool | int | str
    ) -> Session:
        need_target(target)
        file = tmp_path / "train.py"
        file.write_text(HEAD + textwrap.dedent(code))
        subject = hloscope.load(f"{file}:step", target=target, xla=xla)
        return Session(subject, given={Limits: limits} if limits is not None else {})

    return make


@pytest.fixture
def found_in(captured) -> Callable[..., tuple[Finding, ...]]:
    """The findings of one rule in a step of some code."""

    def find(
        code: str,
        program: str,
        target: str = "cpu",
        limits: Limits | None = None,
        **xla: bool | int | str,
    ):
        session = captured(program, target, limits, **xla)
        rule = RULES[code]
        return call(rule, session.arguments(rule.needs))

    return find


@pytest.fixture
def told() -> Callable[..., tuple[Finding, ...]]:
    """The findings of one rule in a session, and in the same module as a bare dump."""

    def tell(code: str, session: Session, *, dump: bool = False) -> tuple[Finding, ...]:
        from hloscope.subjects import ModuleSubject

        if dump:
            session = Session(ModuleSubject(session.get(Module), "dump"))
        rule = RULES[code]
        return call(rule, session.arguments(rule.needs))

    return tell


class _Nothing:
    """A subject that brings no program."""

    def inputs(self):
        return {}


@pytest.fixture
def found_in_trace() -> Callable[..., tuple[Finding, ...]]:
    """The findings of one rule in a recording; every share counts where no limits are given."""
    load_passes()

    def find(code: str, trace: Trace, limits: Limits | None = None):
        given = {Trace: trace, Limits: limits or Limits(traced_share=0.0)}
        session = Session(_Nothing(), given=given)
        rule = RULES[code]
        return call(rule, session.arguments(rule.needs))

    return find
