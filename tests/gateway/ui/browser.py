"""A real browser for tests: Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-component-update",
    "--disable-background-networking",
)


def chromium() -> str:
    """Its path; the test is skipped where there is none, but never in CI."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        assert not os.environ.get("FOREBAY_ALL_TOOLS"), "this machine lacks Debian's chromium"
        pytest.skip("no Chromium is installed")
    return found


@asynccontextmanager
async def opened(url: str, **context: Any) -> AsyncIterator[Page]:
    """The page at an address; an exception in its scripts is a failure."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        page = await browser.new_page(**context)
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await page.goto(url)
        yield page
        await browser.close()
    assert not complaints
