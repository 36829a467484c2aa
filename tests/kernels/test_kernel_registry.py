import pytest

from hloscope.chips import CHIPS, ChipKind
from hloscope.errors import UsageError
from hloscope.kernels import registry
from hloscope.kernels.case import Direction


def cases(name, shape="", **chosen):
    family = registry.get(name)
    sizes, settings = registry.parse_shape(family, shape)
    return {
        case.implementation.name: case
        for case in registry.cases_of(family, sizes=sizes, settings=settings, **chosen)
    }


@pytest.mark.parametrize("name", registry.names())
def test_the_text_of_a_case_reads_back_as_the_case(name):
    family = registry.get(name)
    for direction in family.directions:
        for case in cases(name, direction=direction).values():
            assert registry.parse_case(case.text).text == case.text


def test_settings_and_shared_heads_are_in_the_text_only_where_they_differ():
    assert cases("attention", "b1,s8,h4,d16")["xla"].shape == "b1,s8,h4,d16"
    shape = "b1,s8,h4,k2,d16,causal=1,softcap=20.5"
    case = cases("attention", shape)["reference"]
    assert case.shape == shape
    assert registry.parse_case(case.text).settings["softcap"] == 20.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("atention/xla", "attention"),
        ("attention/xlaa", "xla"),
        ("attention/xla/q4", "sequence length"),
        ("attention/xla/s0", "sequence length"),
        ("attention/xla/s4294967296", "from 1 to 2,147,483,648"),
        ("ssd_scan/chunked/s8,chunk=0", "a whole number from 1"),
        ("attention/xla/s8,causal=2", "up to 1"),
        ("attention/xla/s8,causl=1", "causal"),
        ("attention/xla/s8,window=1.5", "a whole number"),
        ("attention/xla/s8/int8", "bfloat16"),
        ("attention/xla/s8/bfloat16/sideways", "backward"),
        ("adamw/hash/s8/bfloat16/backward", "--backward"),
        ("attention", "FAMILY/IMPLEMENTATION"),
        ("attention/xla/h6,k4", "k must divide h"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(text, said):
    with pytest.raises(UsageError) as refused:
        registry.parse_case(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("implementation", "shape", "chip", "reason"),
    [
        ("cudnn", "", "t4", "8.0"),
        ("cudnn", "d256", "h100", "up to 128"),
        ("cudnn", "softcap=3", "h100", "softcap"),
        ("cudnn", "", "v5e", "GPUs"),
        ("flash_gpu", "", "t4", "Triton in XLA needs compute capability 8.0"),
        ("flash_tpu", "", "h100", "TPUs"),
        ("flash_tpu", "s100", "v5e", "pad=128"),
        ("flash_tpu", "window=8", "v5e", "windows"),
        ("flash_gpu", "d96", "h100", "powers of two"),
        ("flash_tpu", "s100,pad=128", "v5e", None),
        ("splash_tpu", "window=8,softcap=3", "v5e", None),
        ("cudnn", "", "h100", None),
    ],
)
def test_reasons_name_what_an_implementation_does_not_take(implementation, shape, chip, reason):
    case = cases("attention", shape)[implementation]
    found = case.implementation.unsupported(case, CHIPS[chip], CHIPS[chip].kind)
    assert (found is None) if reason is None else (reason in found)


@pytest.mark.parametrize(
    ("family", "implementation", "shape", "way"),
    [
        ("ssd_scan", "chunked", "s100", "set chunk=100, a divisor of 100"),
        ("ssd_scan", "chunked", "s1000,chunk=300", "set chunk=250, a divisor of 1000"),
        ("ssd_scan", "pallas_gpu", "s96", "set chunk=32, a divisor of 96"),
        ("ssd_scan", "pallas_tpu", "s240", "set chunk=80, a divisor of 240"),
        ("ssd_scan", "pallas_tpu", "s100", "no chunk that the kernel takes divides 100"),
        ("vocabulary_head", "chunked", "s2046", "set chunks=3, a divisor of 2046"),
    ],
)
def test_a_length_that_does_not_split_comes_with_one_that_does(family, implementation, shape, way):
    case = cases(family, shape)[implementation]
    assert way in case.implementation.refuses(case, None)
    settings = way.removeprefix("set ").partition(",")[0]
    if "=" in settings:
        shape = f"{shape.partition(',')[0]},{settings}"
        case = cases(family, shape)[implementation]
        assert case.implementation.refuses(case, None) is None


def test_cudnn_takes_no_float32():
    case = cases("attention", dtype="float32")["cudnn"]
    assert "bfloat16" in case.implementation.unsupported(case, None, ChipKind.GPU)


def test_every_family_has_an_implementation_that_runs_everywhere():
    for name in registry.names():
        family = registry.get(name)
        assert family.implementations[0].kinds == set(ChipKind)
        assert family.directions[0] is Direction.FORWARD
