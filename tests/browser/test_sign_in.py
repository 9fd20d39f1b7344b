"""Signing in and out, with and without JavaScript, and what is refused."""

import hashlib
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser import barns, person
from tests.browser.served import Served
from tests.support import databases


def test_sign_in_shows_today(console: Served, page: Page) -> None:
    page.goto(console.url)
    expect(page).to_have_url(f"{console.url}/sign-in")
    person.sign_in(page, console)
    expect(page).to_have_url(f"{console.url}/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Today")
    expect(page.locator(".company")).to_have_text("Green Valley Poultry")


def test_sign_in_leads_to_the_page_that_was_asked_for(console: Served, page: Page) -> None:
    """Also after a wrong password."""
    wanted = f"{console.url}/weighings?day=2025-01-15"
    page.goto(wanted)
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    for password in ("wrong password", barns.PASSWORD):
        person.fill_sign_in(page, password=password)
    expect(page).to_have_url(wanted)
    # The page itself goes to the form when it finds that it is signed out.
    page.goto("about:blank")
    page.context.clear_cookies()
    page.goto(f"{console.url}/sign-in?next=//evil.example/")
    assert page.locator("input[name=next]").input_value() == "/"


def test_wrong_password_and_unknown_person_read_the_same(console: Served, page: Page) -> None:
    person.sign_in(page, console, password="wrong password")
    expect(page.get_by_role("alert")).to_have_text(
        "E-mail and password do not match. Check both and try again."
    )
    expect(page.get_by_label("E-mail")).to_have_value(barns.EMAIL)
    known = page.get_by_role("alert").inner_text()
    person.sign_in(page, console, email="nobody@example.com")
    assert page.get_by_role("alert").inner_text() == known


def test_guessing_is_slowed_down_even_for_the_right_password(console: Served, page: Page) -> None:
    for _ in range(5):
        person.sign_in(page, console, password="wrong password")
        expect(page.get_by_role("alert")).to_contain_text("do not match")
    with page.expect_response(lambda found: found.request.method == "POST") as answer:
        person.sign_in(page, console)
    assert answer.value.status == 429
    expect(page.get_by_role("alert")).to_have_text("Too many attempts. Try again in 15 min.")


def test_signing_out_ends_it_everywhere(
    console: Served, context: BrowserContext, page: Page
) -> None:
    person.open_live(page, console)
    second = context.new_page()
    second.goto(console.url)
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(f"{console.url}/sign-in")
    # By itself: at its next beat the live connection ends.
    expect(second).to_have_url(f"{console.url}/sign-in")
    answer = page.request.get(f"{console.url}/api/v1/telemetry/latest")
    assert answer.status == 401
    assert answer.json()["error"]["code"] == "UNAUTHENTICATED"


def test_the_cookie_is_kept_from_scripts_and_only_its_hash_is_stored(
    console: Served, context: BrowserContext, page: Page, cloud_db: Any
) -> None:
    person.open_live(page, console)
    (cookie,) = (found for found in context.cookies() if found["name"] == "farmiq_sign_in")
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    assert page.evaluate("document.cookie") == ""
    with databases.connected(cloud_db.admin_url) as connection:
        stored = connection.execute("select token_hash from sign_ins").fetchall()
    assert stored == [(hashlib.sha256(cookie["value"].encode()).digest(),)]


def test_forms_of_others_are_refused(console: Served, page: Page) -> None:
    forged = page.request.post(
        f"{console.url}/sign-in", form={"email": barns.EMAIL, "password": barns.PASSWORD}
    )
    assert forged.status == 403
    person.open_live(page, console)
    forged = page.request.post(
        f"{console.url}/sign-out", form={"csrf": "guessed"}, headers={"Accept": "*/*"}
    )
    assert forged.status == 403
    assert forged.json()["error"]["code"] == "FORBIDDEN"
    assert page.request.get(f"{console.url}/api/v1/telemetry/latest").status == 200


def test_everything_works_without_javascript(
    console: Served, browser: Browser, cloud_db: Any
) -> None:
    barns.report(cloud_db.url, barns.TEMPERATURE)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    person.sign_in(page, console, path="/telemetry")
    expect(page.get_by_text("The only sensor is current")).to_be_visible()
    expect(page.get_by_text("Not live: reload to refresh")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(f"{console.url}/sign-in")
    context.close()
