"""Long names are cut where they say least."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloscope.pipeline.findings import Text
from hloscope.report.shortening import plain_path, shorten

LEAF = "state['opt_state'][0].mu['layers'][3]['mlp']['down']['kernel'].value"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (44, "state/opt_state/0/mu/layers/3/../down/kernel"),
        (32, "../0/mu/layers/3/mlp/down/kernel"),
        (30, "../mu/layers/3/mlp/down/kernel"),
        (20, "../3/mlp/down/kernel"),
        (9, "../kernel"),
    ],
)
def test_a_leaf_loses_the_keys_in_its_middle(width, shown):
    assert shorten(LEAF, width, Text.PATH) == shown


def test_a_leaf_that_fits_without_its_brackets_keeps_every_key():
    assert shorten(LEAF, 60, Text.PATH) == "state/opt_state/0/mu/layers/3/mlp/down/kernel"


def test_what_fits_stays_as_it_is():
    assert shorten(LEAF, len(LEAF), Text.PATH) == LEAF


def test_a_key_may_hold_dots_brackets_and_quotes():
    assert plain_path("p['a.b'][\"it's\"][(0, 1)].w") == "p/a.b/it's/(0, 1)/w"
    assert plain_path("value") == "value"
    assert plain_path("p['value']") == "p/value"


def test_a_scope_keeps_its_ends():
    scope = "jit(step)/transpose(jvp(layer_0))/attention/dot_general"
    assert shorten(scope, 40, Text.PATH) == "jit(step)/../attention/dot_general"


def test_a_scope_with_brackets_in_it_is_no_pytree_path():
    scope = 'jit(step)/layers[3]/op:{"shape":"f32[32768]"}/mlp/dot_general'
    assert plain_path(scope) == scope
    assert shorten(scope, 40, Text.PATH) == "jit(step)/layers[3]/../mlp/dot_general"
    assert plain_path("layers[3]/mlp") == "layers[3]/mlp"


def test_a_source_line_loses_the_folders_in_front_of_it():
    assert shorten("trainer/model/llama.py:975", 20, Text.SOURCE) == "model/llama.py:975"
    assert shorten("trainer/model/llama.py:975", 15, Text.SOURCE) == "llama.py:975"
    assert shorten("trainer/model/llama_with_experts.py:975", 15, Text.SOURCE).endswith(".py:975")


@given(st.text(max_size=60), st.integers(1, 60), st.sampled_from(Text))
def test_nothing_is_ever_wider_than_asked(text, width, kind):
    assert len(shorten(text, width, kind)) <= max(width, 0)
