"""A person and their account, an owner and their reports: what they do, and how it looks."""

import base64
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect

from farmiq.cloud.identity import second_factor
from farmiq.plumbing import sealing
from tests.browser import barns, flocks, look, person
from tests.browser.look import Keep
from tests.browser.served import Served


@pytest.fixture
def console(cloud_db: Any, tmp_path: Path) -> Iterator[Served]:
    """With the key that seals second factors."""
    barns.add_company(cloud_db.admin_url)
    key_file = tmp_path / "secrets.key"
    sealing.write_new_key(key_file)
    served = Served(cloud_db.url, FARMIQ_SECRETS_KEY_FILE=str(key_file))
    served.start()
    yield served
    served.stop()


def test_person_turns_on_the_second_factor_and_signs_in_with_it(
    console: Served,
    page: Page,
    *,
    browser: Browser,
    keep: Keep,
    pictures: bool,
    complaints: list[str],
    requested: list[str],
) -> None:
    person.sign_in(page, console, path="/settings/account")
    expect(page.locator(".sentence")).to_have_text("Your account")
    page.get_by_label("Current password").nth(1).fill(barns.PASSWORD)
    page.get_by_role("button", name="Set up a second factor").click()
    expect(page.locator(".qr")).to_be_visible()
    page.get_by_text("Type it in instead").click()
    keep("second-factor")
    secret = _base32(page.locator("#secret").inner_text())
    step = _step()
    page.get_by_label("Enter the code").fill(second_factor.code(secret, step))
    page.get_by_role("button", name="Turn it on").click()
    expect(page.locator("#codes li")).to_have_count(10)
    recovery = page.locator("#codes code").first.inner_text()
    keep("recovery-codes")
    page.get_by_role("link", name="I have them").click()
    expect(page.locator("#factor-title + .chip")).to_have_text("On")
    keep("account-second-factor")

    other = browser.new_context()
    try:
        phone = other.new_page()
        person.sign_in(phone, console, path="/settings/account")
        expect(phone.get_by_role("heading", name="Enter the code")).to_be_visible()
        look.keep(phone, "sign-in-code", pictures=pictures)
        phone.get_by_label("Code of your app").fill("123456")
        phone.get_by_role("button", name="Sign in").click()
        expect(phone.get_by_role("alert")).to_contain_text("This code is not right")
        phone.get_by_label("Code of your app").fill(
            second_factor.code(secret, max(step + 1, _step()))
        )
        phone.get_by_role("button", name="Sign in").click()
        expect(phone).to_have_url(f"{console.url}/settings/account")
        expect(phone.locator("#sessions li")).to_have_count(2)
        # From the telephone the other session is ended; the page there leads to the sign-in.
        phone.locator("#sessions summary").click()
        phone.get_by_role("button", name="End it now").click()
        expect(phone.locator("#sessions li")).to_have_count(1)
        page.reload()
        expect(page).to_have_url(re.compile("/sign-in"))
        person.fill_sign_in(page)
        page.get_by_label("Code of your app").fill(recovery)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("9 recovery codes are left.")).to_be_visible()
    finally:
        other.close()
    assert all("401" in said for said in complaints), complaints
    person.expect_own_requests_only(requested, console)


def test_owner_downloads_the_report_and_subscribes(
    console: Served,
    page: Page,
    *,
    cloud_db: Any,
    keep: Keep,
    pictures: bool,
    tmp_path: Path,
    complaints: list[str],
) -> None:
    person.sign_in(page, console, path="/reports")
    expect(page.get_by_text("No farm yet")).to_be_visible()
    life = flocks.a_farm(cloud_db.url, cloud_db.admin_url)
    batch_id = life.flocks[0].batch_id
    page.goto(f"{console.url}/reports")
    expect(page.locator(".sentence")).to_have_text("Weekly and monthly reports")
    page.locator("#of").select_option(f"batch:{batch_id}")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download the PDF").click()
    waiting.value.save_as(tmp_path / "report.pdf")
    pdf = (tmp_path / "report.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type /Page\b(?!s)", pdf)) == 2
    assert waiting.value.suggested_filename.endswith(f"{batch_id}.pdf")
    if pictures:
        (look.SCREENSHOTS / "report.pdf").write_bytes(pdf)

    page.locator("#of-mail").select_option(f"batch:{batch_id}")
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_role("status").get_by_text("Saved.")).to_be_visible()
    expect(page.locator("#subscriptions li")).to_have_count(1)
    _sent(cloud_db.url, life.farm_id)
    page.reload()
    expect(page.locator("#sent li")).to_have_count(2)
    expect(page).to_have_title("(1) Reports")
    keep("reports")
    # Somebody else of the company may look, and may not end what is not theirs.
    page.context.clear_cookies()
    person.sign_in(page, console, email=flocks.OPERATOR, path="/reports")
    expect(page.locator("#subscriptions li")).to_have_count(1)
    expect(page.get_by_role("button", name=re.compile("Remove the reports"))).to_have_count(0)
    answer = page.request.get(f"{console.url}/reports/report.pdf?of=batch:none&period=2026-W46")
    assert answer.status == 404
    assert page.request.get(f"{console.url}/reports/report.pdf?of=farm:x&period=x").status == 400
    assert not complaints


def _sent(url: str, farm_id: str) -> None:
    """One report that was sent, and one that was not."""
    with psycopg.connect(url) as connection:
        for number, state in ((1, "sent"), (2, "failed")):
            connection.execute(
                "insert into alert_messages (tenant_id, message_id, step, channel_id, address, "
                "severity, subject, body, content, state, created_at, send_after, "
                "next_attempt_at, error) values (%s, fn_uuid_v7(), 'report', '', "
                "'owner@example.com', 'info', 's', 'b', '{}', %s, fn_now(), fn_now(), fn_now(), "
                "%s)",
                (flocks.TENANT, state, "the mail server refused a receiver: 550"),
            )
            connection.execute(
                "insert into reports (tenant_id, report_id, farm_id, period, first_day, address, "
                "language, file_name, file, message_id, created_at, created_by) "
                "select tenant_id, fn_uuid_v7(), %s, 'week', %s, address, 'en', 'f.pdf', 'x', "
                "message_id, fn_now(), 'a' from alert_messages where state = %s",
                (farm_id, f"2026-11-{2 + 7 * (number - 1):02}", state),
            )


def _step() -> int:
    return int(time.time()) // 30


def _base32(text: str) -> bytes:
    letters = text.replace(" ", "")
    return base64.b32decode(letters + "=" * (-len(letters) % 8))
