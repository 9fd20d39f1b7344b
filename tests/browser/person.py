"""What a person does at the console."""

import re

from axe_playwright_python.sync_playwright import DEFAULT_OPTIONS, Axe
from playwright.sync_api import Locator, Page, expect

from tests.browser import barns
from tests.browser.served import Served

# What reaches beyond the screen, outside of parts that scroll by themselves.
TOO_WIDE = """() => [...document.querySelectorAll("main *, header *")]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll"))
  .map(e => `${e.tagName}.${e.className} ${Math.round(e.getBoundingClientRect().right)}`)
  .slice(0, 12)"""


def sign_in(
    page: Page,
    console: Served,
    *,
    email: str = barns.EMAIL,
    password: str = barns.PASSWORD,
    path: str = "/",
) -> None:
    """At the form, which then leads to `path`."""
    page.goto(f"{console.url}/sign-in{'' if path == '/' else f'?next={path}'}")
    fill_sign_in(page, email=email, password=password)


def fill_sign_in(page: Page, *, email: str = barns.EMAIL, password: str = barns.PASSWORD) -> None:
    """At the form, wherever it leads."""
    page.get_by_label("E-mail").fill(email)
    page.get_by_label("Password").fill(password)
    # Whoever looks next finds the answer here, and the cookie that came with it.
    with page.expect_response(lambda found: found.request.method == "POST"):
        page.get_by_role("button", name="Sign in").click()


def open_live(page: Page, console: Served, path: str = "/telemetry") -> None:
    """Signed in, at that page, and it says that it is live."""
    sign_in(page, console, path=path)
    expect_pill(page, "Live")


def visit(page: Page, console: Served, path: str) -> None:
    page.goto(f"{console.url}{path}")
    expect_pill(page, "Live")


def expect_pill(page: Page, words: str, *, within_s: float = 60) -> None:
    expect(page.locator("#pill")).to_have_text(
        re.compile(rf"^\s*{re.escape(words)}\s*$"), timeout=within_s * 1000
    )


def row(page: Page, sensor: barns.Sensor) -> Locator:
    return page.locator(
        f'.sensor[data-device="{sensor.device_id}"][data-metric="{sensor.metric_type}"]'
    )


def expect_accessible(page: Page, *, rules: tuple[str, ...] = ()) -> None:
    """By all rules, or by some."""
    wanted = {"runOnly": list(rules)} if rules else {}
    found = Axe().run(page, options={**DEFAULT_OPTIONS, **wanted})
    assert found.violations_count == 0, found.generate_report()


def expect_no_sideways_scrolling(page: Page) -> None:
    wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wider <= 0, f"the page is {wider} px wider than the screen: {page.evaluate(TOO_WIDE)}"


def expect_own_requests_only(requested: list[str], console: Served) -> None:
    foreign = [url for url in requested if not url.startswith(f"{console.url}/")]
    assert not foreign
