"""Every bad switch: the rule that it names finds it, and no other rule finds anything new.

The ordinary suite compiles one architecture with each of its switches, and what
that one lacks with another. ``HLOSCOPE_TEST_EVERYTHING`` compiles all pairs.
"""

import importlib
import os
import re

import jax
import pytest
from quick_compile import QUICK

from hloscope.errors import Unavailable, UsageError
from hloscope.models import registry
from hloscope.models.antipatterns import ANTIPATTERNS
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.rules import RULES, Limits, call
from hloscope.pipeline.session import Session
from hloscope.sources import load

# What a step on two cores has in bytes, instructions and shares, scaled from a real one.
# Copies into other layouts are most of what so small a step does on a CPU.
LIMITS = Limits(
    constant_bytes=1 << 12,
    layout_bytes=1 << 23,
    product_flops_share=0.002,
    repeated_instructions=300,
    warning_share=0.004,
)


PAIRS = [(name, bad) for name in registry.names() for bad in registry.get(name).bad]
COMPILED = (
    PAIRS
    if os.environ.get("HLOSCOPE_TEST_EVERYTHING")
    else [
        ("causal_transformer", "odd-length"),
        ("moe_transformer", "masked-experts"),
        ("ssm", "float32-head"),
        *(pair for pair in PAIRS if pair[0] == "simple_dit"),
    ]
)


@pytest.fixture(scope="module")
def findings(need_target):
    """What an architecture's smoke step has, by code, message and line."""
    load_passes()
    done = {}

    def get(name, target, *bad):
        if (name, target, bad) not in done:
            need_target(target)
            xla = QUICK if target == "cpu" else {}
            subject = load(arch=name, preset="smoke", target=target, bad=bad, xla=xla)
            session = Session(subject, given={Limits: LIMITS})
            found = []
            for rule in RULES.values():
                try:
                    found += call(rule, session.arguments(rule.needs))
                except Unavailable:
                    continue
            done[name, target, bad] = {
                # An array of another size is the same array.
                (f.code, re.sub(r"\d+", "N", f.message), f.site.file, f.site.line)
                for f in found
            }
        return done[name, target, bad]

    return get


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bad"), COMPILED)
def test_the_rule_that_a_switch_names_finds_it_and_no_other_does(findings, name, bad):
    switch = ANTIPATTERNS[bad]
    target = "h100" if switch.targets else "cpu"
    new = findings(name, target, bad) - findings(name, target)
    assert {code for code, *_ in new} == {switch.rule}


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        (name, preset)
        for name in registry.names()
        for preset in registry.get(name).presets
        if "per-step-null" in registry.get(name).bad
    ],
)
def test_the_encoder_of_the_empty_caption_fits_the_captions_of_every_preset(name, preset):
    config = importlib.import_module(registry.get(name).module).PRESETS[preset]
    # Heads of an even width, as everywhere.
    assert config.text_width % (2 * config.text_encoder.heads) == 0


@pytest.mark.parametrize(
    ("name", "bad", "options"),
    [
        ("simple_dit", "unrolled-layers", {"scan_layers": "true"}),
        ("moe_transformer", "masked-experts", {"experts": "capacity"}),
        ("ssm", "float32-head", {"dtype": "float32"}),
    ],
)
def test_an_option_that_contradicts_a_switch_is_refused(name, bad, options):
    with pytest.raises(UsageError, match=f"--bad {bad} (sets|does nothing without)"):
        registry.get(name).build("smoke", options, bad=(bad,))


def test_a_switch_that_is_a_value_of_an_option_builds_what_the_option_does():
    spec = registry.get("moe_transformer")
    assert (
        jax.make_jaxpr(spec.build("smoke", bad=("masked-experts",)).fn)(
            *spec.build("smoke").args
        ).pretty_print()
        == jax.make_jaxpr(spec.build("smoke", {"experts": "dense"}).fn)(
            *spec.build("smoke").args
        ).pretty_print()
    )


def test_every_switch_belongs_to_an_architecture_and_names_a_rule():
    load_passes()
    assert set(ANTIPATTERNS) == {bad for _, bad in PAIRS}
    assert {switch.rule for switch in ANTIPATTERNS.values()} <= set(RULES)


def test_the_ordinary_suite_compiles_every_switch():
    assert {bad for _, bad in COMPILED} == set(ANTIPATTERNS)


def test_every_architecture_has_a_switch():
    assert {name for name, _ in PAIRS} == set(registry.names())


def test_a_switch_that_an_architecture_lacks_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="unet has no bad switch 'baked-table'") as caught:
        registry.get("unet").build("smoke", bad=("baked-table",))
    assert caught.value.place == "--bad baked-table"
    with pytest.raises(UsageError, match="Did you mean undonated-state"):
        load(arch="unet", bad=("undonated",))


def test_a_switch_goes_with_an_architecture_alone():
    with pytest.raises(UsageError, match="only --arch has them"):
        load("train.py:step", bad=("baked-table",))


@pytest.mark.parametrize("name", registry.names())
def test_an_undonated_state_is_the_same_state(name, built):
    bad = registry.get(name).build("smoke", bad=("undonated-state",))
    assert bad.donate == ()
    assert bad.args == built(name, "smoke").args
