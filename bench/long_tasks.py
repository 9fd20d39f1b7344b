"""A page in a browser: its first view, its longest task, and how far its layout shifts.

The first view is from the request to the first content on the screen, with nothing cached.
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


_PAINTED = """
new Promise((resolve) => new PerformanceObserver((list) => {
  for (const entry of list.getEntriesByName("first-contentful-paint")) resolve(entry.startTime);
}).observe({ type: "paint", buffered: true }))
"""


@dataclass(frozen=True, slots=True)
class Busy:
    """First view and longest task in ms (0: none took 50 ms), the sum of the shifts, bytes sent."""

    first_view_ms: float
    longest_ms: float
    shift: float
    page_bytes: int


async def busy(
    url: str, token: str, pages: Mapping[str, str], *, seconds: float
) -> dict[str, Busy]:
    """By page, on a screen like a phone's."""
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    path = str(debian.chromium_path(state_dir() / "engines"))
    found = {}
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=arguments)
        for name, address in pages.items():
            # A context of its own: nothing is cached.
            context = await browser.new_context(viewport={"width": 360, "height": 800})
            await context.add_cookies([{"name": COOKIE, "value": token, "url": url}])
            await context.add_init_script(_WATCHED)
            page = await context.new_page()
            await page.goto(f"{url}{address}")
            await page.wait_for_selector("[data-live=live]")
            await asyncio.sleep(seconds)
            longest, shift = await page.evaluate("[seen.longest, seen.shift]")
            page_bytes = await page.evaluate(
                "performance.getEntriesByType('navigation')[0].encodedBodySize"
            )
            found[name] = Busy(await page.evaluate(_PAINTED), longest, shift, page_bytes)
            await context.close()
        await browser.close()
    return found
