import pytest

from hloscope import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (1023 * 1024, "0.999 MiB"),
        (12 * 2**20, "12.0 MiB"),
        (370_020_000, "353 MiB"),
        (3 * 2**30 + 2**29, "3.50 GiB"),
        (5 * 2**40, "5.00 TiB"),
        (-2048, "-2.00 KiB"),
    ],
)
def test_bytes_use_powers_of_1024(value, text):
    assert units.byte_size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 FLOP"),
        (999, "999 FLOP"),
        (1000, "1.00 KFLOP"),
        (999_499, "999 KFLOP"),
        (999_500, "1.00 MFLOP"),
        (341e9, "341 GFLOP"),
        (1.2345e15, "1.23 PFLOP"),
        (2e21, "2,000 EFLOP"),
    ],
)
def test_flops_use_powers_of_1000(value, text):
    assert units.flops(value) == text
    assert units.flop_rate(value) == text + "/s"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (5e-9, "5.00 ns"),
        (1.5e-6, "1.50 us"),
        (999.6e-6, "1.00 ms"),
        (0.0125, "12.5 ms"),
        (0.9996, "1.00 s"),
        (24.06, "24.1 s"),
        (1234.5, "1,230 s"),
        (-0.002, "-2.00 ms"),
    ],
)
def test_times_go_from_nanoseconds_to_seconds(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (31_855, "31,855"), (999_999, "999,999"), (1_000_000, "1.00 M"), (0.25, "0.250")],
)
def test_counts_are_exact_below_a_million(value, text):
    assert units.count(value) == text


@pytest.mark.parametrize(
    ("value", "as_ratio", "as_share"),
    [
        (0, "0x", "0%"),
        (1, "1.00x", "100%"),
        (0.12345, "0.123x", "12.3%"),
        (110.2, "110x", "11,000%"),
    ],
)
def test_ratios_and_shares_have_three_digits(value, as_ratio, as_share):
    assert units.ratio(value) == as_ratio
    assert units.share(value) == as_share


def test_numbers_far_below_one_have_an_exponent():
    assert units.ratio(1e-9) == "1.00e-09x"


def test_a_number_that_rounds_up_keeps_three_digits():
    assert units.three_digits(9.996) == "10.0"
    assert units.three_digits(99.96) == "100"


@pytest.mark.parametrize("width", [1, 3, 4, 10, 40, 46, 47])
def test_the_middle_gives_way_and_both_ends_stay(width):
    text = "jit(train_step)/transpose(jvp(x))/dot_general/."
    short = units.shorten_middle(text, width)
    assert len(short) == min(width, len(text))
    if 10 <= width < len(text):
        head, tail = short.split("...", 1)
        assert text.startswith(head)
        assert text.endswith(tail)


def test_a_text_that_fits_is_left_alone():
    assert units.shorten_middle("jit(f)/add", 10) == "jit(f)/add"
