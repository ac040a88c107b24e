"""A headless Chromium, driven through the pipes of its developer tools: no driver and no library is needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--enable-unsafe-swiftshader",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
    "--use-angle=swiftshader",
    "--use-gl=angle",
)


def find_browser() -> str | None:
    """The path of a Chromium, if there is one."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page in one Chromium; what it logs and asks the network for is kept."""

    def __init__(self, width: int = 1280, height: int = 800, *, flags: tuple[str, ...] = ()) -> None:
        self.events: list[dict[str, Any]] = []
        self._size, self._flags, self._last, self._buffer = (width, height), flags, 0, b""

    def __enter__(self) -> Browser:
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4.
        command = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        path = find_browser()
        assert path is not None
        arguments = [*FLAGS, *self._flags, f"--user-data-dir={self._home.name}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", command, path, *arguments],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._attach()
        return self

    def __exit__(self, *failure: object) -> None:
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._home.cleanup()

    def _attach(self) -> None:
        self._session: str | None = None
        pages = [target for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(*self._size)

    def resize(self, width: int, height: int, ratio: float = 1.0, *, mobile: bool = False) -> None:
        """Give the window another size."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": ratio, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def prefer(self, **features: str) -> None:
        """Set media features, such as ``prefers_color_scheme="dark"``."""
        chosen = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=chosen)

    def open(self, path: Path) -> None:
        """Load a file and wait until it is there."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 60.0) -> None:
        """Wait until an expression in the page is true."""
        end = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > end:
                raise AssertionError(f"{condition} did not become true in {seconds} s")
            time.sleep(0.05)

    def screenshot(self) -> bytes:
        """A PNG of the window."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def drag(self, start: tuple[float, float], end: tuple[float, float], button: str = "left") -> None:
        """Press a button of the mouse at one place and release it at another."""
        for kind, (x, y) in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
            buttons = 0 if kind == "mouseReleased" else {"left": 1, "right": 2}[button]
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=buttons, clickCount=1)

    def complaints(self) -> list[str]:
        """Errors and warnings that the page caused; that screenshots are slow is not its fault."""
        found = []
        for event in self.events:
            parameters = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled":
                found.append(str(parameters["args"]))
            elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                found.append(parameters["entry"]["text"])
        return [text for text in found if "ReadPixels" not in text]

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        sent = (event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [parameters["request"]["url"] for parameters in sent]

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command of the developer tools' protocol."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._last > 2 and self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], 120)
            chunk = os.read(self._read, 1 << 20) if ready else b""
            if not chunk:
                raise AssertionError("the browser does not answer")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(line)
