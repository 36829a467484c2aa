import numpy as np
import pytest

from hloscope.kernels.errors import BOUNDS, errors_of

TRUTH = {"output": np.linspace(-2.0, 2.0, 101)}


def error_of(values, bound=BOUNDS["bfloat16"]):
    (error,) = errors_of({"output": values}, TRUTH, bound, gradients=False)
    return error


def test_a_rounded_result_is_right_and_its_error_is_a_share_of_the_largest():
    rounded = TRUTH["output"].astype(np.float16)
    error = error_of(rounded, BOUNDS["float16"])
    assert not error.is_wrong
    off = np.abs(rounded.astype(np.float64) - TRUTH["output"])
    assert error.largest == pytest.approx(off.max() / 2)
    assert error.norm < error.largest


def test_one_value_that_is_off_is_enough_to_be_wrong():
    values = TRUTH["output"].copy()
    values[50] += 0.05
    assert error_of(values).is_wrong
    assert error_of(values).norm < BOUNDS["bfloat16"] / 2


def test_many_small_errors_in_one_direction_are_wrong_too():
    values = TRUTH["output"] * (1 + 0.6 * BOUNDS["bfloat16"])
    assert error_of(values).largest < BOUNDS["bfloat16"]
    assert error_of(values).is_wrong


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_wrong(bad):
    values = TRUTH["output"].copy()
    values[3] = bad
    assert error_of(values).is_wrong
    assert error_of(values).largest == np.inf


def test_a_result_of_another_shape_is_wrong():
    assert error_of(TRUTH["output"][:-1]).is_wrong


def test_results_may_have_bounds_of_their_own():
    truth = {"loss": np.asarray(2.0), "mean": np.asarray(2.0)}
    given = {name: np.asarray(2.01) for name in truth}
    loose, tight = errors_of(given, truth, {"loss": 0.1, "mean": 0.001}, gradients=False)
    assert (loose.is_wrong, tight.is_wrong) == (False, True)


def test_where_the_truth_is_zero_only_zero_is_right():
    truth = {"output": np.zeros(3)}
    for given, wrong in ((np.zeros(3), False), (np.full(3, 1e-30), True)):
        (error,) = errors_of({"output": given}, truth, 0.1, gradients=True)
        assert error.is_wrong is wrong
