"""The page in a real browser."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from p2plane import Cloud
from p2plane.report import write_page
from tests.report.browser import NAMES, Browser, find_browser
from tests.report.registrations import chair, empty, registration, wall

pytestmark = pytest.mark.skipif(find_browser() is None, reason=f"none of {', '.join(NAMES)} is installed")
image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")

NEXT_FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
WINDOW = (1000, 600)
STAGE = (slice(60, 530), slice(0, 625))  # the clouds without the controls


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(*WINDOW) as opened:
        opened.prefer(prefers_reduced_motion="reduce")
        yield opened


def show(browser: Browser, page: Path) -> None:
    browser.events.clear()
    browser.open(page)
    browser.wait("document.getElementById('share').value === '1'")


def look(browser: Browser) -> np.ndarray:
    """(H, W, 3) what the window shows once it is drawn."""
    browser.run(NEXT_FRAME)
    return image.imread(io.BytesIO(browser.screenshot()))[..., :3]


def press(browser: Browser, selector: str) -> None:
    browser.run(f"document.querySelector({selector!r}).click()")


def difference(first: np.ndarray, second: np.ndarray) -> float:
    """Part of the pixels of the stage that changed."""
    return float((np.abs(first[STAGE] - second[STAGE]).max(-1) > 0.1).mean())


def test_the_page_loads_and_every_control_does_what_it_says(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page(page, chair(800), title="</script><script>window.broken = true</script>", unit="m")
    show(browser, page)
    after = look(browser)
    red, blue = after[STAGE][..., 0], after[STAGE][..., 2]
    assert (red - blue > 0.4).mean() > 0.02  # orange, the source
    assert (blue - red > 0.3).mean() > 0.02  # blue, the target
    assert difference(after, look(browser)) == 0

    press(browser, "#before")
    browser.wait("document.getElementById('share').value === '0'")
    before = look(browser)
    assert browser.run("document.getElementById('before').getAttribute('aria-pressed')") == "true"
    assert difference(before, after) > 0.05
    press(browser, "#show-pairs")
    assert difference(look(browser), before) > 0.005
    press(browser, "#show-pairs")
    assert difference(look(browser), before) == 0
    press(browser, "#after")
    browser.wait("document.getElementById('share').value === '1'")
    assert difference(look(browser), after) == 0

    press(browser, "[data-coloring=distance]")
    assert browser.run("document.getElementById('legend').hidden") is False
    assert difference(look(browser), after) > 0.05
    press(browser, "[data-coloring=clouds]")
    press(browser, "#show-source")
    assert (look(browser)[STAGE][..., 0] - look(browser)[STAGE][..., 2] > 0.4).mean() < 0.001
    press(browser, "#show-source")

    browser.drag((310, 300), (400, 340))
    turned = look(browser)
    assert difference(turned, after) > 0.05
    browser.drag((310, 300), (400, 340), button="right")
    assert difference(look(browser), turned) > 0.05
    press(browser, "#reset")
    assert difference(look(browser), after) == 0

    assert browser.run("window.broken") is None
    assert browser.complaints() == []
    assert [url.split(":")[0] for url in browser.requests() if not url.startswith("data:")] == ["file"]


def test_the_wheel_comes_closer_and_goes_back(browser: Browser, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", chair(300), unit="m")
    show(browser, tmp_path / "page.html")
    before, bar = look(browser), browser.run("document.querySelector('#scale span').textContent")
    wheel = {"type": "mouseWheel", "x": 310, "y": 300, "deltaX": 0}
    for _ in range(4):
        browser.call("Input.dispatchMouseEvent", **wheel, deltaY=-300)
    assert difference(look(browser), before) > 0.1
    assert float(browser.run("document.querySelector('#scale span').textContent").split()[0]) < float(bar.split()[0])
    for _ in range(4):
        browser.call("Input.dispatchMouseEvent", **wheel, deltaY=300)
    assert difference(look(browser), before) < 0.002


def test_one_finger_turns_and_two_come_closer(browser: Browser, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", chair(300))
    show(browser, tmp_path / "page.html")
    first, bar = look(browser), browser.run("document.querySelector('#scale span').textContent")
    _touch(browser, [[(250, 300)], [(330, 320)]])
    turned = look(browser)
    assert difference(turned, first) > 0.05
    assert browser.run("document.querySelector('#scale span').textContent") == bar
    _touch(browser, [[(280, 300), (340, 300)], [(110, 300), (510, 300)]])
    assert difference(look(browser), turned) > 0.1
    assert float(browser.run("document.querySelector('#scale span').textContent")) < float(bar)


def _touch(browser: Browser, places: list[list[tuple[int, int]]]) -> None:
    """Put fingers down at the first places, move them on, and lift them."""
    for number, fingers in enumerate([*places, []]):
        kind = "touchStart" if number == 0 else "touchMove" if fingers else "touchEnd"
        points = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(fingers)]
        browser.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)


def test_keys_and_axes(browser: Browser, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", chair(200))
    show(browser, tmp_path / "page.html")
    first = look(browser)
    for key in ("ArrowLeft", "+", "r"):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        assert (difference(look(browser), first) > 0.02) == (key != "r")
    _upright(browser, "y", 1)
    _upright(browser, "y", -1)
    _upright(browser, "x", 1)
    browser.call("Input.dispatchKeyEvent", type="keyDown", key=" ")
    browser.wait("document.getElementById('share').value === '0'")
    assert browser.complaints() == []


def _upright(browser: Browser, axis: str, sign: int) -> None:
    """Click the letter of an axis, and see it point up, or down at the second time."""
    text = f"document.querySelector('#axes text.{axis}')"
    box = browser.run(f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({text}.getBoundingClientRect())")
    browser.drag(tuple(box), tuple(box))
    browser.run(NEXT_FRAME)
    assert -sign * float(browser.run(f"{text}.getAttribute('y')")) > 30  # the picture's y goes down
    assert abs(float(browser.run(f"{text}.getAttribute('x')"))) < 0.1


def test_open_directions_are_drawn_as_arrows_with_their_names(browser: Browser, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", wall(500))
    show(browser, tmp_path / "page.html")
    shown = look(browser)
    magenta = (shown[STAGE][..., 0] - shown[STAGE][..., 1] > 0.4) & (shown[STAGE][..., 2] - shown[STAGE][..., 1] > 0.3)
    assert magenta.mean() > 0.005
    labels = "[...document.querySelectorAll('#labels span:not([hidden])')].map((label) => label.textContent)"
    assert browser.run(labels) == ["slides along x", "slides along y", "turns about z"]
    press(browser, "#show-open")
    assert difference(look(browser), shown) > 0.005
    assert browser.run(labels) == []
    assert browser.complaints() == []


def test_own_colours_are_those_of_the_cloud(browser: Browser, tmp_path: Path) -> None:
    result = chair(500)
    green = torch.tensor([0.0, 1.0, 0.0]).expand(len(result.source), 3)
    source = Cloud(result.source.points, result.source.normals, green)
    write_page(tmp_path / "page.html", registration(source, result.target, result.T_target_source, reach=0.05))
    show(browser, tmp_path / "page.html")
    press(browser, "[data-coloring=own]")
    shown = look(browser)[STAGE]
    assert (shown[..., 1] - shown[..., [0, 2]].max(-1) > 0.4).mean() > 0.02


def test_a_narrow_window_and_a_dark_one(browser: Browser, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", wall(300), source_name="a_long_name_of_a_scan_without_spaces" * 3 + ".ply")
    try:
        browser.resize(360, 740, mobile=True)
        browser.prefer(prefers_reduced_motion="reduce", prefers_color_scheme="dark")
        show(browser, tmp_path / "page.html")
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        assert look(browser)[300, 5].max() < 0.2
        assert browser.complaints() == []
    finally:
        browser.resize(*WINDOW)
        browser.prefer(prefers_reduced_motion="reduce")


def test_empty_clouds(browser: Browser, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", empty())
    show(browser, tmp_path / "page.html")
    assert browser.run("document.getElementById('failure').hidden") is True
    assert browser.complaints() == []


def test_without_webgl_the_numbers_stay(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", chair(100))
    with Browser(flags=("--disable-3d-apis",)) as plain:
        plain.open(tmp_path / "page.html")
        plain.wait("!document.getElementById('failure').hidden")
        assert "WebGL" in plain.run("document.getElementById('failure').textContent")
        assert plain.run("document.querySelector('.matrix').rows.length") == 4
        assert plain.run("getComputedStyle(document.getElementById('top')).display") == "none"
