"""`farmiq trace` of what has no session, and of what is still on its way."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from farmiq import trace
from farmiq.cli import app
from farmiq.edge.ingress import handlers
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.integration.edge.weighvision.conftest import Weighing
from tests.support import databases

AT = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)


async def test_an_image_without_a_session_is_followed_by_what_is_owed_of_it(
    edge_db: Database, cloud_db: Database
) -> None:
    event_id, media_id = ids.new(), ids.new()
    with databases.connected(edge_db.admin_url) as edge:
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
    hops = await trace.trace(event_id, trace.Sites(edge_db.url, cloud_db.url))
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
    assert await trace.events_of("image", media_id, trace.Sites(edge_db.url)) == [event_id]


async def test_on_a_farm_the_edge_alone_says_why_an_event_waits(
    pool: db.Pool, stations: Database, tmp_path: Path
) -> None:
    """Without any address of the cloud, by the session that a person sees on the page."""
    one = Weighing()
    await handlers.commit(pool, [one.created(), one.weight()])
    with databases.connected(stations.admin_url) as edge:
        edge.execute(
            "insert into sync_state (tenant_id, consecutive_failures, paused_until) "
            "values ('t-1', 5, fn_now() + interval '1 minute')"
        )
        edge.execute(
            "update sync_outbox set attempt_count = 1, last_error_code = 'HTTP_403', "
            "last_error_message = 'tenant t-1 is not registered here', updated_at = fn_now() "
            "where event_type = 'weighvision.session.created'"
        )

    def farmiq(*arguments: str) -> Any:
        env = {"FARMIQ_EDGE_DB_URL": stations.url, "FARMIQ_STATE_DIR": str(tmp_path)}
        return CliRunner().invoke(app, ["trace", *arguments], env=env)

    text = await asyncio.to_thread(farmiq, "--session", str(one.session_id))
    assert text.exit_code == 3, text.output
    assert text.stdout.count("HTTP_403: tenant t-1 is not registered here") == 2
    assert text.stdout.count("paused until") == 2
    assert "FARMIQ_CLOUD_DB_URL is not set here" in text.stdout
    assert "farmiq alert ls --kind sync" in text.stdout
    newest = await asyncio.to_thread(farmiq, "--last", "--json")
    (found,) = json.loads(newest.stdout)
    assert found["event_id"] in text.stdout
    assert found["hops"][1]["at"].endswith("Z")
    single = await asyncio.to_thread(farmiq, found["event_id"], "--json")
    assert json.loads(single.stdout) == found["hops"]
    assert (await asyncio.to_thread(farmiq)).exit_code == 2


def test_trace_without_any_database_says_which_settings_are_missing(tmp_path: Path) -> None:
    env = {"FARMIQ_STATE_DIR": str(tmp_path)}
    told = CliRunner().invoke(app, ["trace", "--last"], env=env)
    assert told.exit_code == 1
    assert "FARMIQ_EDGE_DB_URL is not set here" in told.stderr
