"""Wrong input is told apart at the door: the message names the argument, what was expected, and what came."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import p2plane
from p2plane import Alignment, Huber
from tests.clouds import DISTANCES, align, arrays, matched_pair

ARGUMENTS = {
    "point_to_plane": ("source", "target", "normals"),
    "point_to_point": ("source", "target"),
    "point_to_distribution": ("source", "target", "precisions"),
    "symmetric_point_to_plane": ("source", "target", "source_normals", "target_normals"),
    "plane_to_plane": ("source", "target", "source_covariances", "target_covariances"),
}
EACH_ARRAY = [(distance, name) for distance, names in ARGUMENTS.items() for name in names]
EACH_ARGUMENT = [*EACH_ARRAY, *((distance, "weights") for distance in DISTANCES)]
PAIR = matched_pair(2, points=20, noise=0.001, seed=8)


def inputs(distance: str) -> dict[str, Any]:
    """A good call, as keyword arguments."""
    return dict(zip(ARGUMENTS[distance], arrays(distance, PAIR), strict=True)) | {"weights": PAIR.weights}


def assert_refused(distance: str, message: str, **wrong: Any) -> None:
    """The call with something wrong in it raises a ValueError with that message, a regular expression."""
    with pytest.raises(ValueError, match=message):
        getattr(p2plane, distance)(**(inputs(distance) | wrong))


def with_value(tensor: torch.Tensor, value: float) -> torch.Tensor:
    """A copy with the first number of point 3 of pair 1 replaced."""
    tensor = tensor.clone()
    tensor[1, 3].view(-1)[0] = value
    return tensor


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_good_call_of_these_tests_is_good(distance):
    assert getattr(p2plane, distance)(**inputs(distance)).converged.all()


@pytest.mark.parametrize(("distance", "name"), EACH_ARRAY)
def test_a_wrong_shape_is_refused(distance, name):
    good = inputs(distance)[name]
    expected = "(..., N, 3, 3)" if good.ndim == 4 else "(..., N, 3)"
    for wrong in (good[..., :2], good[0, 0, ..., 0], good.new_zeros(())):
        shape = re.escape(str(tuple(wrong.shape)))
        assert_refused(distance, rf"^{name} must have shape {re.escape(expected)}, got {shape}", **{name: wrong})


def test_channel_first_clouds_are_refused():
    assert_refused("point_to_plane", r"^source must have shape \(..., N, 3\), got \(2, 3, 20\)", source=PAIR.source.mT)


@pytest.mark.parametrize(("distance", "name"), [case for case in EACH_ARGUMENT if case[1] != "source"])
def test_another_number_of_points_is_refused(distance, name):
    short = inputs(distance)[name][:, :19]
    assert_refused(distance, rf"^{name} must have one row for each of the 20 source points, got 19", **{name: short})


@pytest.mark.parametrize(("distance", "name"), [case for case in EACH_ARGUMENT if case[1] != "source"])
def test_a_batch_that_does_not_fit_is_refused(distance, name):
    three = inputs(distance)[name][[0, 1, 1]]
    assert_refused(distance, rf"^{name} must have a batch shape that fits .*\(2,\), got \(3,\)", **{name: three})


@pytest.mark.parametrize(("distance", "name"), EACH_ARGUMENT)
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex128])
def test_numbers_that_are_not_floating_point_are_refused(distance, name, dtype):
    wrong = inputs(distance)[name].to(dtype)
    assert_refused(distance, rf"^{name} must be floating point, got {dtype}", **{name: wrong})


@pytest.mark.parametrize(("distance", "name"), EACH_ARGUMENT)
def test_a_list_is_refused(distance, name):
    wrong = inputs(distance)[name].tolist()
    assert_refused(distance, rf"^{name} must be a tensor or a NumPy array, got list", **{name: wrong})


def test_an_integer_numpy_array_is_refused():
    assert_refused(
        "point_to_point", "^source must be floating point, got ", source=np.zeros((2, 20, 3), dtype=np.int32)
    )


@pytest.mark.parametrize(("distance", "name"), EACH_ARRAY)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_refused_and_located(distance, name, value):
    wrong = with_value(inputs(distance)[name], value)
    assert_refused(distance, rf"{name} .*must be .*got .*{value}.* at point 3 of pair 1", **{name: wrong})


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("value", [-1e-9, torch.nan, torch.inf])
def test_weights_that_are_negative_or_not_finite_are_refused(distance, value):
    wrong = with_value(PAIR.weights[..., None], value)[..., 0]
    assert_refused(
        distance, rf"^weights must be finite and not negative, got {value} at point 3 of pair 1", weights=wrong
    )


@pytest.mark.parametrize("distance", DISTANCES)
def test_a_wrong_mask_is_refused(distance):
    good = torch.ones(2, 20, dtype=torch.bool)
    for dtype in (torch.float64, torch.uint8):
        assert_refused(distance, rf"^mask must be boolean.*, got {dtype}", mask=good.to(dtype))
    assert_refused(distance, "^mask must have one row for each of the 20 source points, got 19", mask=good[:, :19])
    assert_refused(distance, r"^mask must have a batch shape that fits .*got \(3,\)", mask=good[[0, 0, 0]])
    assert_refused(distance, "^mask must be a tensor or a NumPy array, got list", mask=good.tolist())


def test_another_device_is_refused():
    assert_refused(
        "point_to_plane", "^target must be on the device of source, cpu, got meta", target=PAIR.target.to("meta")
    )


@pytest.mark.parametrize("distance", DISTANCES)
def test_an_initial_of_the_wrong_shape_or_type_is_refused(distance):
    good = torch.eye(4, dtype=torch.float64)
    assert_refused(distance, r"^initial must have shape \(..., 4, 4\), got \(3, 4\)", initial=good[:3])
    assert_refused(distance, r"^initial must have shape \(..., 4, 4\), got \(4,\)", initial=good[0])
    assert_refused(
        distance, r"^initial must have a batch shape that fits \(2,\), got \(3,\)", initial=good.expand(3, 4, 4)
    )
    assert_refused(distance, "^initial must be floating point, got torch.int64", initial=good.long())
    assert_refused(distance, "^initial must be a tensor or a NumPy array, got list", initial=good.tolist())


def not_rigid() -> dict[str, torch.Tensor]:
    good = PAIR.T_target_source
    transposed_layout, stretched, mirrored, lost = good.mT.contiguous(), good.clone(), good.clone(), good.clone()
    stretched[1, :3, :3] *= 1.1
    mirrored[1, :3, 0] *= -1
    lost[1, 0, 3] = torch.nan
    return {
        "zero": torch.zeros(2, 4, 4, dtype=torch.float64),
        "stretched": stretched,
        "mirrored": mirrored,
        "not finite": lost,
        "translation in the last row": transposed_layout,
        "last row times two": good * torch.tensor([1.0, 1.0, 1.0, 2.0], dtype=torch.float64)[:, None],
    }


@pytest.mark.parametrize("case", not_rigid())
def test_an_initial_that_is_no_rigid_transform_is_refused(case):
    assert_refused("point_to_plane", r"^initial must hold rigid transforms .*got \[\[", initial=not_rigid()[case])


def test_the_initial_that_is_wrong_is_the_one_that_is_shown():
    wrong = not_rigid()["stretched"]  # pair 1 is, pair 0 is not
    shown = re.escape(f"{wrong[1, 0, 0].item():.4f}"[:5])
    assert_refused("point_to_plane", rf"^initial must hold rigid transforms .*got \[\[{shown}", initial=wrong)


@pytest.mark.parametrize(
    ("distance", "setting", "value", "message"),
    [
        ("point_to_plane", "solver", "lm", r"^solver must be one of \('newton', 'accumulate'\), got 'lm'"),
        (
            "point_to_plane",
            "gradient",
            "full",
            r"^gradient must be one of \('exact', 'penalty', 'unrolled'\), got 'full'",
        ),
        ("plane_to_plane", "form", "once", r"^form must be one of \('full', 'iterated', 'fixed'\), got 'once'"),
        ("symmetric_point_to_plane", "form", "", r"^form must be one of .*, got ''"),
        (
            "point_to_plane",
            "gradient",
            "unrolled",
            "^gradient='unrolled' must go with solver='accumulate', got solver='newton'",
        ),
    ],
)
def test_an_unknown_choice_is_refused(distance, setting, value, message):
    assert_refused(distance, message, **{setting: value})


@pytest.mark.parametrize("distance", ["point_to_plane", "plane_to_plane"])
@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("hold", ("yaw",), "^hold must name directions out of .*'rx'.*, got 'yaw'"),
        ("hold", "yaw", "^hold must name directions out of .*'rx'.*, got 'yaw'"),
        ("hold", ("rx", "tz"), "^hold must name none, two or all of 'rx', 'ry', 'rz', got "),
        ("hold", 3, "^hold must .*got 3"),
        ("max_iterations", 0, "^max_iterations must be a positive integer, got 0"),
        ("max_iterations", -1, "^max_iterations must be a positive integer, got -1"),
        ("max_iterations", 2.5, "^max_iterations must be a positive integer, got 2.5"),
        ("undetermined_below", 0.0, "^undetermined_below must be between 0 and 1, got 0.0"),
        ("undetermined_below", 1.0, "^undetermined_below must be between 0 and 1, got 1.0"),
        ("undetermined_below", float("nan"), "^undetermined_below must be between 0 and 1, got nan"),
        ("robust", "huber", "^robust must .*got .*(huber|str)"),
        ("robust", Huber, "^robust must .*got .*(Huber|type)"),
    ],
)
def test_a_setting_out_of_its_range_is_refused(distance, setting, value, message):
    assert_refused(distance, message, **{setting: value})


@pytest.mark.parametrize("settings", [{"solver": "accumulate"}, {"gradient": "penalty"}])
def test_settings_that_do_not_go_together_are_refused(settings):
    assert_refused("point_to_plane", "^robust must go with .*got ", robust=Huber(0.1), **settings)
    assert_refused("point_to_plane", "^hold must go with .*got ", hold=("tz",), **settings)


@pytest.mark.parametrize("kernel", [p2plane.Huber, p2plane.Cauchy, p2plane.GemanMcClure, p2plane.Tukey])
@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_the_scale_of_a_kernel_must_be_positive_and_finite(kernel, scale):
    with pytest.raises(ValueError, match=f"^scale must be .*positive.*, got {scale}"):
        kernel(scale)


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5, float("nan")])
def test_the_fraction_of_trimmed_must_be_in_its_range(fraction):
    with pytest.raises(ValueError, match=rf"^fraction must be in \(0, 1\], got {fraction}"):
        p2plane.Trimmed(fraction)


def test_covariances_that_cannot_be_inverted_are_refused():
    flat = torch.zeros(2, 20, 3, 3, dtype=torch.float64)
    assert_refused(
        "plane_to_plane",
        r"^source_covariances \+ target_covariances must be positive definite, got .*at point 0 of pair 0",
        source_covariances=flat,
        target_covariances=flat,
    )


def finite_or_refused(call: Callable[[], Alignment]) -> Alignment | None:
    """What a call gives, finite; None where it says clearly that the coordinates are too large."""
    message = ""
    try:
        found = call()
    except ValueError as error:
        found, message = None, str(error)
    assert found is not None or re.search("source and target must have coordinates .*, got ", message)
    assert found is None or (found.T_target_source.isfinite().all() and found.covariance.isfinite().all())
    return found


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("size", [1e-200, 1e100, 1e200, 1e300])
def test_absurd_coordinates_give_a_finite_pose_or_a_clear_error(distance, size):
    scaled = PAIR._replace(source=size * PAIR.source, target=size * PAIR.target)
    finite_or_refused(lambda: align(distance, scaled))


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("size", [1e-30, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_very_small_and_very_large_coordinates_give_the_pose(distance, size, dtype):
    scaled = PAIR._replace(source=size * PAIR.source, target=size * PAIR.target)
    found = align(distance, type(PAIR)(*(tensor.to(dtype) for tensor in scaled)))
    assert found.converged.all()
    assert found.T_target_source.isfinite().all()
    if distance != "plane_to_plane":  # whose covariances have a size of their own
        tolerance = 1e-9 if dtype == torch.float64 else 1e-5
        assert_close(found.R, align(distance, PAIR).R.to(dtype), rtol=0, atol=tolerance)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_very_small_and_very_large_weights_give_the_pose(distance, size):
    found = align(distance, PAIR._replace(weights=size * PAIR.weights))
    assert_close(found.T_target_source, align(distance, PAIR).T_target_source, rtol=0, atol=1e-9)


@pytest.mark.parametrize("distance", ["point_to_plane", "point_to_point"])
@pytest.mark.parametrize("name", ["source", "target"])
@pytest.mark.parametrize("value", [1e30, 1e200])
def test_one_point_at_the_end_of_the_world_gives_a_finite_pose_or_a_clear_error(distance, name, value):
    wrong = PAIR._replace(**{name: with_value(getattr(PAIR, name), value)})
    found = finite_or_refused(lambda: align(distance, wrong))
    if found is not None:  # the neighbour of the pair with that point is as it was
        assert_close(found.T_target_source[0], align(distance, PAIR).T_target_source[0], rtol=0, atol=1e-9)
