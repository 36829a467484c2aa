"""Attributes: splitting their text and reading their values."""

import pytest

from hloscope.ir.attributes import (
    ConvolutionDims,
    Slice,
    WindowDimension,
    parse_dim_labels,
    parse_frontend_attributes,
    parse_padding,
    parse_slices,
    parse_window,
    split_attributes,
)
from hloscope.ir.backend_config import parse_backend_config
from hloscope.ir.metadata import parse_metadata
from hloscope.ir.scan import ScanError, split_list, unescape


def test_values_keep_their_brackets_and_strings_their_commas():
    text = (
        ", kind=kLoop, calls=%c.1, dimensions={0,1}, replica_groups=[2,4]<=[4,2]T(1,0)"
        ', custom_call_target="a,b{", metadata={op_name="f(x)[{}, 1]" stack_frame_id=3}'
        ', backend_config={"a":{"b":["1",{"c":"}"}]}}, dim_labels=b01f_01io->b01f'
        ", padding=0_1_0x0_-2, is_stable=true"
    )
    assert split_attributes(text) == {
        "kind": "kLoop",
        "calls": "%c.1",
        "dimensions": "{0,1}",
        "replica_groups": "[2,4]<=[4,2]T(1,0)",
        "custom_call_target": '"a,b{"',
        "metadata": '{op_name="f(x)[{}, 1]" stack_frame_id=3}',
        "backend_config": '{"a":{"b":["1",{"c":"}"}]}}',
        "dim_labels": "b01f_01io->b01f",
        "padding": "0_1_0x0_-2",
        "is_stable": "true",
    }


@pytest.mark.parametrize(
    "groups",
    [
        "mesh['a'=2,'b'=4] {'a'}",
        "mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'a','b'}",
        "mesh['a'=4], device_ids=(3,2,1,0) {'a':(1)2}",
    ],
)
def test_a_mesh_is_one_value_although_it_holds_a_blank_and_a_comma(groups):
    text = f", channel_id=1, replica_groups={groups}, to_apply=%add"
    assert split_attributes(text)["replica_groups"] == groups
    assert split_attributes(text)["to_apply"] == "%add"


def test_attributes_nested_deeper_than_the_quick_pattern_are_read_too():
    value = "{" * 40 + "}" * 40
    assert split_attributes(f", origin={value}, k=8") == {"origin": value, "k": "8"}


def test_comments_and_line_ends_between_attributes_are_blanks():
    assert split_attributes(",\n  a=1, /*index=5*/ b={2} // tail") == {"a": "1", "b": "{2}"}


@pytest.mark.parametrize("text", [", a={", ', a="x', ", a=", ", =3", "a=1", ", a=1 b=2", ", a=}"])
def test_what_is_no_attribute_list_is_refused(text):
    with pytest.raises(ScanError):
        split_attributes(text)


def test_a_window_fills_in_what_it_does_not_say():
    window = parse_window("{size=3x7 stride=2x1 pad=1_1x-2_3 rhs_dilate=1x2 rhs_reversal=1x0}")
    assert window.dimensions == (
        WindowDimension(3, 2, 1, 1, 1, 1, True),
        WindowDimension(7, 1, -2, 3, 2, 1, False),
    )
    assert parse_window("{}").dimensions == ()


def test_dim_labels_name_each_dimensions_part():
    assert parse_dim_labels("0b1f_0o1i->01bf") == ConvolutionDims(
        1, 3, (0, 2), 3, 1, (0, 2), 2, 3, (0, 1)
    )
    assert parse_dim_labels("bf_io->bf").input_spatial == ()


def test_slices_and_padding():
    assert parse_slices("{[0:2], [1:8:3]}") == (Slice(0, 2, 1), Slice(1, 8, 3))
    assert parse_padding("0_1_2x3_4") == ((0, 1, 2), (3, 4, 0))


def test_frontend_attributes_are_strings_or_raw_json():
    text = '{rule="#sdy<([i, j])->([i]) {i=4}, custom>",kernel_metadata={"a":"b"},chain_id="0"}'
    assert parse_frontend_attributes(text) == {
        "rule": "#sdy<([i, j])->([i]) {i=4}, custom>",
        "kernel_metadata": '{"a":"b"}',
        "chain_id": "0",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"known_trip_count":{"n":"6"}}', {"known_trip_count": {"n": "6"}}),
        ('"{\\"alpha_real\\":1,\\"beta\\":0}"', {"alpha_real": 1, "beta": 0}),
        ("{}", {}),
        ("", {}),
        (
            '{index = 0 : ui64, lower = true, uplo = 76 : ui8, name = "k", d = {a = 1.5 : f32}, u}',
            {"index": 0, "lower": True, "uplo": 76, "name": "k", "d": {"a": 1.5}, "u": True},
        ),
        ("{a = [1, 2], b = array<i64: 3, 4>}", {"a": [1, 2], "b": [3, 4]}),
        ('{ir = "ML\\EFR\\0D}"}', {"ir": "ML\xefR\r}"}),
        ('"\\001\\002opaque"', {"opaque": "\x01\x02opaque"}),
        ('{"broken":', {"opaque": '{"broken":'}),
    ],
)
def test_backend_config_in_each_of_its_spellings(text, value):
    assert parse_backend_config(text) == value


def test_metadata_unescapes_its_strings_and_keeps_what_it_does_not_know():
    metadata = parse_metadata(
        'op_type="mul" op_name="params[\\\'w\\\']" source_file="a b.py" source_line=12 '
        "stack_frame_id=7 size_of_generated_code_in_bytes=99"
    )
    assert metadata.op_name == "params['w']"
    assert metadata.op_type == "mul"
    assert (metadata.source_file, metadata.source_line) == ("a b.py", 12)
    assert metadata.stack_frame_id == 7
    assert metadata.other == (("size_of_generated_code_in_bytes", "99"),)


def test_lists_split_outside_brackets_and_quotes_only():
    assert split_list("{0,1},{2,3}") == ["{0,1}", "{2,3}"]
    assert split_list('%a, f32[2,3]{1,0} %b, /*index=2*/"x,y"') == [
        "%a",
        "f32[2,3]{1,0} %b",
        '"x,y"',
    ]
    assert split_list("") == []
    with pytest.raises(ScanError):
        split_list("{0,1")


def test_escapes_are_octal_hex_or_letters():
    assert unescape(r"a\101\x42\n\"\'") == "aAB\n\"'"
    assert unescape(r"caf\303\251 \377") == "café \xff"
