"""An edge's console with a day of its barn, and somebody who signs in at it."""

import asyncio
import io
import uuid
from concurrent.futures import ThreadPoolExecutor

from PIL import Image
from playwright.sync_api import Page

from farmiq.plumbing import ids
from farmiq.plumbing.storage import objects
from tests.browser.served_edge import ServedEdge
from tests.support import databases
from tests.support.edge_day import NAME, PIN, TENANT, Day


def sign_in(page: Page, edge: ServedEdge) -> None:
    page.goto(edge.url)
    page.get_by_label("Name").fill(NAME)
    page.get_by_label("PIN").fill(PIN)
    with page.expect_response(lambda found: found.request.method == "POST"):
        page.get_by_role("button", name="Sign in", exact=True).click()


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
