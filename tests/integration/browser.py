"""A headless Chromium driven over the DevTools protocol: open, look, click with a real mouse, take a picture."""

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
WAIT_SECONDS = 90.0
PAUSE_SECONDS = 0.2
WIDTH, HEIGHT = 1400, 1000
REQUIRED = os.environ.get("IGRPO_REQUIRE_CHROMIUM") == "1"

needs_chromium = pytest.mark.skipif(
    not REQUIRED and not any(map(shutil.which, PROGRAMS)), reason="no Chromium; Debian's package is called chromium"
)


class Page:
    """A tab. ``dialogs`` and ``requests`` collect what the page opened and asked for."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._number = 0
        self.dialogs: list[str] = []
        self.requests: list[str] = []
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer of a command of the protocol; RuntimeError with what the browser says against it."""
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._connection.recv(timeout=WAIT_SECONDS))
            if told.get("method") == "Page.javascriptDialogOpening":
                self.dialogs.append(told["params"]["message"])
                self._number += 1
                close = {"id": self._number, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
                self._connection.send(json.dumps(close))
            if told.get("method") == "Network.requestWillBeSent":
                self.requests.append(told["params"]["request"]["url"])
            if told.get("id") == self._number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return told["result"]  # type: ignore[no-any-return]

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    @property
    def address(self) -> str:
        return str(self.evaluate("location.href"))

    @property
    def text(self) -> str:
        """What a person can read."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def wait_for(self, what: str, is_there: Callable[[], Any]) -> Any:
        """What ``is_there`` gives as soon as it is true; an AssertionError shows the page after 90 s."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            if found := is_there():
                return found
            time.sleep(PAUSE_SECONDS)
        raise AssertionError(f"{what} did not appear on {self.address}:\n{self.text[:3000]}")

    def wait_for_text(self, *texts: str) -> None:
        self.wait_for(f"{texts}", lambda: all(text in self.text for text in texts))

    def click_link(self, pattern: str) -> str:
        """Click the first visible link whose address matches the regular expression; gives the address."""
        script = f"""(() => {{
            const found = [...document.querySelectorAll('a')].find(
                each => RegExp({json.dumps(pattern)}).test(decodeURIComponent(each.getAttribute('href') || '')) && each.getClientRects().length);
            if (!found) return null;
            found.scrollIntoView({{block: 'center'}});
            found.removeAttribute('target');
            const at = (found.querySelector('img') || found).getBoundingClientRect();
            return [at.x + at.width / 2, at.y + at.height / 2, found.href];
        }})()"""
        self.wait_for(f"a link to {pattern}", lambda: self.evaluate(script))
        time.sleep(PAUSE_SECONDS)  # scrolled pages settle
        x, y, address = self.evaluate(script)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        return str(address)

    def picture(self, path: Path) -> None:
        """What the window shows, as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A tab of a Chromium of its own, whose profile is in ``folder``; it is gone afterwards."""
    program = next(filter(None, map(shutil.which, PROGRAMS)))
    process = subprocess.Popen(
        [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
            f"--user-data-dir={folder}", f"--window-size={WIDTH},{HEIGHT}", "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        port = _port(folder / "DevToolsActivePort", process)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=WAIT_SECONDS) as answer:
            tabs = json.load(answer)
        address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        with connect(address, max_size=None) as connection:
            yield Page(connection)
    finally:
        process.terminate()
        process.wait(WAIT_SECONDS)


def _port(path: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"Chromium ended with status {process.poll()}"
        if path.is_file() and (lines := path.read_text().splitlines()):
            return lines[0]
        time.sleep(PAUSE_SECONDS)
    raise AssertionError("Chromium did not name its port")
