"""Short ways from HLO text to what the passes say of it, and XLA's own answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from hloscope.ir import Module, parse_text
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.session import Session


class OneModule:
    """A subject that brings a module and whatever else a test gives it."""

    name = "test"

    def __init__(self, module: Module, *others: object) -> None:
        self._inputs = {Module: module, **{type(other): other for other in others}}

    def inputs(self) -> Mapping[type, object]:
        return self._inputs

    def header(self) -> Mapping[str, str]:
        return {}


@pytest.fixture(scope="session")
def session_of() -> Callable[..., Session]:
    """A session over HLO text (or a module) and further inputs."""
    load_passes()

    def make(program: str | Module, *others: object) -> Session:
        module = parse_text(program) if isinstance(program, str) else program
        return Session(OneModule(module, *others))

    return make


@pytest.fixture(scope="session")
def ledger_of(session_of) -> Callable[[str | Module], FlopLedger]:
    """The FLOP ledger of HLO text or of a module."""
    return lambda program: session_of(program).get(FlopLedger)


@pytest.fixture(scope="session")
def findings_of(session_of):
    """All findings of one rule over HLO text (or a module) and further inputs."""
    from hloscope.pipeline.rules import RULES, call

    def find(code: str, program: str | Module, *others: object):
        rule = RULES[code]
        return call(rule, session_of(program, *others).arguments(rule.needs))

    return find


@pytest.fixture(scope="session")
def xla_flops() -> Callable[[str], float]:
    """FLOPs of a module's text by XLA's generic ``HloCostAnalysis``."""
    jax = pytest.importorskip("jax")
    from jaxlib import _hlo, _jax

    client = jax.devices("cpu")[0].client

    def flops(text: str) -> float:
        module = _hlo.hlo_module_from_text(text)
        return float(_jax.hlo_module_cost_analysis(client, module).get("flops", 0.0))

    return flops
