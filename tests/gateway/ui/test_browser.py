"""The live page in a real browser, in front of a gateway that works."""

import asyncio
import itertools
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import openai
from playwright.async_api import Page, expect

from tests.gateway.ui.browser import opened
from tests.integration.conftest import StartEngine, StartGateway
from tests.integration.parts import MODEL, Engine, Gateway

IMAGES = os.environ.get("FOREBAY_SCREENSHOTS")
"""A folder for new pictures for the documentation; without it none are made."""

ENGINE = ("--preset", "a100-llama-8b")
DESKTOP = {"width": 1280, "height": 900}
FAST = 3_000
"""Milliseconds that the page gets for what it shows each second."""


@asynccontextmanager
async def traffic(gateway: Gateway) -> AsyncIterator[None]:
    """Short prompts one after the other, and long ones that come together."""
    numbers = itertools.count()  # no prompt begins as another one

    async def ask(words: int, client: openai.AsyncOpenAI) -> None:
        prompt = " ".join(f"word{number}" for number in (next(numbers), *range(words)))
        stream = await client.completions.create(
            model=MODEL, prompt=prompt, stream=True, max_tokens=8
        )
        async for _ in stream:
            pass

    async def keep_asking(words: int, together: int) -> None:
        async with gateway.client() as client:
            while True:
                asked = (ask(words, client) for _ in range(together))
                await asyncio.gather(*asked, return_exceptions=True)
                await asyncio.sleep(0.1)

    asking = [asyncio.create_task(keep_asking(*how)) for how in ((20, 1), (1500, 6))]  # noqa: TID251
    try:
        yield
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


@asynccontextmanager
async def the_page(
    start_engine: StartEngine, start_gateway: StartGateway
) -> AsyncIterator[tuple[Page, Gateway, Engine]]:
    short, long, other = await asyncio.gather(*(start_engine(*ENGINE) for _ in range(3)))
    gateway = await start_gateway(
        backends={
            "short-0": {"url": short.url, "classes": ["short"]},
            "long-0": {"url": long.url, "classes": ["long"], "limit": 8},
            "long-1": {"url": other.url, "classes": ["long"], "limit": 8},
        },
        admin={"port": 0},
    )
    url = f"http://127.0.0.1:{gateway.app.brain.admin.port}/ui"
    async with opened(url, viewport=DESKTOP, color_scheme="light") as page:
        yield page, gateway, other


async def test_it_shows_what_happens_while_it_happens(
    start_engine: StartEngine, start_gateway: StartGateway
) -> None:
    async with the_page(start_engine, start_gateway) as (page, gateway, long):
        await expect(page.locator("#ready")).to_have_text("ready")
        await expect(page.locator("#backends tbody tr")).to_have_count(3)
        await expect(page.locator('.card[data-class="short"] .empty')).to_be_visible()
        assert await unlabelled(page) == []
        async with traffic(gateway):
            await see_it_move(page)
            await screenshots(page)
            await see_it_die(page, long)
        await see_the_buttons_work(page)
        await see_it_on_a_phone_in_the_dark(page)
        await gateway.app.brain.admin.stop()
        await expect(page.locator("#alert")).to_contain_text("connection to the gateway is lost")


async def see_it_move(page: Page) -> None:
    """Figures, stages, bursts with their causes."""
    short = page.locator('.card[data-class="short"]')
    await expect(short.locator(".figures dd").first).to_contain_text(re.compile(r"\d+(\.\d+)? ms"))
    await expect(short.locator(".waterfall")).to_contain_text("engine: first token")
    burst = page.locator("#log .item-burst").first
    await expect(burst).to_contain_text("burst: a prompt of")
    await expect(burst).to_contain_text("when request")
    shades = page.locator('.card[data-class="long"] .shades rect')
    await expect(shades.first).to_be_attached(timeout=FAST)


async def see_it_die(page: Page, engine: Engine) -> None:
    """A killed backend is shown as down within two seconds."""
    state = page.locator('tr[data-backend="long-1"] .pill')
    await expect(state).to_contain_text("ready")
    engine.kill()
    killed = monotonic()
    await expect(state).to_contain_text("down", timeout=2_000)
    assert monotonic() - killed < 2.0
    await expect(page.locator("#log .item-backend").first).to_contain_text("down")
    await expect(page.locator("#facts")).to_contain_text("2 of 3 ready", timeout=FAST)


async def see_the_buttons_work(page: Page) -> None:
    """By keyboard: filters, pause, and the list of all settings."""
    await page.locator('[data-filter="backend"]').focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#log .item-burst").first).to_be_hidden()
    await expect(page.locator("#log .item-backend").first).to_be_visible()
    await page.locator("#pause").press("Space")
    await expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")
    await page.locator("summary").press("Enter")
    await page.locator("#find").fill("burst.prompt")
    await expect(page.locator("#effective tr:visible")).to_have_count(2)
    await expect(page.locator("#effective tr:visible").first).to_contain_text("2,048")


async def see_it_on_a_phone_in_the_dark(page: Page) -> None:
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.emulate_media(color_scheme="dark")
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width == 390, "nothing sticks out to the side"
    dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark == "rgb(13, 17, 23)"


async def unlabelled(page: Page) -> list[str]:
    """Whatever a screen reader would have no name for."""
    nodes = await page.evaluate(
        """() => [...document.querySelectorAll('button, input, svg[role=img], [tabindex="0"]')]
            .filter((node) => !(node.textContent.trim() || node.getAttribute('aria-label')
                || node.getAttribute('aria-labelledby') || node.closest('label')))
            .map((node) => node.outerHTML.slice(0, 80))"""
    )
    return list(nodes)


async def screenshots(page: Page) -> None:
    """Pictures for the documentation, when they are asked for."""
    if IMAGES is None:
        return
    await asyncio.sleep(45)
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        await page.screenshot(path=Path(IMAGES) / f"live-page-{scheme}.png")
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.screenshot(path=Path(IMAGES) / "live-page-phone.png")
    await page.set_viewport_size(DESKTOP)
