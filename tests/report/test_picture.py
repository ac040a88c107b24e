from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from p2plane.registration.result import Registration
from p2plane.report import draw_pair, write_picture
from tests.report.registrations import chair, empty, wall

image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")


def pixels(folder: Path, result: Registration, **settings: Any) -> np.ndarray:
    """(H, W, 3) of the picture."""
    write_picture(folder / "picture.png", result, pixels=240, **settings)
    return image.imread(folder / "picture.png")[..., :3]


def near(picture: np.ndarray, kind: str) -> np.ndarray:
    """(H, W) where a picture is orange like the source, or blue like the target."""
    red, blue = picture[..., 0], picture[..., 2]
    return red - blue > 0.35 if kind == "source" else blue - red > 0.25


def test_both_clouds_are_seen_and_come_together(tmp_path: Path) -> None:
    # Nothing but a picture is made: no window, no state that other figures share.
    picture = pixels(tmp_path, chair(1500))
    assert (picture[:4] == 1).all()
    width = picture.shape[1] // 2
    before, after = picture[20:-24, :width], picture[20:-24, width:]
    for panel in (before, after):
        assert near(panel, "source").mean() > 0.02
        assert near(panel, "target").mean() > 0.02
    # Where the source is, the target is close by, after but not before.
    apart = [_spread(near(panel, "source"), near(panel, "target")) for panel in (before, after)]
    assert apart[1] < 0.5 * apart[0]


def _spread(first: np.ndarray, second: np.ndarray) -> float:
    """Mean distance in pixels from the places of one mask to the other mask."""
    from scipy.ndimage import distance_transform_edt

    return float(distance_transform_edt(~second)[first].mean())


@pytest.mark.parametrize("ending", [".pdf", ".svg"])
def test_other_formats(tmp_path: Path, ending: str) -> None:
    write_picture(tmp_path / f"picture{ending}", chair(100), pixels=120, title="a $ title", source_name="b_$^{")
    assert (tmp_path / f"picture{ending}").read_bytes()[:5] in (b"%PDF-", b"<?xml")


def test_all_panels_and_open_directions(tmp_path: Path) -> None:
    picture = pixels(tmp_path, wall(300), panels=("before", "after", "distance", "closeup"))
    assert picture.shape[1] == 4 * 240
    magenta = (picture[..., 0] - picture[..., 1] > 0.4) & (picture[..., 2] - picture[..., 1] > 0.25)
    assert magenta[:, 240:480].sum() > 50
    assert magenta[:, :240].sum() == 0


def test_an_empty_registration_gives_a_picture(tmp_path: Path) -> None:
    assert (pixels(tmp_path, empty()) == 1).mean() > 0.9


def test_pictures_do_without_pyplot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    write_picture(tmp_path / "picture.png", chair(50), pixels=100)
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_the_missing_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"p2plane\[view\]"):
        write_picture(tmp_path / "picture.png", chair(50))
    assert list(tmp_path.iterdir()) == []


def test_bad_arguments(tmp_path: Path) -> None:
    result = chair(20)
    with pytest.raises(ValueError, match=r"path must end with one of .* got '.*picture.bmp'"):
        write_picture(tmp_path / "picture.bmp", result)
    with pytest.raises(ValueError, match="panels must be some of"):
        write_picture(tmp_path / "picture.png", result, panels=("behind",))
    with pytest.raises(ValueError, match="pixels must be at least 100, got 3"):
        write_picture(tmp_path / "picture.png", result, pixels=3)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_picture(tmp_path / "missing" / "picture.png", result, pixels=100)
    assert list(tmp_path.iterdir()) == []


def test_a_pair_is_drawn_into_axes() -> None:
    from matplotlib.figure import Figure

    result = chair(300)
    panels = Figure().subplots(1, 3)
    draw_pair(panels[0], result.source, result.target, result.T_target_source, pixels=80)
    draw_pair(panels[1], result.source.points.numpy(), result.target.points.numpy(), pixels=80)
    draw_pair(panels[2], torch.zeros(0, 3), torch.zeros(0, 3), pixels=80)
    images = [panel.get_images()[0].get_array() for panel in panels]
    assert [bool(array.any()) for array in images] == [True, True, False]
    assert near(images[0], "source").any()
    assert near(images[0], "target").any()
