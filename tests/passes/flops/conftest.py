"""Custom calls, as the ledger reads them."""

from __future__ import annotations

import pytest
from oracles.custom_call_texts import custom_call

from hloscope.passes.flops.custom_calls import read_custom_call


@pytest.fixture(scope="session")
def read_call():
    """What the ledger makes of a custom call."""
    return lambda *parts, **more: read_custom_call(custom_call(*parts, **more))
