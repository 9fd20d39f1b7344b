"""The edge's own console in the barn: an operator without internet, and how its pages look."""

import asyncio
import io
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from farmiq.plumbing import ids
from farmiq.plumbing.storage import objects
from tests.browser import patience, person
from tests.browser.look import Keep
from tests.browser.served_edge import ServedEdge
from tests.support import databases, edge_day
from tests.support.edge_day import NAME, PIN, TENANT, WAITING, Day


@pytest.fixture
def day(edge_db: Any) -> Day:
    edge_day.add_key(edge_db.admin_url, tenant=TENANT)
    return edge_day.fill(edge_db.admin_url)


@pytest.fixture
def edge(edge_db: Any, engines: dict[str, str]) -> Iterator[ServedEdge]:
    served = ServedEdge(edge_db.url, FARMIQ_EDGE_S3_URL=engines["FARMIQ_EDGE_S3_URL"])
    served.start()
    yield served
    served.stop()


def sign_in(page: Page, edge: ServedEdge) -> None:
    page.goto(edge.url)
    page.get_by_label("Name").fill(NAME)
    page.get_by_label("PIN").fill(PIN)
    page.get_by_role("button", name="Sign in", exact=True).click()
    person.expect_pill(page, "Live")


def show_pictures(url: str, s3_url: str, day: Day) -> None:
    """A picture for each weighing but the one that lacks it."""
    bucket = objects.Bucket(s3_url)
    with databases.connected(url) as owner:
        found = owner.execute(
            "select id from weight_sessions where tenant_id = %s and id <> %s",
            (TENANT, day.incomplete_id),
        ).fetchall()
        for number, (session_id,) in enumerate(found):
            media_id = ids.new()
            key = f"test/{uuid.uuid4()}.jpg"
            data = io.BytesIO()
            Image.new("RGB", (640, 480), (120 + 12 * number, 150, 90)).save(data, "JPEG")
            put = bucket.put(key, data.getvalue(), content_type="image/jpeg")
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, put).result()
            owner.execute(
                "insert into media_objects (id, tenant_id, farm_id, barn_id, device_id, "
                "session_id, bucket, object_key, mime_type, size_bytes, sha256, captured_at, "
                "upload_status, stored_at) values (%s, %s, 'valley-farm', 'barn-1', 'scale-1', "
                "%s, 'b', %s, 'image/jpeg', 1, %s, now(), 'stored', now())",
                (media_id, TENANT, session_id, key, f"{number:064x}"),
            )
            owner.execute(
                "insert into weight_session_events (tenant_id, event_id, session_id, event_type, "
                "occurred_at, media_id) values (%s, %s, %s, 'weighvision.image.captured', now(), "
                "%s)",
                (TENANT, ids.new(), session_id, media_id),
            )


def test_operator_without_internet_enters_deaths_and_redrives_a_message(
    edge: ServedEdge, edge_db: Any, page: Page, day: Day, complaints: list[str]
) -> None:
    # What waits, and since when.
    sign_in(page, edge)
    expect(page.locator(".link-line")).to_contain_text("No internet since")
    expect(page.locator(".link-line")).to_contain_text(f"{WAITING} events wait here")
    expect(page.get_by_text("temperature has been above 30 °C")).to_be_visible()
    # Two deaths, first while the wifi is broken: the browser keeps them.
    page.get_by_role("link", name="Write down a record").click()
    page.get_by_label("Barn").select_option(label="barn-1 (flock-7)")
    page.get_by_label("How many animals are dead?").fill("2")
    page.context.set_offline(True)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#waiting-forms")).to_contain_text("1 entry waits")
    page.context.set_offline(False)
    page.goto(f"{edge.url}/records")
    patience.until(
        lambda: count(edge_db, "select count(*) from barn_records") == 1, "the record is stored"
    )
    page.reload()
    expect(page.get_by_role("listitem").filter(has_text="Dead")).to_contain_text("2")
    expect(page.get_by_text("Waits for the cloud")).to_be_visible()
    # A message in quarantine: every reason, and redriven it is a reading.
    page.get_by_role("link", name="Delivery").first.click()
    page.get_by_role("link", name="Quarantine").click()
    page.locator(f"#q-{day.broken_id} a").click()
    expect(page.get_by_text("payload.unit: is missing")).to_be_visible()
    page.go_back()
    page.locator(f"#q-{day.readable_id}").get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("1 accepted, 0 rejected again")).to_be_visible()
    page.get_by_role("link", name="Today").first.click()
    # The page hears of what comes next, and of a server that is gone.
    person.expect_pill(page, "Live")
    expect(page.locator('[data-name="edge.dead"]')).to_have_text("2")
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute("update barn_records set value_number = 3")
    expect(page.locator('[data-name="edge.dead"]')).to_have_text("3")
    edge.stop()
    person.expect_pill(page, "Reconnecting (data may be old)")
    edge.start()
    person.expect_pill(page, "Live")
    assert count(edge_db, "select count(*) from telemetry_raw") == 1
    # The link was cut, and a server that starts answers 503 until it is ready.
    assert not [text for text in complaints if "ERR_" not in text and "503" not in text]


def count(database: Any, query: str) -> int:
    with databases.connected(database.admin_url) as owner:
        row = owner.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0


def test_edge_pages_are_accessible_on_every_screen(  # noqa: PLR0917 - a barn, a person, pictures
    edge: ServedEdge, edge_db: Any, engines: dict[str, str], page: Page, day: Day, keep: Keep
) -> None:
    show_pictures(edge_db.admin_url, engines["FARMIQ_EDGE_S3_URL"], day)
    page.goto(edge.url)
    keep("edge-sign-in")
    sign_in(page, edge)
    for name, path in (
        ("today", "/"), ("weighings", "/weighings"),
        ("weighing", f"/weighings/{day.incomplete_id}"),
        ("readings", "/readings"), ("sensor", "/readings/climate-1/temperature"),
        ("devices", "/devices"), ("delivery", "/delivery"),
        ("dead-letters", "/delivery/dead-letters"), ("quarantine", "/delivery/quarantine"),
        ("rejected", f"/delivery/quarantine/{day.broken_id}"), ("records", "/records"),
        ("record", "/records/new?kind=treatment"), ("lot", "/feed/lots/new"),
    ):  # fmt: skip
        page.goto(f"{edge.url}{path}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        keep(f"edge-{name}")
