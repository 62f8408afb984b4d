"""A real browser without a screen, driven by the DevTools protocol: what a page asks for, says, and looks like.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gpudask.api import Json
from local.errors import LocalClusterError
from local.host.progress import QUIET
from local.programs.requirements import BROWSER, ensure_requirements

_SECONDS = 60


@dataclass
class Browser:
    """One page of a browser. `requests` are the URLs that it asked for, `told` what it wrote on its console."""

    socket: aiohttp.ClientWebSocketResponse
    requests: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    _number: int = 0
    _is_loaded: bool = False

    async def call(self, method: str, **parameters: Any) -> Json:
        """The answer to a command; what the browser tells meanwhile is kept."""
        self._number += 1
        await self.socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message = await self._next()
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                result: Json = message["result"]
                return result

    async def open(self, page: Path | str, *, width: int, height: int = 900, scheme: str = "light") -> None:
        """Load a file or a URL in a window of this width, by a user who likes pages light or dark."""
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self.call(f"{domain}.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        likes = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=likes)
        self.requests.clear()
        self._is_loaded = False
        await self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        async with asyncio.timeout(_SECONDS):
            while not self._is_loaded:
                await self._next()

    async def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript, which the page itself may not run."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def picture(self, first: str = "body", last: str = "") -> bytes:
        """A picture of the page from one element to the end of another, as PNG; selectors of CSS."""
        place = "document.querySelector('{}').getBoundingClientRect().{}"
        begin = await self.value(place.format(first, "top"))
        end = await self.value(place.format(last or first, "bottom"))
        margin = 0 if first == "body" else 20
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": begin - margin, "width": size["width"], "height": end - begin + 2 * margin, "scale": 1}
        answer = await self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    async def screen(self) -> bytes:
        """A picture of what the window shows, as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])

    async def click(self, selector: str) -> None:
        """Press and release the mouse in the middle of the element, as a person does."""
        await self.value(f"document.querySelector({json.dumps(selector)}).scrollIntoViewIfNeeded()")
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = await self.value(f"(box => [box.x + box.width / 2, box.y + box.height / 2])({box})")
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def type(self, text: str) -> None:
        """Write where the cursor is."""
        await self.call("Input.insertText", text=text)

    async def printed(self) -> bytes:
        """The page on paper, as PDF."""
        answer = await self.call("Page.printToPDF", printBackground=False)
        return base64.b64decode(answer["data"])

    async def _next(self) -> Json:
        async with asyncio.timeout(_SECONDS):
            message: Json = json.loads((await self.socket.receive()).data)
        event, said = message.get("method"), message.get("params", {})
        if event == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif event == "Log.entryAdded":
            self.told.append(f"{said['entry']['level']}: {said['entry']['text']}")
        elif event == "Runtime.consoleAPICalled":
            self.told.append(f"{said['type']}: {said['args']}")
        elif event == "Runtime.exceptionThrown":
            self.told.append(f"exception: {said['exceptionDetails']}")
        elif event == "Page.javascriptDialogOpening":
            self.told.append(f"dialog: {said['message']}")
        elif event == "Page.loadEventFired":
            self._is_loaded = True
        return message


def ensure_browser() -> None:
    """Install Chromium where it is missing; skip the test, with the reason, where that cannot be."""
    try:
        ensure_requirements(BROWSER, QUIET)
    except LocalClusterError as error:
        pytest.skip(f"no browser: {error}")


@contextlib.asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Browser]:
    """A browser whose files are in `folder`, with one empty page."""
    chromium = shutil.which("chromium")
    assert chromium is not None
    # As root it has no sandbox; the pages are the tests' own. /dev/shm is small in containers.
    flags = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"]
    quiet = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command = [chromium, *flags, *quiet, "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL, stderr=log)
    try:
        port = await _port(process, folder)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                (page,) = [each for each in await answer.json() if each["type"] == "page"]
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Browser(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _port(process: asyncio.subprocess.Process, folder: Path) -> str:
    """The port at which it listens, as it writes it."""
    found = folder / "DevToolsActivePort"
    async with asyncio.timeout(_SECONDS):
        while True:
            lines = found.read_text().splitlines() if found.exists() else []
            if len(lines) > 1:
                return lines[0]
            assert process.returncode is None, (folder / "log").read_text()
            await asyncio.sleep(0.05)
