"""The remat view: lanes, edges, pairs and captions, by the names in the module."""

import pytest
from oracles.training_steps import KEPT, MERGED, REMAT, SCAN

from hloscope.drawing.checkpoints import find_layer
from hloscope.drawing.picture import EdgeKind
from hloscope.drawing.remat import Side, draw_remat
from hloscope.drawing.step_flow import StepFlow, user_scope
from hloscope.errors import Unavailable
from hloscope.ir import parse_text

FORWARD, KEPT_LANE, AGAIN, BACKWARD = range(4)


def lanes(panel):
    found = {}
    for node in panel.nodes:
        found.setdefault(node.lane, []).append(node.title.lstrip("%"))
    return found


def edges(panel, kind=EdgeKind.DIRECT):
    names = {node.key: node.title.lstrip("%") for node in panel.nodes}
    return {(names[e.source], names[e.target]) for e in panel.edges if e.kind is kind}


@pytest.fixture(scope="module")
def both(session_of):
    return draw_remat(Side("with", session_of(REMAT)), Side("without", session_of(KEPT)))


def test_with_remat_the_function_is_built_again_and_read_backward(both):
    panel = both.panels[0]
    assert lanes(panel) == {
        FORWARD: ["dot.1", "tanh.1", "dot.2"],
        KEPT_LANE: ["add.1"],
        AGAIN: ["dot.5", "tanh.2"],
        BACKWARD: ["mul.1", "dot.4"],
    }
    assert {("add.1", "dot.5"), ("dot.5", "tanh.2"), ("tanh.2", "mul.1")} <= edges(panel)
    assert ("tanh.1", "mul.1") not in edges(panel)


def test_without_it_the_same_function_feeds_the_backward_pass_directly(both):
    panel = both.panels[1]
    assert "tanh.1" in lanes(panel)[KEPT_LANE]
    assert AGAIN not in lanes(panel)
    assert ("tanh.1", "mul.1") in edges(panel)
    assert panel.lanes[AGAIN].title == "nothing computed again"


def test_the_pair_is_marked_and_named_in_the_caption(both):
    strong = [[n.title for n in panel.nodes if n.strong] for panel in both.panels]
    assert strong == [["%tanh.2"], ["%tanh.1"]]
    said = " ".join(both.caption)
    assert "Without, %tanh.1 (tanh) feeds the backward pass directly" in said
    assert "%tanh.2 builds it again" in said


def test_the_caption_counts_what_is_kept_and_computed_again(both):
    said = " ".join(both.caption)
    # x alone, 4 x 8 of four bytes; without, tanh as well.
    # Beside them the loss reads dot.2 backward, outside of the block.
    assert "with: 1 array kept, 128 B, 1 more outside of it; computed again: 2" in said
    assert "512 FLOP of products" in said  # 2 * 4 * 8 * 8
    assert "without: 2 arrays kept, 256 B, 1 more outside of it; nothing computed again" in said


def test_names_and_shapes_are_the_modules_own(both):
    node = next(n for n in both.panels[0].nodes if n.title == "%tanh.2")
    assert node.lines == ("f32[4,8]", "tanh")


def test_a_scan_shows_what_is_stacked_and_what_is_taken_of_it(session_of):
    picture = draw_remat(Side("scan", session_of(SCAN)))
    panel = picture.panels[0]
    found = lanes(panel)
    assert found[KEPT_LANE] == ["stack", "take"]
    assert found[AGAIN] == ["tanh.2"]
    assert found[BACKWARD] == ["mul.1"]
    assert {("stack", "take"), ("take", "tanh.2"), ("tanh.2", "mul.1")} <= edges(panel)
    assert "768 B for all layers" in " ".join(picture.caption)


def test_a_repetition_that_the_forward_pass_reads_is_none(session_of):
    session = session_of(MERGED)
    step = session.get(StepFlow)
    assert {node.name for node in step.merged} == {"dot.5", "tanh.2"}
    picture = draw_remat(Side("merged", session))
    assert AGAIN not in lanes(picture.panels[0])
    assert "tanh.2" in lanes(picture.panels[0])[KEPT_LANE]
    assert "2 instructions of the module with the name of a repetition" in " ".join(picture.caption)


def test_a_gradient_with_a_forward_name_makes_no_repetition_of_what_it_reads(session_of):
    named = REMAT.replace("jit(f)/transpose(jvp(block))/checkpoint/mul", "jit(f)/jvp(block)/mul")
    assert named != REMAT
    assert session_of(named).get(StepFlow).merged == frozenset()


def test_a_fusion_that_builds_again_inside_says_what(session_of):
    start = REMAT.index("  tanh.2 =")
    end = REMAT.index("  dot.4 =")
    remat = "jit(f)/transpose(jvp(block))/checkpoint/"
    fused = f"""inner {{
  p = f32[4,8] parameter(0)
  q = f32[4,8] parameter(1)
  t = f32[4,8] tanh(q), metadata={{op_name="{remat}rematted_computation/tanh"}}
  ROOT m = f32[4,8] multiply(p, t), metadata={{op_name="{remat}mul"}}
}}
"""
    call = f"""  mul.1 = f32[4,8] fusion(dot.3, dot.5), kind=kLoop, calls=inner,
    metadata={{op_name="{remat}mul"}}
"""
    text = (REMAT[:start] + call + REMAT[end:]).replace("ENTRY", fused + "ENTRY")
    picture = draw_remat(Side("fused", session_of(text)))
    node = next(n for n in picture.panels[0].nodes if n.title == "%mul.1")
    assert node.lines == ("f32[4,8]", "tanh, multiply", "again: tanh")
    assert "inside 1 backward fusion" in " ".join(picture.caption)


def test_a_step_without_a_backward_pass_says_so(session_of):
    text = "HloModule m\nENTRY e { x = f32[4] parameter(0) ROOT n = f32[4] negate(x) }\n"
    with pytest.raises(Unavailable, match="no backward pass"):
        draw_remat(Side("m", session_of(text)))


def test_at_most_forty_boxes_a_side_and_the_rest_is_counted(session_of):
    chain = "".join(
        f"""  long.{k} = f32[4,8] tanh({"add.1" if not k else f"long.{k - 1}"}),
    metadata={{op_name="jit(f)/jvp(block)/tanh"}}
  grad.{k} = f32[4,8] multiply(dot.3, long.{k}),
    metadata={{op_name="jit(f)/transpose(jvp(block))/mul"}}
"""
        for k in range(50)
    )
    text = KEPT.replace("  mul.1 =", chain + "  mul.1 =")
    picture = draw_remat(Side("long", session_of(text)))
    assert len(picture.panels[0].nodes) <= 40
    assert picture.left_out > 60
    assert "Not drawn: " in " ".join(picture.caption)


def test_what_is_kept_and_only_cast_on_the_way_has_a_dashed_edge_to_its_reader(session_of):
    cast = """  wide = bf16[4,8] convert(tanh.1),
    metadata={op_name="jit(f)/transpose(jvp(block))/convert"}
"""
    text = KEPT.replace("  mul.1 =", cast + "  mul.1 =").replace("(dot.3, tanh.1)", "(dot.3, wide)")
    panel = draw_remat(Side("cast", session_of(text))).panels[0]
    assert ("tanh.1", "mul.1") in edges(panel, EdgeKind.THROUGH)
    assert "wide" not in [node.title.lstrip("%") for node in panel.nodes]


def test_a_cast_of_a_weight_is_counted_as_kept_and_not_drawn(session_of):
    cast = """  narrow = bf16[8,8] convert(w), metadata={op_name="jit(f)/jvp(block)/convert"}
  dot.3 = f32[4,8] dot(back, narrow),"""
    session = session_of(KEPT.replace("  dot.3 = f32[4,8] dot(back, w),", cast))
    picture = draw_remat(Side("cast", session))
    assert "narrow" in {node.name for node in find_layer(session.get(StepFlow)).kept}
    assert "narrow" not in lanes(picture.panels[0])[KEPT_LANE]
    assert "1 kept" in " ".join(picture.caption)


def test_a_fusion_without_a_name_has_that_of_what_it_ends_in(session_of):
    again = "jit(f)/transpose(jvp(block))/checkpoint/"
    fused = f"""inner {{
  p = f32[4,8] parameter(0)
  q = f32[4,8] parameter(1)
  t = f32[4,8] tanh(q), metadata={{op_name="{again}rematted_computation/tanh"}}
  m = f32[4,8] multiply(p, t), metadata={{op_name="{again}mul"}}
  ROOT c = f32[4,8] convert(m)
}}
"""
    start, end = REMAT.index("  mul.1 ="), REMAT.index("  dot.4 =")
    call = "  mul.1 = f32[4,8] fusion(tanh.2, dot.3), kind=kLoop, calls=inner\n"
    text = (REMAT[:start] + call + REMAT[end:]).replace("ENTRY", fused + "ENTRY")
    panel = draw_remat(Side("nameless", session_of(text))).panels[0]
    assert "mul.1" in lanes(panel)[BACKWARD]
    assert ("tanh.2", "mul.1") in edges(panel)


def test_edges_past_what_computes_are_dashed_and_never_cross_to_backward(session_of):
    casts = """  c.1 = bf16[4,8] convert(tanh.1), metadata={op_name="jit(f)/jvp(block)/convert"}
  c.2 = f32[4,8] convert(c.1), metadata={op_name="jit(f)/jvp(block)/convert"}
"""
    many = "".join(
        f"  d.{k} = f32[4,8] dot({'c.2' if not k else f'd.{k - 1}'}, w), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        'metadata={op_name="jit(f)/jvp(block)/dot_general"}\n'
        for k in range(9)
    )
    text = REMAT.replace(
        "  dot.2 = f32[4,8] dot(tanh.1,", casts + many + "  dot.2 = f32[4,8] dot(d.8,"
    )
    panel = draw_remat(Side("casts", session_of(text))).panels[0]
    lane = {node.title.lstrip("%"): node.lane for node in panel.nodes}
    dashed = edges(panel, EdgeKind.THROUGH)
    assert dashed
    assert all(lane[target] != BACKWARD for _, target in dashed)


@pytest.mark.parametrize(
    ("op_name", "scope"),
    [
        ("jit(f)/jvp(layer_0)/attention/dot_general", "layer_0/attention"),
        ("jit(f)/transpose(jvp(layer_0))/jvp(layer_0)/checkpoint/mlp/dot", "layer_0/mlp"),
        ("jit(f)/transpose(jvp(a))/b/jvp(a)/b/checkpoint/rematted_computation/c/add", "a/b/c"),
        ("jit(f)/transpose(jvp())/while/body/eval_jaxpr/checkpoint/mul", ""),
    ],
)
def test_scopes_that_jax_repeats_under_a_checkpoint_count_once(op_name, scope):
    assert user_scope(op_name) == scope


def test_layers_without_a_scope_are_told_apart_by_the_flow(session_of, fixtures_dir):
    folder = fixtures_dir / "compiled" / "today"
    step = session_of((folder / "cpu_remat_unroll.hlo").read_text()).get(StepFlow)
    layer = find_layer(step)
    assert layer.alike == 2
    assert [node.name for node in layer.recomputed] == [
        "ynn_fusion.6",
        "wrapped_tanh.2",
        "ynn_fusion.5",
    ]
    assert "wrapped_sine" in {node.name for node in layer.kept}


@pytest.mark.parametrize("target", ["cpu", "gpu", "tpu"])
def test_every_targets_scan_has_one_stacked_residual(session_of, fixtures_dir, target):
    folder = fixtures_dir / "compiled" / "today"
    layer = find_layer(session_of((folder / f"{target}_scan_remat.hlo").read_text()).get(StepFlow))
    assert layer.place.looped
    assert len(layer.values) == 1
    assert layer.kept[0].shape.dimensions[0] == 6  # of as many layers
    assert len(layer.fetched) == 1


def test_the_module_parses_as_it_is_written():
    for text in (KEPT, REMAT, MERGED, SCAN):
        assert parse_text(text).num_instructions > 10
