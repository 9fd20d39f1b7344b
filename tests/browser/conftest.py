"""A console, a browser and a page; tests say only what a person does and sees."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    BrowserType,
    Page,
    expect,
    sync_playwright,
)

from tests.browser import barns, cameras, look
from tests.browser.cameras import DAY, Shots, on
from tests.browser.look import SCREENSHOTS, Keep
from tests.browser.served import Served
from tests.flow.conftest import (  # noqa: F401 - the whole way, for a test that looks at its end
    idle_farm,
    two_sites,
)

ARGUMENTS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# A page may wait for its next second, or for a server that starts on a busy machine.
expect.set_options(timeout=60_000)


# Not for the whole session: its event loop must be gone when asynchronous tests run.
@pytest.fixture(scope="package")
def browser(chromium: Path) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = launched(playwright.chromium, chromium)
        yield opened
        opened.close()


def launched(kind: BrowserType, program: Path) -> Browser:
    arguments = [*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    return kind.launch(executable_path=str(program), headless=True, args=arguments)


@pytest.fixture
def console(cloud_db: Any, engines: dict[str, str]) -> Iterator[Served]:
    """A console on a fresh database that has one company with one person, and its pictures."""
    barns.add_company(cloud_db.admin_url)
    served = Served(cloud_db.url, FARMIQ_CLOUD_S3_URL=engines["FARMIQ_CLOUD_S3_URL"])
    served.start()
    yield served
    served.stop()


@pytest.fixture
def shots(
    console: Served,  # noqa: ARG001 - the company is made with it
    cloud_db: Any,
    engines: dict[str, str],
) -> Iterator[Shots]:
    """The company of the console, on the afternoon of Jan 15, 2025 in Bangkok."""
    with cameras.farm(cloud_db) as farm:
        farm.at(on(DAY, 14))
        yield Shots(farm, engines["FARMIQ_CLOUD_S3_URL"])


@pytest.fixture
def cloud_s3(engines: dict[str, str]) -> str:
    return engines["FARMIQ_CLOUD_S3_URL"]


@pytest.fixture(scope="session")
def pictures(pytestconfig: pytest.Config) -> bool:
    """Whether somebody wants to look at the pages: `make pictures`."""
    wanted = bool(pytestconfig.getoption("pictures"))
    if wanted:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    return wanted


@pytest.fixture(scope="package")
def profile(browser: Browser, *, pictures: bool) -> Iterator[BrowserContext]:
    """One for all tests: to make a profile and its processes is half of what a short test costs."""
    # Pictures are as sharp as a phone's.
    opened = browser.new_context(
        viewport={"width": 1180, "height": 900}, device_scale_factor=2 if pictures else 1
    )
    # Without a page its processes would end.
    opened.new_page()
    yield opened
    opened.close()


@pytest.fixture
def context(profile: BrowserContext) -> Iterator[BrowserContext]:
    """As new: other tests have consoles of other origins, and cookies do not stay.

    A test that needs another person, another screen or no script makes a context of its own.
    """
    yield profile
    for opened in profile.pages[1:]:
        opened.close()
    profile.clear_cookies()
    profile.clear_permissions()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


@pytest.fixture
def keep(page: Page, *, pictures: bool) -> Keep:
    """Check what every page must be on every screen, and keep its pictures if they are wanted."""
    return partial(look.keep, page, pictures=pictures)


@pytest.fixture
def complaints(page: Page) -> list[str]:
    """What the browser writes to its console as an error, and errors nobody caught."""
    found: list[str] = []
    page.on("console", lambda said: found.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


@pytest.fixture
def requested(page: Page) -> list[str]:
    found: list[str] = []
    page.on("request", lambda request: found.append(request.url))
    return found
