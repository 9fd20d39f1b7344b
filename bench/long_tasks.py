"""What a page keeps a browser busy with: its longest task, and how far its layout shifts.

A task is what the browser does without taking an input in between; over 200 ms a tap feels stuck.
Each page is open for some seconds while readings arrive, so that live updates are in it.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass

from playwright.async_api import async_playwright

from farmiq.cloud.identity.sign_in import COOKIE
from farmiq.config import state_dir
from farmiq.lab.stack import debian

_WATCHED = """
window.seen = { longest: 0, shift: 0 };
new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries()) seen.longest = Math.max(seen.longest, duration);
}).observe({ type: "longtask", buffered: true });
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) seen.shift += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""


@dataclass(frozen=True, slots=True)
class Busy:
    """The longest task in ms (0: none took 50 ms), and the sum of the shifts."""

    longest_ms: float
    shift: float


async def busy(
    url: str, token: str, pages: Mapping[str, str], *, seconds: float
) -> dict[str, Busy]:
    """By page, on a screen like a phone's."""
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    path = str(debian.chromium_path(state_dir() / "engines"))
    found = {}
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=arguments)
        context = await browser.new_context(viewport={"width": 360, "height": 800})
        await context.add_cookies([{"name": COOKIE, "value": token, "url": url}])
        await context.add_init_script(_WATCHED)
        for name, address in pages.items():
            page = await context.new_page()
            await page.goto(f"{url}{address}")
            await page.wait_for_selector("[data-live=live]")
            await asyncio.sleep(seconds)
            longest, shift = await page.evaluate("[seen.longest, seen.shift]")
            found[name] = Busy(longest, shift)
            await page.close()
        await browser.close()
    return found
