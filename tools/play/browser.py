"""A headless Chromium, driven through its DevTools protocol: for tests of pages, and for screenshots of reports."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

VARIABLE = "CHROMIUM"
PACKAGED = Path(__file__).parents[1] / "chromium" / "node_modules"
"""Where `make` puts the one of a package, on Linux and x86-64."""
NAMES = (
    *("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    *(
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        "/Applications/Chromium.app/Contents/MacOS/Chromium",
    ),
)
OPTIONS = (
    *("--headless", "--no-sandbox", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--no-zygote"),
    *("--force-color-profile=srgb", "--hide-scrollbars", "--remote-debugging-port=0"),
)
PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.05


class NoBrowserError(Exception):
    """There is no browser; the sentence says how to get one."""


@dataclass(slots=True)
class Page:
    """An open tab."""

    socket: aiohttp.ClientWebSocketResponse
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def send(self, method: str, **params: Any) -> Mapping[str, Any]:
        """Give an order, and return its result."""
        number = next(self._numbers)
        await self.socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    message = await self.socket.receive_json()
                except TypeError:
                    raise NoBrowserError("the browser has ended") from None
                if message.get("id") == number:
                    assert "error" not in message, message  # noqa: S101 - a wrong order is a mistake of the caller's
                    result: Mapping[str, Any] = message["result"]
                    return result

    async def open(self, url: str, *, width: int = 1280) -> None:
        """Open a page, as wide as a screen or, below 600, as a phone shows it."""
        is_phone = width < 600
        size = {"width": width, "height": 800, "deviceScaleFactor": 2, "mobile": is_phone}
        await self.send("Emulation.setDeviceMetricsOverride", **size)
        await self.send("Emulation.setTouchEmulationEnabled", enabled=is_phone)
        await self.send("Page.navigate", url=url)
        await self.wait("document.readyState === 'complete'")

    async def run(self, expression: str) -> Any:
        """Evaluate JavaScript in the page."""
        done = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]  # noqa: S101 - as above
        return done["result"].get("value")

    async def wait(self, expression: str) -> Any:
        """Wait until JavaScript is true, and return its value."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if value := await self.run(expression):
                    return value
                await asyncio.sleep(POLL_SECONDS)

    async def press(self, key: str) -> None:
        """Press a key."""
        # A button takes Enter by its text.
        text = {"text": "\r", "windowsVirtualKeyCode": 13} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, **text)

    async def shoot(self) -> bytes:
        """Take a picture of the whole page, as PNG."""
        shot = await self.send("Page.captureScreenshot", captureBeyondViewport=True)
        return b64decode(shot["data"])


def find_browser(environ: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Find a browser, and what its environment needs.

    Raises:
        NoBrowserError: there is no browser.
    """
    named = environ.get(VARIABLE)
    for name in [named] if named else NAMES:
        if path := shutil.which(name):
            return path, {}
    packaged = PACKAGED / "chromium"
    if not named and packaged.exists():
        # With libraries and fonts for a machine that has none.
        fonts = {} if Path("/etc/fonts").exists() else {"FONTCONFIG_PATH": str(PACKAGED / "fonts")}
        return str(packaged), {"LD_LIBRARY_PATH": str(PACKAGED / "al2023/lib"), **fonts}
    raise NoBrowserError(
        f"there is no browser{f' {named}' if named else ''}: install Chromium or Google Chrome, or name it in"
        f" {VARIABLE}; on Linux and x86-64, `make chromium` installs one"
    )


@asynccontextmanager
async def open_browser() -> AsyncIterator[Page]:
    """Start a browser with a profile of its own, and end it after the block."""
    path, more = find_browser(os.environ)
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = (path, *OPTIONS, f"--user-data-dir={profile}", "about:blank")
        quiet = asyncio.subprocess.DEVNULL
        # In a session of its own: what some systems call Chromium is a script that starts it.
        process = await asyncio.create_subprocess_exec(
            *command, stdout=quiet, stderr=quiet, env={**os.environ, **more}, start_new_session=True
        )
        try:
            port = await asyncio.to_thread(_read_port, process, Path(profile) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json") as response:
                    tabs = await response.json()
                (tab,) = (tab for tab in tabs if tab["type"] == "page")
                async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    yield Page(socket)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def take_pictures(page_file: Path) -> None:
    """Take a screenshot of a page on a screen and on a phone, and write them beside it."""
    url = await asyncio.to_thread(lambda: page_file.resolve().as_uri())
    async with open_browser() as page:
        for name, width in (("", 1280), ("-phone", 390)):
            await page.open(url, width=width)
            taken = await page.shoot()
            await asyncio.to_thread(page_file.with_name(f"{page_file.stem}{name}.png").write_bytes, taken)


def _read_port(process: asyncio.subprocess.Process, file: Path) -> int:
    """Wait for the file with the port; its second line comes last."""
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not (file.exists() and "\n" in file.read_text()):
        if process.returncode or time.monotonic() > ends_at:
            said = f"ended with status {process.returncode}" if process.returncode else "is not there in time"
            raise NoBrowserError(f"the browser did not start: it {said}")
        time.sleep(POLL_SECONDS)
    return int(file.read_text().split("\n")[0])


if __name__ == "__main__":
    try:
        print(find_browser(os.environ)[0])
    except NoBrowserError as error:
        sys.exit(str(error))
