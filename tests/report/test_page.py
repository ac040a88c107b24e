from __future__ import annotations

import base64
import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from p2plane import Cloud, se3, so3
from p2plane.registration.result import Registration
from p2plane.report import write_page
from p2plane.report.panel import deviations, verdict
from tests.report.registrations import chair, empty, registration, turned, wall


class Elements(HTMLParser):
    """The elements of a page, and the text of those that matter here."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._open, []).append(data)


def written(folder: Path, result: Registration, **settings: Any) -> str:
    write_page(folder / "page.html", result, **settings)
    return (folder / "page.html").read_text(encoding="utf-8")


def scene_in(page: str) -> dict[str, Any]:
    return json.loads(Elements(page).texts["script"][0])


def unpacked(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def places(cloud: dict[str, Any]) -> np.ndarray:
    return unpacked(cloud["positions"], "<i2").reshape(-1, 3) / 32767 * np.array(cloud["extent"])


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    page = written(tmp_path, chair(300))
    linked = [attributes for _, attributes in Elements(page).tags if {"src", "href"} & set(attributes)]
    assert linked == [{"rel": "icon", "href": "data:,"}]
    assert not re.search(r"https?://|@import|url\(", page)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_both_clouds_are_where_they_belong_before_and_after(tmp_path: Path) -> None:
    result = chair(300)
    scene = scene_in(written(tmp_path, result))
    source, target = (places(cloud) for cloud in scene["clouds"])
    middle = (result.target.points.amax(0) + result.target.points.amin(0)).numpy() / 2
    fine = 2 / 32767 * scene["scale"]
    np.testing.assert_allclose(scene["scale"] * target + middle, result.target.points, atol=fine)

    motion = scene["motion"]
    before = scene["scale"] * (source + motion["before"]) + middle
    np.testing.assert_allclose(before, result.source.points, atol=fine)
    R = so3.exp(torch.tensor(motion["omega"], dtype=torch.float64)).numpy()
    after = scene["scale"] * (source @ R.T + motion["after"]) + middle
    np.testing.assert_allclose(after, se3.apply(result.T_target_source, result.source.points), atol=fine)


def test_every_matched_point_has_the_colour_of_its_distance(tmp_path: Path) -> None:
    result = chair(300)
    scene = scene_in(written(tmp_path, result))
    levels = unpacked(scene["clouds"][0]["distances"], "u1")
    matched = np.zeros(len(levels), dtype=bool)
    matched[result.matches.source] = True
    assert (levels[~matched] == 255).all()
    assert (~matched).any()
    shares = np.minimum(result.matches.residuals.abs().numpy() / scene["limit"], 1)
    np.testing.assert_allclose(levels[result.matches.source] / 254, shares, atol=0.5 / 254 + 1e-9)
    np.testing.assert_allclose(unpacked(scene["pairs"]["weights"], "u1"), result.matches.weights * 255, atol=1)


def test_large_clouds_are_thinned_and_the_page_says_so(tmp_path: Path) -> None:
    result = chair(2000)
    total = len(result.source) + len(result.target)
    page = written(tmp_path, result, max_points=500)
    assert sum(cloud["count"] for cloud in scene_in(page)["clouds"]) == 500
    assert f"500 of {total:,} points are drawn." in page
    whole = written(tmp_path, result)
    assert f"All {total:,} points are drawn." in whole
    # Six bytes of position, three of the normal and one of the distance, four letters for every three of them.
    assert len(whole) - len(page) < 1.01 * (total - 500) * 10 * 4 / 3


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    evil = "</script><script>window.broken = true</script><!-- {{script}} \u2028 & \"'"
    result = dataclasses.replace(wall(50), warnings=(evil,), undetermined=(evil, evil, evil))
    page = written(tmp_path, result, title=evil, source_name=evil, target_name=evil, unit=evil, settings={evil: evil})
    elements = Elements(page)
    scripts = [attributes.get("type") for tag, attributes in elements.tags if tag == "script"]
    assert scripts == ["application/json", None]
    assert "".join(elements.texts["title"]) == evil
    assert scene_in(page)["clouds"][0]["name"] == evil
    assert page.count("{{script}}") == page.count("window.broken = true") > 5  # as text, and nothing was filled in


def test_clouds_far_apart_are_drawn_closer_and_the_page_says_so(tmp_path: Path) -> None:
    result = chair(200)
    far = Cloud(result.source.points + 1e6, result.source.normals)
    T = result.T_target_source @ se3.exp(torch.tensor([0, 0, 0, -1e6, -1e6, -1e6], dtype=torch.float64))
    scene = scene_in(written(tmp_path, registration(far, result.target, T, reach=0.05)))
    assert np.linalg.norm(scene["motion"]["before"]) < 2
    assert "farther apart than drawn" in (tmp_path / "page.html").read_text()
    near = scene_in(written(tmp_path, result))
    np.testing.assert_allclose(scene["motion"]["after"], near["motion"]["after"], atol=1e-6)


def test_the_light_follows_the_confidence() -> None:
    sure = chair(50)
    likely = dataclasses.replace(sure, confident=False, confidence=0.7)
    unlikely = dataclasses.replace(sure, confident=False, confidence=0.2)
    lights = [verdict(result).light for result in (sure, likely, unlikely, wall(50))]
    assert lights == ["green", "amber", "red", "amber"]


def test_deviations_are_those_of_the_middle_and_open_where_nothing_is_known() -> None:
    result = chair(200)
    generator = torch.Generator().manual_seed(0)
    root = torch.linalg.cholesky(result.covariance)
    steps = (root @ torch.randn(6, 20000, generator=generator, dtype=torch.float64)).mT  # (S, 6)
    middles = result.center + torch.linalg.cross(steps[:, :3], result.center.expand(len(steps), 3)) + steps[:, 3:]
    turns, shifts = deviations(result)
    torch.testing.assert_close(torch.tensor(turns), steps[:, :3].std(0), rtol=0.03, atol=0.0, check_dtype=False)
    torch.testing.assert_close(torch.tensor(shifts), middles.std(0), rtol=0.03, atol=0.0, check_dtype=False)
    turns, shifts = deviations(wall(200))
    assert [value is None for value in turns + shifts] == [False, False, True, True, True, False]


def test_undetermined_directions_are_listed_and_drawn(tmp_path: Path) -> None:
    page = written(tmp_path, wall(100))
    screws = scene_in(page)["screws"]
    assert [screw["label"] for screw in screws] == ["slides along x", "slides along y", "turns about z"]
    assert [(screw["turn"], screw["slide"]) for screw in screws] == [(0, 1), (0, 1), (1, 0)]
    assert "<li>turns about z</li>" in page


def _few(count: int) -> Registration:
    cloud = Cloud(torch.arange(3.0 * count, dtype=torch.float64).reshape(count, 3))
    return registration(cloud, cloud, torch.eye(4, dtype=torch.float64), reach=0.1)


def _in_one_place() -> Registration:
    cloud = Cloud(torch.ones(40, 3))
    return registration(cloud, cloud, torch.eye(4, dtype=torch.float64), reach=0.1)


def _half_turn() -> Registration:
    return dataclasses.replace(chair(50), T_target_source=turned((180.0, 0.0, 0.0), (0.0, 0.0, 0.0)))


@pytest.mark.parametrize("result", [empty(), _few(1), _few(2), _in_one_place(), _half_turn()])
def test_hard_data_gives_a_page(tmp_path: Path, result: Registration) -> None:
    page = written(tmp_path, result)
    assert "nan" not in re.sub(r'"[A-Za-z0-9+/=]{8,}"', "", page).lower().split()
    motion = scene_in(page)["motion"]
    assert np.isfinite([*motion["omega"], *motion["before"], *motion["after"]]).all()


def test_a_page_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    result = chair(20)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_page(tmp_path / "missing" / "page.html", result)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_page(tmp_path, result)
    (tmp_path / "page.html").write_text("old")
    with pytest.raises(ValueError, match="up must be one of"):
        write_page(tmp_path / "page.html", result, up="w")
    with pytest.raises(ValueError, match="max_points must be at least 1, got 0"):
        write_page(tmp_path / "page.html", result, max_points=0)
    assert (tmp_path / "page.html").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
