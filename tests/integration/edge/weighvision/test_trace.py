"""`farmiq trace` of what has no session, and of what is still on its way."""

import json
from datetime import UTC, datetime

import psycopg

from farmiq import trace
from farmiq.plumbing import ids
from tests.conftest import Database

AT = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)


async def test_an_image_without_a_session_is_followed_by_what_is_owed_of_it(
    edge_db: Database, cloud_db: Database
) -> None:
    event_id, media_id = ids.new(), ids.new()
    with psycopg.connect(edge_db.admin_url) as edge:
        edge.execute(
            "insert into media_objects (id, tenant_id, farm_id, barn_id, device_id, bucket, "
            "object_key, mime_type, captured_at) "
            "values (%s, 't-1', 'f-1', 'b-1', 'd-1', 'b', 'k', 'image/jpeg', %s)",
            (media_id, AT),
        )
        edge.execute(
            "insert into sync_outbox (id, tenant_id, event_type, occurred_at, payload_json) "
            "values (%s, 't-1', 'weighvision.image.captured', %s, %s)",
            (event_id, AT, json.dumps({"media_id": str(media_id)})),
        )
    hops = await trace.trace(
        event_id, edge_url=edge_db.admin_url, cloud_url=cloud_db.url, amqp_url=None
    )
    assert [(hop.site, hop.place, hop.at is not None) for hop in hops] == [
        ("device", "d-1", True),
        ("edge", "media_objects", False),
        ("edge", "sync_outbox", True),
        ("edge", "edge-sync-forwarder", False),
        ("cloud", "ingestion_dedupe", False),
        ("cloud", "farmiq.cloud-weighvision-service.ingest.queue", False),
        ("cloud", "weighvision_events", False),
        ("cloud", "media_objects", False),
    ]
    assert "presigned" in hops[1].note
