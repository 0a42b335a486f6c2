"""The web page of an agent as a child process, and Chromium, for tests, benchmarks and pictures."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from .process import Daemon
from .tools import daemon_environment, get_tool

T = TypeVar("T")
DEADLINE = 120.0
"""Seconds for anything that usually takes less than one."""


class PrivatePage:
    """The process ``kubeletx-web`` for one admin socket. As a context manager it runs during the block."""

    def __init__(self, socket_path: Path, directory: Path, *, name: str = "web") -> None:
        """`directory`: for its log, ``NAME.log``."""
        program = Path(sys.executable).with_name("kubeletx-web")
        self.daemon = Daemon(
            name=name,
            argv=(str(program), "--socket", str(socket_path), "--no-browser"),
            directory=directory,
            env={**daemon_environment(), "PYTHONUNBUFFERED": "1"},
        )
        self.link = ""
        """The link that works once."""

    @property
    def url(self) -> str:
        """The page's address without the token."""
        return self.link.partition("?")[0]

    def __enter__(self) -> PrivatePage:
        self.daemon.log_path.unlink(missing_ok=True)
        self.daemon.start()
        self.daemon.wait_until(self._has_link, what="link to the page")
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.daemon.stop()

    def _has_link(self) -> bool:
        found = re.search(r"http://\S+\?token=\S+\n", self.daemon.log_path.read_text())
        self.link = found[0].strip() if found else ""
        return bool(found)


class Browser:
    """Chromium with one window."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def emulate(self, *, width: int = 0, scheme: str = "", scripts: bool = True) -> None:
        """Set the width of the window (0: as it is), the preferred colours (``dark``), and whether pages run scripts."""
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        if width:
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        else:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})

    def script(self, text: str, *arguments: Any) -> Any:
        """Run a JavaScript function's body in the page and return its result."""
        return self.driver.execute_script(text, *arguments)

    def find(self, path: str) -> WebElement:
        """Return the element of an XPath, once there is one."""
        found: WebElement = self.until(lambda: self.driver.find_element(By.XPATH, path), path)
        return found

    def click(self, path: str) -> None:
        """Click the element of an XPath, which the page may replace at any time."""

        def look() -> bool:
            self.driver.find_element(By.XPATH, path).click()
            return True

        self.until(look, path)

    def texts(self, css: str) -> list[str]:
        """Return the texts of all elements of a CSS selector."""
        texts: list[str] = self.script(
            "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent.trim())", css
        )
        return texts

    def until(self, look: Callable[[], T], what: str) -> T:
        """Return the first true result of `look`; fails with `what` after `DEADLINE`.

        A page that is being loaded or changed has no such element for a moment, or no context of scripts.
        """
        wait = WebDriverWait(
            self.driver, DEADLINE, poll_frequency=0.05, ignored_exceptions=(WebDriverException,)
        )
        return wait.until(lambda _driver: look(), f"after {DEADLINE:g} s still not: {what}")

    def problems(self) -> list[str]:
        """Return the messages of the console since the last call: errors, and what the security policy forbids.

        A stream of events that ends is none; htmx logs it as an object.
        """
        messages = [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call] # selenium
        return [text for text in messages if "[object Event]" not in text and "ERR_" not in text]


@contextmanager
def chromium(directory: Path, *, width: int = 1400, height: int = 1000) -> Iterator[Browser]:
    """Start Chromium with a profile of its own in `directory`, and end it after the block."""
    options = ChromeOptions()
    options.binary_location = get_tool("chromium")
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
        "--disable-background-networking", f"--window-size={width},{height}", f"--user-data-dir={directory}",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = ChromeService(get_tool("chromedriver"), env={**daemon_environment(), "HOME": str(directory)})
    driver = Chrome(options=options, service=service)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
