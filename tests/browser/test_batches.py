"""Batches, feed and what people enter: what an owner reads, and what an operator writes down."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import APIResponse, Page, expect

from farmiq.lab.simulate.life.flocks import Life
from tests.browser import barns, flocks, person
from tests.browser.look import Keep
from tests.browser.served import Served
from tests.support import databases


@pytest.fixture
def life(console: Served, cloud_db: Any) -> Life:  # noqa: ARG001 - its company
    return flocks.a_farm(cloud_db.url, cloud_db.admin_url)


@pytest.fixture(autouse=True)
def _own_requests_only(console: Served, requested: list[str]) -> Iterator[None]:
    yield
    person.expect_own_requests_only(requested, console)


def rows(cloud_db: Any, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with databases.connected(cloud_db.admin_url) as connection:
        return connection.execute(query.encode(), values or None).fetchall()


def typed(page: Page, **fields: str) -> dict[str, str]:
    """The fields of a form with the token of the page and a key of its own."""
    csrf = page.locator("input[name=csrf]").first.get_attribute("value")
    return {"csrf": str(csrf), "idempotency_key": str(uuid4()), **fields}


def send(page: Page, console: Served, path: str, **fields: str) -> APIResponse:
    """As offline.js sends a form."""
    return page.request.post(
        f"{console.url}{path}",
        form=dict(typed(page, **fields)),
        headers={"Accept": "application/json"},
        max_redirects=0,
    )


@pytest.mark.req("DB2-16")
def test_owner_reads_growth_and_forecast(
    console: Served, page: Page, cloud_db: Any, complaints: list[str]
) -> None:
    person.sign_in(page, console)
    person.visit(page, console, "/batches")
    expect(page.get_by_text("There is no barn yet")).to_be_visible()
    life = flocks.a_farm(cloud_db.url, cloud_db.admin_url)
    good, behind = life.flocks
    person.visit(page, console, "/batches")
    expect(page.locator(".sentence")).to_have_text(re.compile(r"1 of 2\s+batches needs attention"))
    # Problems first; a viewer has no button that enters anything.
    expect(page.locator(".batch h3").first).to_have_text("Barn 2")
    expect(page.locator(".batch").first).to_contain_text("Behind its standard")
    expect(page.locator(".batch").first).to_contain_text("Not to be sold before")
    expect(page.get_by_role("link", name="Write down")).to_have_count(0)
    page.get_by_role("link", name="Barn 2").click()
    person.expect_pill(page, "Live")
    sentence = page.locator(".sentence")
    expect(sentence).to_have_text(
        re.compile(r"kg on day 3[45], \d+\s% below the standard \(example\)\. 2\.6\skg on")
    )
    expect(page.locator(".banner")).to_contain_text("Not to be sold before")
    expect(page.locator("#growth .u-over")).to_be_visible()
    expect(page.locator("#calendar")).to_contain_text("Doxycycline")
    expect(page.locator("#calendar")).to_contain_text("withdrawal of 7 days")
    # The forecast of the page is that of the API.
    weight = page.locator("[data-name='batch.weight_mean']").first
    newest = rows(
        cloud_db,
        "select value from kpi_daily where batch_id = %s and kpi_type = 'weight_mean' "
        "order by kpi_date desc limit 1",
        behind.batch_id,
    )
    assert float(str(weight.get_attribute("data-value"))) == newest[0][0]
    # The newest day depends on the hour: around midnight at the farm it is the day before.
    heading = page.locator("#figures h2")
    newest_day = int(heading.inner_text().rpartition("day ")[2])
    page.get_by_role("link", name="Day before").click()
    expect(page).to_have_url(re.compile(r"\?day="))
    expect(heading).to_contain_text(f"day {newest_day - 1}")
    person.visit(page, console, f"/batches/{good.batch_id}")
    expect(sentence).not_to_contain_text("Behind")
    expect(page.locator(".banner")).to_have_count(0)
    person.visit(page, console, "/feed")
    expect(page.locator("#silos-name")).to_be_visible()
    expect(page.locator("#intakes .u-over")).to_be_visible()
    assert not complaints


def test_operator_enters_two_deaths_while_the_link_is_broken(
    console: Served, page: Page, life: Life, cloud_db: Any
) -> None:
    batch_id = life.flocks[0].batch_id
    person.sign_in(page, console, email=flocks.OPERATOR)
    person.visit(page, console, f"/batches/{batch_id}")
    page.get_by_role("link", name="Dead animals").click()
    expect(page.get_by_label("Barn")).to_have_value(re.compile(f"/{re.escape(batch_id)}$"))
    began = datetime.now(UTC)
    page.context.set_offline(True)
    page.get_by_label("How many animals are dead?").fill("2")
    page.get_by_role("button", name="Save").click()
    waiting = page.locator("#waiting-forms")
    expect(waiting).to_contain_text("Kept on this device")
    expect(page.get_by_label("How many animals are dead?")).to_have_value("")
    written_down_by = datetime.now(UTC)
    entered = "select count(*) from posted_events where posted_by = %s"
    assert rows(cloud_db, entered, flocks.OPERATOR) == [(0,)]
    page.context.set_offline(False)
    expect(waiting).to_contain_text("Sent.")
    posted = rows(
        cloud_db,
        "select event -> 'payload' ->> 'value', event -> 'payload' ->> 'batch_id', "
        "(event ->> 'occurred_at')::timestamptz from posted_events where posted_by = %s",
        flocks.OPERATOR,
    )
    assert [row[:2] for row in posted] == [("2", batch_id)]
    # It happened when it was written down, not when the link came back.
    assert began - timedelta(seconds=1) <= posted[0][2] <= written_down_by
    page.reload()
    expect(waiting).to_be_hidden()
    assert rows(cloud_db, entered, flocks.OPERATOR) == [(1,)]


def test_two_entries_on_the_same_kept_page_are_two(
    console: Served, page: Page, life: Life, cloud_db: Any
) -> None:
    """As the service worker shows it without a link: the page as it was fetched last."""
    form = f"{console.url}/records/new?batch={life.flocks[0].batch_id}"
    person.sign_in(page, console, email=flocks.OPERATOR)
    kept = page.request.get(form).body()
    page.route(form, lambda route: route.fulfill(body=kept, content_type="text/html"))
    page.route(f"{console.url}/records/new", lambda route: route.abort())
    waiting = page.locator("#waiting-forms")
    for count in ("3", "4"):
        page.goto(form)
        page.get_by_label("How many animals are dead?").fill(count)
        page.get_by_role("button", name="Save").click()
        expect(waiting).to_contain_text("Kept on this device")
    page.unroute_all()
    page.goto(form)
    expect(waiting).to_contain_text("Sent.")
    entered = "select event -> 'payload' ->> 'value' from posted_events where posted_by = %s"
    assert sorted(rows(cloud_db, entered, flocks.OPERATOR)) == [("3",), ("4",)]


def test_an_entry_survives_a_server_that_cannot_take_it_and_an_expired_sign_in(
    console: Served, page: Page, life: Life, cloud_db: Any
) -> None:
    batch_id = life.flocks[0].batch_id
    person.sign_in(page, console, email=flocks.OPERATOR)
    form = f"{console.url}/records/new?batch={batch_id}"
    entered = "select event -> 'payload' ->> 'value' from posted_events where posted_by = %s"
    waiting = page.locator("#waiting-forms")

    def enter(count: str) -> None:
        page.goto(form)
        page.get_by_label("How many animals are dead?").fill(count)
        page.get_by_role("button", name="Save").click()

    page.route("**/records/new", lambda route: route.fulfill(status=503, body="{}"), times=1)
    enter("3")
    expect(waiting).to_contain_text("Kept on this device")
    page.reload()
    expect(waiting).to_contain_text("Sent.")
    page.context.clear_cookies()
    page.goto(f"{console.url}/sign-in")
    person.sign_in(page, console, email=flocks.OPERATOR)
    page.goto(form)
    page.context.clear_cookies()
    page.get_by_label("How many animals are dead?").fill("4")
    page.get_by_role("button", name="Save").click()
    # The sign-in leads back to the form, and what was written down is sent.
    person.fill_sign_in(page, email=flocks.OPERATOR)
    expect(waiting).to_contain_text("Sent.")
    assert rows(cloud_db, entered, flocks.OPERATOR) == [("3",), ("4",)]


@pytest.mark.usefixtures("life")
def test_an_admin_changes_a_barn_and_adds_a_feed_product_while_the_link_is_broken(
    console: Served, page: Page, cloud_db: Any, keep: Keep, complaints: list[str]
) -> None:
    flocks.let_operate(cloud_db.admin_url, flocks.TENANT, "ada@example.com", role="admin")
    person.sign_in(page, console, email="ada@example.com", path="/settings/farms")
    expect(page.get_by_role("link", name="Add a feed product")).to_be_visible()
    keep("farms")
    page.get_by_role("link", name=re.compile("^Change ")).nth(1).click()
    expect(page.get_by_role("heading", name="Change a barn")).to_be_visible()
    keep("barn-form")
    page.get_by_label("Name", exact=True).fill("House by the road")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("House by the road")).to_be_visible()
    page.get_by_role("link", name="Add a feed product").click()
    page.context.set_offline(True)
    page.get_by_label("Number of the product").fill("starter-1")
    page.get_by_label("Name", exact=True).fill("Starter")
    page.get_by_label("Dry matter in per cent").fill("88.5")
    page.get_by_role("button", name="Save").click()
    waiting = page.locator("#waiting-forms")
    expect(waiting).to_contain_text("Kept on this device")
    page.context.set_offline(False)
    expect(waiting).to_contain_text("Sent.")
    query = "select name, dry_matter_pct from feed_products where feed_product_id = 'starter-1'"
    assert rows(cloud_db, query) == [("Starter", 88.5)]
    page.goto(f"{console.url}/settings/farms/products/starter-1")
    page.get_by_label("Name", exact=True).fill("x" * 300)
    page.locator("#name").evaluate("field => field.removeAttribute('maxlength')")
    page.locator("#name").fill("x" * 300)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#name-error")).to_have_text("Use at most 256 characters.")
    assert [text for text in complaints if "422" not in text and "ERR_INTERNET" not in text] == []


def test_operator_corrects_an_entry_and_sees_what_is_wrong(
    console: Served, page: Page, life: Life, cloud_db: Any, keep: Keep
) -> None:
    batch_id = life.flocks[1].batch_id
    person.sign_in(page, console, email=flocks.OPERATOR)
    page.goto(f"{console.url}/records/new?kind=treatment&batch={batch_id}")
    page.get_by_label("How many animals were treated?").fill("99999999")
    page.get_by_label("Product").fill("Doxycycline")
    page.get_by_label("Withdrawal days").fill("9")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".wrong-text")).to_contain_text("whole animals, at most")
    expect(page.get_by_label("Product")).to_have_value("Doxycycline")
    keep("record-wrong")
    page.get_by_label("How many animals were treated?").fill("4000")
    page.get_by_role("button", name="Save").click()
    expect(page).to_have_url(re.compile(rf"/batches/{batch_id}\?entered="))
    # What follows from the treatment may be on the page already, above it.
    expect(page.locator(".banner").filter(has_text="Entered.")).to_be_visible()
    refreshed = page.locator("#batch").get_attribute("data-fragment")
    assert "Entered." in page.request.get(f"{console.url}{refreshed}").text()
    page.get_by_role("link", name="See or correct entries").click()
    expect(page.get_by_role("heading", name="Entries")).to_be_visible()
    first = page.locator(".entry").filter(has_text="Dead").first
    before = first.locator(".figure").get_attribute("data-value")
    first.get_by_role("link", name="Correct").click()
    expect(page.get_by_label("How many animals are dead?")).to_have_value(
        re.compile(rf"^{float(str(before)):g}$")
    )
    page.get_by_label("How many animals are dead?").fill("1")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".banner").filter(has_text="Entered.")).to_be_visible()
    corrections = rows(
        cloud_db,
        "select replaces is not null from posted_events where posted_by = %s order by posted_at",
        flocks.OPERATOR,
    )
    assert corrections == [(False,), (True,)]


def test_entry_over_json_is_stored_once_and_named_if_wrong(
    console: Served, page: Page, life: Life, cloud_db: Any
) -> None:
    flock = life.flocks[0]
    place = f"{life.farm_id}/{flock.barn_id}/{flock.batch_id}"
    person.sign_in(page, console, email=flocks.OPERATOR)
    page.goto(f"{console.url}/records/new")
    fields = {"kind": "mortality", "place": place, "value": "2", "idempotency_key": "k-1"}
    first, again = (send(page, console, "/records/new", **fields) for _ in range(2))
    assert (first.status, again.status) == (201, 201)
    assert first.json()["record_id"] == again.json()["record_id"]
    assert first.json()["page"].startswith(f"/batches/{flock.batch_id}")
    assert send(page, console, "/records/new", **{**fields, "value": "3"}).status == 409
    wrong = send(page, console, "/records/new", kind="mortality", place=place, value="99999")
    assert wrong.status == 422
    assert [item["field"] for item in wrong.json()["error"]["details"]] == ["value"]
    lot = send(page, console, "/feed/lots/new", place=place, feed_lot_id="L-9", quantity_kg="800")
    assert lot.status == 201, lot.text()
    intake = {"place": place, "quantity_kg": "80", "feed_lot_id": "L-9"}
    assert send(page, console, "/feed/intakes/new", **intake).status == 201
    unknown = send(page, console, "/feed/intakes/new", **{**intake, "feed_lot_id": "nope"})
    assert [item["field"] for item in unknown.json()["error"]["details"]] == ["feed_lot_id"]
    without = send(page, console, "/records/new", **{**fields, "csrf": "other"})
    assert without.status == 403
    stored = rows(
        cloud_db, "select count(*) from posted_events where posted_by = %s", flocks.OPERATOR
    )
    assert stored == [(3,)]


def test_operator_places_changes_and_closes_a_batch(
    console: Served, page: Page, life: Life, cloud_db: Any, keep: Keep
) -> None:
    flock = life.flocks[0]
    person.sign_in(page, console, email=flocks.OPERATOR)
    page.goto(f"{console.url}/batches/{flock.batch_id}/edit")
    page.get_by_label("Last day in the barn").fill((life.today - timedelta(days=1)).isoformat())
    page.get_by_role("button", name="Save").click()
    person.expect_pill(page, "Live")
    page.goto(f"{console.url}/batches/new")
    # The barn is empty now, so it is the first choice.
    expect(page.get_by_label("Barn")).to_have_value(f"{life.farm_id}/{flock.barn_id}/")
    page.get_by_label("Species").fill("broiler")
    page.get_by_label("Animals placed").fill("4800")
    page.get_by_label("Placed on").fill((life.today - timedelta(days=3)).isoformat())
    page.get_by_role("button", name="Place the batch").click()
    expect(page.locator(".wrong-text")).to_contain_text(f"batch {flock.batch_id} is in barn")
    keep("batch-form")
    page.get_by_label("Placed on").fill(life.today.isoformat())
    page.get_by_role("button", name="Place the batch").click()
    expect(page.locator(".sentence")).to_contain_text("Not weighed yet")
    placed = rows(
        cloud_db,
        "select placed_count, placed_on from batches where barn_id = %s and closed_on is null",
        flock.barn_id,
    )
    assert placed == [(4800, life.today)]
    audited = rows(
        cloud_db, "select count(*) from master_data_actions where actor = %s", flocks.OPERATOR
    )
    assert audited == [(2,)]
    same = send(page, console, "/batches/new", place=f"{life.farm_id}/{flock.barn_id}/",
                batch_id=flock.batch_id, species="pig", sex="mixed", placed_count="5",
                placed_on="2020-01-01")  # fmt: skip
    assert same.status == 422
    assert [item["field"] for item in same.json()["error"]["details"]] in (["batch_id"], ["place"])


def test_admin_of_a_new_company_adds_the_barn_that_reports(
    console: Served, page: Page, cloud_db: Any, keep: Keep
) -> None:
    barns.report(cloud_db.url, barns.Sensor("air-01", "temperature", "°C", 24, 1))
    flocks.let_operate(cloud_db.admin_url, flocks.TENANT, "ada@example.com", role="admin")
    person.sign_in(page, console, email="ada@example.com")
    page.goto(f"{console.url}/batches")
    page.get_by_role("link", name="Add a barn").click()
    # What a sensor reports from is filled in.
    expect(page.get_by_label("Farm, as devices name it")).to_have_value("farm-1")
    expect(page.get_by_label("Barn, as devices name it")).to_have_value("barn-1")
    page.get_by_label("Name of the barn").fill("Upper barn")
    page.get_by_label("Time zone of the farm").fill("Mars/Base")
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".wrong-text")).to_contain_text("No time zone is called")
    keep("barn-form")
    page.get_by_label("Time zone of the farm").fill("Asia/Bangkok")
    page.get_by_role("button", name="Add").click()
    page.wait_for_url("**/batches/new?**")
    expect(page.get_by_label("Barn")).to_have_value("farm-1/barn-1/")
    again = send(
        page, console, "/batches/barns/new", farm_id="farm-1", barn_id="barn-1", barn_name="x"
    )
    assert (again.status, again.json()["error"]["details"][0]["field"]) == (422, "barn_id")
    stored = rows(cloud_db, "select name, timezone from farms")
    assert stored == [("farm-1", "Asia/Bangkok")]


def test_viewer_cannot_enter_and_other_companies_are_not_there(
    console: Served, page: Page, life: Life, cloud_db: Any
) -> None:
    flock = life.flocks[0]
    record_id = rows(cloud_db, "select record_id from barn_events limit 1")[0][0]
    event_id = rows(cloud_db, "select event_id from feed_events limit 1")[0][0]
    person.sign_in(page, console)  # a viewer
    page.goto(f"{console.url}/batches/{flock.batch_id}")
    expect(page.get_by_role("link", name="Dead animals")).to_have_count(0)
    forms = (
        "/batches/barns/new", "/records/new", "/feed/intakes/new", "/feed/lots/new",
        "/batches/new", f"/batches/{flock.batch_id}/edit",
    )  # fmt: skip
    for path in forms:
        assert page.request.get(f"{console.url}{path}").status == 403, path
        assert send(page, console, path, place="x", kind="mortality", value="2").status == 403, path
    assert rows(cloud_db, "select count(*) from posted_events") == [(0,)]
    barns.add_company(cloud_db.admin_url, "tenant-b", name="Other", email="ben@example.com")
    flocks.let_operate(cloud_db.admin_url, "tenant-b", "olga@example.com")
    page.context.clear_cookies()
    person.sign_in(page, console, email="olga@example.com")
    page.goto(f"{console.url}/batches")
    for path in (
        f"/batches/{flock.batch_id}", f"/batches/{flock.batch_id}/parts",
        f"/batches/{flock.batch_id}/edit", f"/records/new?replaces={record_id}",
        f"/feed/intakes/new?replaces={event_id}", f"/feed/lots/new?replaces={event_id}",
    ):  # fmt: skip
        assert page.request.get(f"{console.url}{path}").status == 404, path
    place = f"{life.farm_id}/{flock.barn_id}/{flock.batch_id}"
    foreign = send(page, console, "/records/new", kind="mortality", place=place, value="2")
    assert (foreign.status, foreign.json()["error"]["details"][0]["field"]) == (422, "place")
    for path in ("/batches", "/feed", "/records"):
        assert flock.batch_id not in page.request.get(f"{console.url}{path}").text()


def test_open_page_follows_a_change(console: Served, page: Page, life: Life, cloud_db: Any) -> None:
    person.sign_in(page, console, email=flocks.OPERATOR)
    person.visit(page, console, f"/batches/{life.flocks[0].batch_id}")
    shown_dead = page.locator("[data-name='batch.dead']")
    before = float(str(shown_dead.get_attribute("data-value")))
    flocks.lose(cloud_db.url, life, life.flocks[0], 3)
    expect(shown_dead).to_have_attribute("data-value", f"{before + 3}")
