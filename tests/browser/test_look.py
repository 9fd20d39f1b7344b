"""Each page on a phone and on a wide screen, light and dark: accessible, and kept as a picture."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import barns, person
from tests.browser.conftest import SCREENSHOTS
from tests.browser.served import Served

Theme = Literal["light", "dark"]
Keep = Callable[[str], None]


@pytest.fixture(params=[360, 1180])
def width(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> Theme:
    found: Theme = request.param
    return found


@pytest.fixture
def page(browser: Browser, width: int, theme: Theme) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=theme, device_scale_factor=2
    )
    yield context.new_page()
    context.close()


@pytest.fixture
def keep(page: Page, width: int, theme: Theme) -> Keep:
    """Check what every page must be, and keep its picture."""

    def keep_as(name: str) -> None:
        person.expect_accessible(page)
        person.expect_no_sideways_scrolling(page)
        page.mouse.move(0, 0)
        page.screenshot(path=_picture(name, width, theme), full_page=True)

    return keep_as


@pytest.fixture(autouse=True)
def _own_requests_only(console: Served, requested: list[str]) -> Iterator[None]:
    yield
    person.expect_own_requests_only(requested, console)


def _picture(name: str, width: int, theme: Theme) -> Path:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    return SCREENSHOTS / f"{name}-{width}-{theme}.png"


def test_latest_readings(
    console: Served, page: Page, cloud_db: Any, keep: Keep, complaints: list[str]
) -> None:
    barns.a_whole_farm(cloud_db.url)
    person.open_live(page, console)
    expect(page.locator(".sentence")).to_have_text("2 of 20 sensors are late")
    keep("latest-readings")
    assert not complaints
    console.stop()
    person.expect_pill(page, "Reconnecting (data may be old)")
    keep("latest-readings-reconnecting")


def test_latest_readings_of_nothing(console: Served, page: Page, keep: Keep) -> None:
    person.open_live(page, console)
    expect(page.get_by_text("This page waits for the first reading")).to_be_visible()
    keep("latest-readings-empty")


def test_sign_in(console: Served, page: Page, keep: Keep) -> None:
    page.goto(f"{console.url}/sign-in")
    keep("sign-in")
    person.sign_in(page, console, password="wrong password")
    expect(page.get_by_role("alert")).to_be_visible()
    keep("sign-in-refused")


def test_not_found(console: Served, page: Page, keep: Keep) -> None:
    answer = page.goto(f"{console.url}/nowhere")
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    keep("not-found")
