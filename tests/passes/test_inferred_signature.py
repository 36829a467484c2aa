from hloscope.ir import parse_text
from hloscope.ir.signature import Role
from hloscope.passes.inferred_signature import infer_signature


def module(names, alias="", donor=""):
    header = (f", input_output_alias={{ {alias} }}" if alias else "") + (
        f", buffer_donor={{ {donor} }}" if donor else ""
    )
    parameters = "\n".join(
        f"p{n} = f32[4] parameter({n})" + (f', metadata={{op_name="{name}"}}' if name else "")
        for n, name in enumerate(names)
    )
    results = ", ".join(f"p{n}" for n in range(len(names)))
    shapes = ", ".join("f32[4]" for _ in names)
    return parse_text(
        f"HloModule m{header}\nENTRY e {{\n{parameters}\nROOT t = ({shapes}) tuple({results}) }}"
    )


def roles(names, **more):
    return [leaf.role for leaf in infer_signature(module(names, **more)).inputs]


def test_names_become_paths_and_results_are_numbered():
    signature = infer_signature(module(["state['w']", "x"]))
    assert [leaf.path for leaf in signature.inputs] == ["state['w']", "x"]
    assert [leaf.path for leaf in signature.outputs] == ["result 0", "result 1"]
    assert signature.basis == "inferred"


def test_an_argument_with_one_aliased_leaf_is_state_as_a_whole():
    names = ["things['a']", "things['b']", "x"]
    assert roles(names, alias="{0}: (0, {}, may-alias)") == [Role.STATE, Role.STATE, Role.BATCH]


def test_a_donated_argument_is_state_even_if_nothing_took_it():
    assert roles(["a", "b"], donor="(1, {})") == [Role.OTHER, Role.STATE]


def test_parameters_are_state_beside_an_optimizers_state_and_unknown_alone():
    assert roles(["params['w']", "opt_state[0].mu"]) == [Role.STATE, Role.STATE]
    assert roles(["params['w']", "x"]) == [Role.OTHER, Role.BATCH]


def test_other_roles_come_from_names():
    assert roles(["rng", "batch['image']", "frozen_encoder['w']", "scale"]) == [
        Role.RNG,
        Role.BATCH,
        Role.FROZEN,
        Role.OTHER,
    ]


def test_donation_is_known_only_where_the_module_shows_it():
    signature = infer_signature(
        module(["a", "b", "c"], alias="{0}: (0, {}, may-alias)", donor="(1, {})")
    )
    assert [leaf.donated for leaf in signature.inputs] == [True, True, None]


def test_unnamed_parameters_are_called_by_their_number():
    signature = infer_signature(module(["", ""], alias="{1}: (1, {}, may-alias)"))
    assert [(leaf.path, leaf.role) for leaf in signature.inputs] == [
        ("parameter 0", Role.OTHER),
        ("parameter 1", Role.STATE),
    ]


def test_arguments_that_come_as_one_tuple_are_told_apart():
    text = """
    HloModule m, input_output_alias={ {0}: (0, {1}, may-alias) }
    ENTRY e {
      p = (f32[4], f32[8]) parameter(0)
      b = f32[8] get-tuple-element(p), index=1
      ROOT t = (f32[8]) tuple(b)
    }
    """
    signature = infer_signature(parse_text(text))
    assert [(leaf.parameter, leaf.dimensions, leaf.role) for leaf in signature.inputs] == [
        (0, (4,), Role.OTHER),
        (1, (8,), Role.STATE),
    ]
