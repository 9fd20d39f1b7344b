"""Without a link: what was kept, with its age; what was written down; and on a shared tablet."""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from farmiq.lab.simulate.life.flocks import Life
from tests.browser import barns, flocks, patience, person
from tests.browser.look import Keep
from tests.browser.served import Served
from tests.support import databases

DEAD = "How many animals are dead?"
POSTED = (
    "select event -> 'payload' ->> 'value', event -> 'payload' ->> 'batch_id', "
    "(event ->> 'occurred_at')::timestamptz from posted_events where posted_by = %s"
)
# Of whom the browser keeps pages, and which forms.
KEPT = """async () => {
  const forms = await caches.open("farmiq-forms-1");
  const owner = await (await forms.match("/owner"))?.json();
  const addresses = (await forms.keys()).map((kept) => kept.url.slice(location.origin.length));
  return { owner: owner?.owner ?? "", addresses };
}"""


@pytest.fixture
def life(console: Served, cloud_db: Any) -> Life:  # noqa: ARG001 - its company
    return flocks.a_farm(cloud_db.url, cloud_db.admin_url)


def posted(cloud_db: Any, email: str = flocks.OPERATOR) -> list[tuple[Any, ...]]:
    with databases.connected(cloud_db.admin_url) as connection:
        return connection.execute(POSTED.encode(), (email,)).fetchall()


def expect_prepared(page: Page, email: str) -> list[str]:
    """The browser has what this person needs without a link; the forms that it keeps."""
    patience.until(lambda: email in page.evaluate(KEPT)["owner"], f"pages of {email} are kept")
    return list(page.evaluate(KEPT)["addresses"])


def test_operator_enters_deaths_on_a_form_that_was_never_open_while_the_server_is_away(
    console: Served, page: Page, life: Life, cloud_db: Any, keep: Keep
) -> None:
    batch_id = life.flocks[1].batch_id
    # One page, the first after the sign-in, and then into the barn.
    person.sign_in(page, console, email=flocks.OPERATOR)
    person.expect_pill(page, "Live")
    expect_prepared(page, flocks.OPERATOR)
    sentence = page.locator(".sentence").inner_text()
    console.stop()
    page.reload()
    expect(page.locator(".sentence")).to_have_text(sentence)
    banner = page.locator("#kept")
    expect(banner).to_contain_text("No link to the server: this is the last known state")
    expect(banner).to_contain_text(flocks.OPERATOR)
    expect(banner.locator("time")).to_have_text(
        re.compile(r"\d:\d\d.*\((this|\d+) minutes?( ago)?\)")
    )
    keep("offline-today")
    page.goto(f"{console.url}/records/new?batch={batch_id}")
    expect(banner.locator("time")).to_have_text(re.compile(r"\((this|\d+) minutes?( ago)?\)"))
    page.get_by_role("link", name="Water").click()
    expect(page.get_by_label("How much water, in litres?")).to_be_visible()
    page.goto(f"{console.url}/records/new?kind=mortality&batch={batch_id}")
    expect(page.get_by_label("Barn")).to_have_value(re.compile(f"/{re.escape(batch_id)}$"))
    page.get_by_label(DEAD).fill("2")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#waiting-forms")).to_contain_text("Kept on this device")
    keep("offline-record")
    page.goto(f"{console.url}/programs")
    expect(page.get_by_role("heading", name="No link to the server")).to_be_visible()
    keep("offline-page")
    page.get_by_role("link", name="Go to the first page").click()
    expect(page.locator(".sentence")).to_have_text(sentence)
    assert posted(cloud_db) == []
    console.start()
    # The page becomes a fresh one by itself, and what waited is sent.
    expect(banner).to_be_hidden()
    person.expect_pill(page, "Live")
    patience.until(lambda: len(posted(cloud_db)) == 1, "what was written down has arrived")
    assert [row[:2] for row in posted(cloud_db)] == [("2", batch_id)]


def test_a_page_that_was_seen_is_shown_as_it_was_and_how_old_it_is(
    console: Served, browser: Browser, cloud_db: Any
) -> None:
    barns.report(cloud_db.url, barns.TEMPERATURE)
    # A clock that is set stays with its context.
    with browser.new_context() as context:
        page = context.new_page()
        person.open_live(page, console)
        expect_prepared(page, barns.EMAIL)
        page.clock.install(time=datetime.now(UTC) + timedelta(hours=3, minutes=5))
        console.stop()
        page.reload()
        expect(person.row(page, barns.TEMPERATURE)).to_be_visible()
        expect(page.locator("#kept time")).to_have_text(re.compile(r"\(3 hours ago\)$"))


def test_an_entry_that_is_refused_later_is_read_and_corrected(
    console: Served, page: Page, life: Life, cloud_db: Any, keep: Keep
) -> None:
    flock = life.flocks[0]
    person.sign_in(page, console, email=flocks.OPERATOR)
    page.goto(f"{console.url}/records/new?kind=mortality&batch={flock.batch_id}")
    began = datetime.now(UTC)
    page.context.set_offline(True)
    waiting = page.locator("#waiting-forms")
    for count in ("99999999", "2"):
        page.get_by_label("Barn").select_option(f"{life.farm_id}/{flock.barn_id}/{flock.batch_id}")
        page.get_by_label(DEAD).fill(count)
        page.get_by_role("button", name="Save").click()
        expect(waiting).to_contain_text("Kept on this device")
    written_down_by = datetime.now(UTC)
    # Meanwhile the batch leaves its barn.
    with databases.connected(cloud_db.admin_url) as connection:
        connection.execute(
            "update batches set closed_on = %s where batch_id = %s",
            (life.today - timedelta(days=1), flock.batch_id),
        )
    page.context.set_offline(False)
    # What was not accepted, why, and when it was written down.
    expect(waiting).to_contain_text("not accepted")
    expect(waiting).to_contain_text("Barn: This barn has changed since: choose it again.")
    expect(waiting).to_contain_text(f"{DEAD} 99999999")
    expect(waiting).to_contain_text("Written down on")
    keep("refused-entry")
    waiting.get_by_role("button", name="Remove it").click()
    expect(waiting).to_contain_text(f"{DEAD} 2")
    person.visit(page, console, "/")
    waiting.get_by_role("button", name="Correct it").click()
    expect(page.get_by_label(DEAD)).to_have_value("2")
    # The same barn, without the batch that left it.
    expect(page.get_by_label("Barn")).to_have_value(f"{life.farm_id}/{flock.barn_id}/")
    keep("refused-entry-form")
    page.get_by_label(DEAD).fill("3")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Entries")).to_be_visible()
    expect(waiting).to_be_hidden()
    ((value, batch_id, occurred_at),) = posted(cloud_db)
    assert (value, batch_id) == ("3", None)
    # It happened when it was written down, not when it was corrected.
    assert began - timedelta(seconds=1) <= occurred_at <= written_down_by


def test_a_tablet_that_two_people_share_keeps_the_pages_of_the_last_one(
    console: Served, page: Page, life: Life, cloud_db: Any, keep: Keep
) -> None:
    person.sign_in(page, console, email=flocks.OPERATOR)
    page.goto(f"{console.url}/records")
    assert "/records/new?kind=water" in expect_prepared(page, flocks.OPERATOR)
    page.goto(f"{console.url}/records/new?batch={life.flocks[0].batch_id}")
    page.context.set_offline(True)
    page.get_by_label(DEAD).fill("2")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#waiting-forms")).to_contain_text("Kept on this device")
    # The sign-in ends by itself, and somebody signs in who may only read.
    page.context.clear_cookies()
    page.context.set_offline(False)
    person.sign_in(page, console)
    assert expect_prepared(page, barns.EMAIL) == ["/owner"]
    waiting = page.locator("#waiting-forms")
    expect(waiting).to_contain_text(f"1 ({flocks.OPERATOR})")
    keep("others-entry")
    console.stop()
    page.goto(f"{console.url}/records")
    expect(page.get_by_role("heading", name="No link to the server")).to_be_visible()
    page.goto(f"{console.url}/records/new?batch={life.flocks[0].batch_id}")
    expect(page.get_by_role("heading", name="No link to the server")).to_be_visible()
    page.goto(console.url)
    expect(page.locator("#kept")).to_contain_text(barns.EMAIL)
    console.start()
    assert posted(cloud_db) == []
    # Whoever wrote it down signs in again: it is sent, as theirs.
    page.context.clear_cookies()
    person.sign_in(page, console, email=flocks.OPERATOR)
    patience.until(lambda: len(posted(cloud_db)) == 1, "the entry has arrived")


def test_a_browser_that_saves_data_refreshes_less_often(
    console: Served, page: Page, cloud_db: Any
) -> None:
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setDataSaverOverride", {"dataSaverEnabled": True})
    barns.report(cloud_db.url, barns.TEMPERATURE)
    person.open_live(page, console)
    fetched: list[float] = []
    page.on("requestfinished", lambda request: _note(fetched, request))
    for value in (17.5, 18.5, 19.5):
        barns.report_now(cloud_db.url, barns.TEMPERATURE, value)
        row = person.row(page, barns.TEMPERATURE)
        expect(row.locator(".value")).to_have_text(f"{value} °C")
    gaps = [later - before for before, later in pairwise(fetched)]
    assert gaps
    assert min(gaps) >= 9_500


def _note(fetched: list[float], request: Any) -> None:
    if "/readings" in request.url:
        fetched.append(request.timing["startTime"])
