"""Whatever is asked of the edge's API is answered as its document says; nothing makes it fail."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from farmiq.contracts import openapi
from farmiq.edge import api_keys
from farmiq.lab import stack
from farmiq.messages.topics import Place
from farmiq.plumbing import ids, tokens
from farmiq.plumbing.storage import objects
from tests.conftest import Database
from tests.integration.edge.media.conftest import jpeg, sha256
from tests.integration.edge.sync.owed import owe_many
from tests.support import any_request, databases, devices
from tests.support.any_request import Known

DEVICES = "/api/v1/devices/{tenant_id}/{device_id}"
CAMERA = Place("t-cam", "f-1", "b-1", "cam")
QUARANTINED, COMMAND, WEIGHING = ids.new(), ids.new(), ids.new()


@pytest.fixture
def site(
    edge_db: Database,
    broker: stack.Stack,
    engines: dict[str, str],
    tmp_path: Path,
    free_port: Callable[[], int],
) -> Iterator[any_request.Site]:
    tokens.write_new_key(tmp_path / "key.json", tmp_path / "keys.json")
    port = free_port()
    environment = {
        **broker.environment,
        "FARMIQ_EDGE_DB_URL": edge_db.url,
        "FARMIQ_EDGE_S3_URL": engines["FARMIQ_EDGE_S3_URL"],
        "MEDIA_PRESIGNS_PER_MINUTE": "1000000",
        "FARMIQ_EDGE_HTTP_PORT": str(port),
        "API_ACTIONS_PER_MINUTE": "1000000",
        "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{free_port()}",
        "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
        "OUTBOX_ARCHIVE_DIR": str(tmp_path / "archive"),
    }
    owe_many(edge_db, 5, status="dlq", code="HTTP_500")
    (camera,) = devices.register(edge_db.admin_url, [devices.at(CAMERA, kind="station")])
    document, url = openapi.document("edge"), f"http://127.0.0.1:{port}"
    with any_request.running("edge", document, url, environment, tmp_path):
        yield any_request.Site(
            document,
            url,
            headers={
                "key": {"authorization": f"Bearer {admin_key(edge_db)}"},
                "deviceToken": {"authorization": f"Bearer {camera.token}"},
            },
            known={**known(edge_db), **images(engines["FARMIQ_EDGE_S3_URL"], edge_db)},
        )


def images(store_url: str, database: Database) -> dict[str, Known]:
    """One that is stored, and one that may be asked for."""
    data, media_id = jpeg(), ids.new()
    asyncio.run(objects.Bucket(store_url).put(f"t/{media_id}", data, content_type="image/jpeg"))
    _execute(
        database,
        "insert into media_objects (id, tenant_id, farm_id, barn_id, device_id, bucket, "
        "object_key, mime_type, size_bytes, sha256, captured_at, upload_status, stored_at) values "
        "(%s, 't-cam', 'f-1', 'b-1', 'cam', 'x', %s, 'image/jpeg', %s, %s, now(), 'stored', now())",
        media_id,
        f"t/{media_id}",
        len(data),
        sha256(data),
    )
    asked = {
        "tenantId": "t-cam", "farmId": "f-1", "barnId": "b-1", "deviceId": "cam", "traceId": "t",
        "capturedAt": "2026-11-15T08:00:00Z", "contentType": "image/png",
    }  # fmt: skip
    which = Known(path={"media_id": str(media_id)})
    return {
        "POST /api/v1/media/images/presign": Known(bodies=(asked, {**asked, "contentLength": 9})),
        "GET /api/v1/media/images": Known(query={"tenant": "t-cam", "cursor": ""}),
        **{
            f"GET /api/v1/media/images/{{media_id}}{more}": which
            for more in ("", "/detail", "/thumbnail")
        },
    }


def admin_key(database: Database) -> str:
    key = api_keys.new_key()
    _execute(
        database,
        "insert into api_keys (api_key_id, name, role, key_sha256) values (%s, 'a', 'admin', %s)",
        ids.new(),
        api_keys.digest(key),
    )
    return key


def known(database: Database) -> dict[str, Known]:
    do = partial(_execute, database)

    def register(device: str) -> None:
        do("update devices set revoked_at = null where device_id = %s", device)

    def quarantine() -> None:
        do(
            "insert into quarantine (quarantine_id, topic, raw, message_sha256, raw_size_bytes, "
            "reasons) values (%s, 'iot/x', 'x', '\\x01', 1, '{odd}') on conflict do nothing",
            QUARANTINED,
        )

    def alert() -> None:
        do(
            "insert into alerts (alert_id, kind, subject, severity, message) "
            "values (%s, 'edge.disk', '/', 'warning', 'full') on conflict do nothing",
            ids.new(),
        )

    def command() -> None:
        do(
            "insert into device_commands (command_id, tenant_id, device_id, name, args, "
            "created_by, expires_at) values (%s, 't-1', 'd-1', 'blink', '{}', 'a', now()) "
            "on conflict do nothing",
            COMMAND,
        )

    def weighing() -> None:
        do(
            "insert into weight_sessions (id, tenant_id, farm_id, barn_id, device_id, station_id, "
            "start_at) values (%s, 't-1', 'f-1', 'b-1', 'd-1', 's-1', now()) "
            "on conflict do nothing",
            WEIGHING,
        )
        do(
            "insert into weight_session_events (tenant_id, event_id, session_id, event_type, "
            "occurred_at, weight_kg) values ('t-1', %s, %s, 'weighvision.weight.recorded', now(), "
            "80.5) on conflict do nothing",
            WEIGHING,
            WEIGHING,
        )

    one = {"tenant_id": "t-1"}
    place = {"tenant_id": "t-1", "farm_id": "f-1", "barn_id": "b-1"}
    lot = {**place, "feed_lot_id": "l-1", "quantity_kg": 12.5}
    chosen = ({"all": True, "dry_run": True}, {"ids": [str(QUARANTINED)]})
    span = {"tenant": "t-1", "from": "2025-01-01T00:00:00Z", "to": "2025-01-02T00:00:00Z"}
    span["cursor"] = ""  # of the first page; any other would have to be one that the edge gave
    return {
        "GET /api/v1/quarantine/{quarantine_id}": Known(
            path={"quarantine_id": str(QUARANTINED)}, prepare=quarantine
        ),
        "POST /api/v1/quarantine/redrive": Known(bodies=chosen, prepare=quarantine),
        "POST /api/v1/quarantine/discard": Known(bodies=chosen, prepare=quarantine),
        "POST /api/v1/alerts/close": Known(
            bodies=({"kind": "edge.disk", "subject": "/"},), prepare=alert
        ),
        "GET /api/v1/telemetry/range": Known(query=span),
        "POST /api/v1/feed/lots": Known(bodies=(lot,)),
        # A drawn Idempotency-Key may have been used for something else: none is known before.
        "POST /api/v1/feed/intakes": Known(
            bodies=({**place, "quantity_kg": 12.5},),
            prepare=partial(do, "delete from posted_events"),
        ),
        "POST /api/v1/barn/records": Known(
            bodies=({**place, "record_type": "mortality", "value": 3},),
            prepare=partial(do, "delete from posted_events"),
        ),
        "GET /api/v1/weighvision/sessions": Known(
            query={"tenant": "t-1", "day": "2026-05-31", "cursor": ""}
        ),
        "GET /api/v1/weighvision/sessions/{session_id}": Known(
            path={"session_id": str(WEIGHING)}, prepare=weighing
        ),
        "POST /api/v1/sync/redrive": Known(bodies=({"all": True}, {"tenant_id": "t-1"})),
        "POST /api/v1/sync/unclaim-stuck": Known(bodies=({"all": True}, {"tenant_id": "t-1"})),
        "POST /api/v1/devices": Known(
            bodies=({**place, "device_id": "d-new"}, {**place, "device_id": "d-new", "zone": "a"}),
            prepare=partial(do, "delete from devices where device_id = 'd-new'"),
        ),
        f"GET {DEVICES}": Known(path={**one, "device_id": "d-1"}),
        f"POST {DEVICES}/revoke": Known(
            path={**one, "device_id": "d-2"}, prepare=partial(register, "d-2")
        ),
        f"POST {DEVICES}/rotate": Known(path={**one, "device_id": "d-3"}),
        f"POST {DEVICES}/commands": Known(
            path={**one, "device_id": "d-1"}, bodies=({"name": "blink", "ttl_s": 5},)
        ),
        f"GET {DEVICES}/commands/{{command_id}}": Known(
            path={**one, "device_id": "d-1", "command_id": str(COMMAND)}, prepare=command
        ),
    }


def _execute(database: Database, statement: str, *values: Any) -> None:
    with databases.connected(database.admin_url) as connection:
        connection.execute(statement.encode(), values)


@pytest.mark.req("XC-01")
@pytest.mark.timeout(600)
def test_any_request_is_answered_as_documented(site: any_request.Site) -> None:
    found = site.ask(examples=3, at=1)
    any_request.assert_sound(found)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_requests_are_answered_as_documented(site: any_request.Site) -> None:
    found = site.ask(examples=1000, at=2)
    any_request.assert_sound(found)
