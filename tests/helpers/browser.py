"""A page in a headless Chromium, driven through its debugging pipe: no driver, no package, no network."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(
        None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"))
    ),
    None,
)
PATIENCE = 60.0  # seconds for one answer: a cold start on a busy machine takes ten


class Page:
    """One page of a running browser."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser; its answer. Events that arrive before are kept."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            came = self._next()
            if came.get("id") == self._number:
                assert "error" not in came, f"{method}: {came['error']}"
                return dict(came["result"])

    def _next(self) -> dict[str, Any]:
        limit = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._back], [], [], max(limit - time.monotonic(), 0.0))
            part = os.read(self._back, 1 << 20) if ready else b""
            assert part, "the browser does not answer"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        came: dict[str, Any] = json.loads(text)
        if "id" not in came:
            self.events.append(came)
        return came

    def open(self, path: Path, width: int, scheme: str = "light", media: str = "screen", height: int = 900) -> None:
        """Show a file at a width in CSS pixels (a phone's viewport below 600)."""
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self.call(
            "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._next()

    def evaluate(self, script: str) -> Any:
        """Value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path | None = None, whole: bool = True) -> bytes:
        """PNG of the page."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])
        if path is not None:
            path.write_bytes(data)
        return data

    @property
    def requests(self) -> list[str]:
        """What the page asked for, besides itself and pictures that it carries."""
        asked = [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in asked[1:] if not url.startswith("data:")]

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the console."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in kinds]


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """A page of a browser of its own, which ends with the block."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        down, up = os.pipe(), os.pipe()
        # The browser reads its orders from descriptor 3 and answers on 4.
        shell = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
        ]
        options += [
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={profile}",
        ]
        command = ["bash", "-c", shell, "bash", str(down[0]), str(up[1]), CHROMIUM, "--remote-debugging-pipe", *options]
        child = subprocess.Popen(
            command,
            pass_fds=(down[0], up[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(down[0])
        os.close(up[1])
        try:
            yield Page(down[1], up[0])
        finally:
            os.close(down[1])
            os.close(up[0])
            # Without its pipe it ends by itself.
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
