"""Prefect's pages in a real browser (Chromium without a screen)."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select
from serving import eventually

OPTIONS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900")


class Browser:
    """One window. `shots`: where `shot` puts pictures."""

    def __init__(self, driver: webdriver.Chrome, url: str, shots: Path) -> None:
        self._driver, self._url, self._shots = driver, url, shots

    def open(self, path: str) -> None:
        self._driver.get(f"{self._url}/{path}")

    def choose(self, value: str) -> None:
        """Choose a value from the first list that has it."""
        for found in self._driver.find_elements(By.TAG_NAME, "select"):
            if value in [option.text for option in found.find_elements(By.TAG_NAME, "option")]:
                Select(found).select_by_visible_text(value)
                return
        raise AssertionError(f"no list has {value}")

    def shows(self, text: str) -> bool:
        with suppress(WebDriverException):
            return text in self._driver.find_element(By.TAG_NAME, "body").text
        return False

    def wait_for(self, text: str) -> None:
        eventually(lambda: self.shows(text))

    def press(self, text: str) -> None:
        """Press the first button of that text as soon as there is one."""
        eventually(lambda: self._press(text, last=False))

    def _press(self, text: str, last: bool) -> bool:
        with suppress(WebDriverException):
            found = [b for b in self._driver.find_elements(By.TAG_NAME, "button") if b.text.strip() == text]
            if found and (not last or len(found) > 1):
                found[-1 if last else 0].click()
                return True
        return False

    def confirm(self, text: str, done: Callable[[], bool]) -> None:
        """Press the button of that text in the dialog that the page may show first."""
        eventually(lambda: done() or (self._press(text, last=True) and False))

    def shot(self, name: str) -> None:
        """A picture of the page, in few colours."""
        from PIL import Image

        path = self._shots / f"{name}.png"
        self._driver.save_screenshot(str(path))
        Image.open(path).convert("RGB").resize((960, 568)).quantize(64).save(path, optimize=True)


@contextmanager
def browsing(url: str, folder: Path, password: str = "") -> Iterator[Browser]:
    """A browser with the server's password; AUTOOPT_TEST_SHOTS names a folder for its pictures instead of `folder`."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("there is no chromium with chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in OPTIONS:
        options.add_argument(option)
    shots = Path(os.environ.get("AUTOOPT_TEST_SHOTS") or folder)
    shots.mkdir(parents=True, exist_ok=True)
    window = webdriver.Chrome(options=options, service=Service(driver))
    try:
        if password:
            window.get(f"{url}/ico.png")
            kept = base64.b64encode(password.encode()).decode()
            window.execute_script("localStorage.setItem('prefect-password', arguments[0])", kept)
        yield Browser(window, url, shots)
    finally:
        window.quit()
