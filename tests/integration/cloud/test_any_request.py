"""Whatever is asked of the cloud's API is answered as its document says; nothing makes it fail."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from farmiq.cloud.camera.accounts.api import ROOT
from farmiq.cloud.edges import registry
from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from farmiq.contracts import openapi
from farmiq.plumbing import ids, tokens
from farmiq.plumbing.storage import objects
from tests.integration.cloud.conftest import CloudSite, event
from tests.integration.cloud.test_deadletter import PILE, bury
from tests.integration.cloud.test_sinks import sample, written
from tests.integration.edge.media.conftest import jpeg, sha256
from tests.support import any_request, databases
from tests.support.any_request import Known
from tests.support.camera_days import Days

Owner = psycopg.Connection[tuple[Any, ...]]
Paths = dict[str, dict[str, Any]]

DAY = timedelta(days=1)
WEIGHING = ids.new()
__all__ = ["bury"]  # the fixture: letters where a consumer would have put them


@pytest.fixture
def site(
    cloud: CloudSite,
    bury: Callable[..., Coroutine[Any, Any, None]],
    engines: dict[str, str],
    tmp_path: Path,
) -> Iterator[any_request.Site]:
    lots = [sample("feed.lot.received") for _ in range(20)]
    asyncio.run(bury(*map(written, lots)))
    with databases.connected(cloud.database.admin_url) as connection:
        one = add_company(connection, "t-001", name="One")
        add_user(
            connection, "super@example.com", company_id=one, password="long enough 1",
            role="admin", super_admin=True,
        )  # fmt: skip
        token = open_sign_in(connection, "super@example.com", lasts=timedelta(hours=1))
    with databases.connected(cloud.database.url) as connection:
        connection.execute(
            "insert into weight_sessions (tenant_id, session_id, farm_id, barn_id, start_at) "
            "values ('t-001', %s, 'f-001', 'b-001', now())",
            (WEIGHING,),
        )
    settings = cloud.settings
    environment = {
        "FARMIQ_CLOUD_DB_URL": cloud.database.url,
        "FARMIQ_AMQP_URL": settings.amqp_url.get_secret_value(),
        "FARMIQ_EDGE_KEYS_FILE": str(settings.edge_keys_file),
        "FARMIQ_CLOUD_S3_URL": engines["FARMIQ_CLOUD_S3_URL"],
        "FARMIQ_CLOUD_HTTP_PORT": str(settings.http_port),
        "API_ACTIONS_PER_MINUTE": "1000000",
        # Nobody listens there: messages wait.
        "FARMIQ_ALERT_SMTP_URL": "smtp://127.0.0.1:9",
        "FARMIQ_ALERT_MAIL_FROM": "alerts@example.com",
    }
    document, url = openapi.document("cloud"), f"http://127.0.0.1:{settings.http_port}"
    with (
        any_request.running("cloud", document, url, environment, tmp_path),
        psycopg.connect(cloud.database.admin_url, autocommit=True) as owner,
    ):
        edge = asyncio.run(enrolled(cloud))
        everything = {
            **known(lots, edge),
            **images(engines["FARMIQ_CLOUD_S3_URL"], cloud),
            **cameras(engines["FARMIQ_CLOUD_S3_URL"], owner, one, document["paths"]),
            **farms(owner, document["paths"]),
            **entries(owner),
            **alerts(owner, document["paths"]),
        }
        yield any_request.Site(document, url, headers(cloud, edge, token), everything)


def images(store_url: str, cloud: CloudSite) -> dict[str, Known]:
    """One that is here, and one that may be brought."""
    data, media_id = jpeg(), ids.new()
    asyncio.run(objects.Bucket(store_url).put(f"t/{media_id}", data, content_type="image/jpeg"))
    with databases.connected(cloud.database.admin_url) as connection:
        connection.execute("set role farmiq_service")
        connection.execute(
            "insert into media_objects (tenant_id, media_id, object_key, mime_type, size_bytes, "
            "sha256, captured_at, stored_at) values ('t-001', %s, %s, 'image/jpeg', %s, %s, now(), "
            "now())",
            (media_id, f"t/{media_id}", len(data), sha256(data)),
        )
    asked = {
        "tenantId": "t-001", "farmId": "f-1", "barnId": "b-1", "deviceId": "cam", "traceId": "t",
        "capturedAt": "2026-11-15T08:00:00Z", "contentType": "image/png", "contentLength": 9,
        "mediaId": str(ids.new()), "sha256": "a" * 64,
    }  # fmt: skip
    one = "GET /api/v1/media/images/{media_id}"
    which = Known(path={"media_id": str(media_id)}, query={"company": ""})
    return {
        "POST /api/v1/media/images/presign": Known(bodies=(asked,)),
        "GET /api/v1/media/images": Known(query={"day": "2026-11-15", "company": "", "cursor": ""}),
        **{f"{one}{more}": which for more in ("", "/detail", "/thumbnail")},
    }


def cameras(store_url: str, owner: Owner, company: UUID, paths: Paths) -> dict[str, Known]:
    """A program, a site, a camera and its day, with a wake, a schedule change and an alert."""
    day = date(2026, 11, 15)
    with owner.transaction():
        days = Days(owner, company)
        program = days.program("P")
        site = days.site(program, "S")
        device = days.camera(site, "C")
        session = days.day(site, day, {device: 2})
        wake = days.wake(session, device, 1, temperature=20.5, humidity=50)
        key = f"camera/{company}/{wake}.jpg"
        asyncio.run(objects.Bucket(store_url).put(key, jpeg(), content_type="image/jpeg"))
        owner.execute("set local session_replication_role = replica")
        owner.execute("update device_images set image_url = %s where image_id = %s", (key, wake))
        owner.execute("set local session_replication_role = origin")
        days.wake(session, device)
        # The calendar runs too: what is due would be applied, and could not be taken back.
        alert, change = days.alert(device, day), days.change(device, day + 10_000 * DAY)
        command, message = days.command(device), days.message(device)
    which = {
        "program_id": program, "site_id": site, "device_id": device, "session_id": session,
        "payload_id": wake, "image_id": wake, "alert_id": alert, "change_id": change,
        "level": "device", "command_id": command, "quarantine_id": message,
    }  # fmt: skip
    bodies: dict[str, Any] = {
        "POST programs": {"program_name": "P", "program_type": "control"},
        "POST sites": {"program_id": str(program), "site_name": "S", "timezone": "UTC"},
        "POST devices": {"mac": "a0:b1:c2:d3:e4:f5", "device_name": "C"},
        "PATCH programs/{program_id}": {"is_active": True},
        "PATCH sites/{site_id}": {"timezone": "Asia/Tokyo"},
        "PATCH devices/{device_id}": {"slot_index": 2, "is_active": True},
        "POST devices/{device_id}/commands": {"name": "send_image", "image_name": "a.jpg"},
        "POST devices/{device_id}/schedule-changes": {"new_wake_schedule_cron": "0 9 * * *"},
        "POST devices/{device_id}/schedule-changes/preview": {
            "new_wake_schedule_cron": "0 9 * * *"
        },
    }
    found = {}
    for path, item in paths.items():
        if not path.startswith(ROOT):
            continue
        for method, operation in item.items():
            words = [each for each in operation["parameters"] if each["in"] == "path"]
            query = {each["name"]: "" for each in operation["parameters"] if each["in"] == "query"}
            short = f"{method.upper()} {path.removeprefix(ROOT + '/')}"
            found[f"{method.upper()} {path}"] = Known(
                path={each["name"]: str(which[each["name"]]) for each in words} or None,
                query=query,
                bodies=(bodies.get(short, {}),) if "requestBody" in operation else (),
                prepare=(lambda: free_names(owner, device)) if method != "get" else None,
            )
    return found


def free_names(owner: Owner, device: UUID) -> None:
    """Whatever the last request added or retired is out of the next one's way."""
    with owner.transaction():
        owner.execute("update camera_commands set state = 'done'")
        owner.execute("update pilot_programs set program_name = program_id::text")
        owner.execute("update sites set site_name = site_id::text")
        owner.execute(
            "update devices set device_name = device_id::text, is_active = device_id = %s, "
            "mac = upper(left(md5(device_id::text), 12))",
            (device,),
        )


MASTER_DATA: dict[str, dict[str, Any]] = {
    "farms": {"farm_id": "f-9", "name": "Farm", "timezone": "UTC"},
    "barns": {"farm_id": "f-8", "barn_id": "b-9", "name": "Barn"},
    "batches": {
        "batch_id": "x-9", "farm_id": "f-8", "barn_id": "b-8", "species": "broiler",
        "placed_count": 10, "placed_on": "2026-05-01",
    },
    "feed-products": {"feed_product_id": "starter", "name": "Starter"},
    "metrics": {"metric_type": "temperature", "label": "Temperature", "unit": "C"},
    "breed-standards": {
        "species": "broiler", "breed": "example", "sex": "mixed", "age_days": "7", "source": "us",
    },
}  # fmt: skip


def farms(owner: Owner, paths: Paths) -> dict[str, Known]:
    """A row of each kind of master data, there again before each request."""
    found = {}
    for path, item in paths.items():
        kind = path.removeprefix("/api/v1/").partition("/")[0]
        if kind not in MASTER_DATA:
            continue
        row = MASTER_DATA[kind]
        for method, operation in item.items():
            names = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
            values = {name: value for name, value in row.items() if name not in names}
            table = f"{','.join(row)}\n{','.join(map(str, row.values()))}\n"
            queries = [each for each in operation["parameters"] if each["in"] == "query"]
            found[f"{method.upper()} {path}"] = Known(
                path={name: str(row[name]) for name in names} or None,
                query={each["name"]: "" for each in queries if each["name"] != "dry_run"},
                bodies={"put": (values,), "post": (table,)}.get(method, ()),
                prepare=lambda: register(owner),
            )
    return found


def entries(owner: Owner) -> dict[str, Known]:
    """What people enter about a barn that is registered, and its lists.

    A drawn Idempotency-Key may have been used for something else: none is known before a request.
    """
    place = {"farm_id": "f-8", "barn_id": "b-8"}
    bodies = {
        "barn/records": {**place, "record_type": "mortality", "value": 3},
        "feed/lots": {**place, "feed_lot_id": "l-1", "quantity_kg": 12.5},
        "feed/intakes": {**place, "source": "MANUAL", "quantity_kg": 12.5},
    }

    def unused_keys() -> None:
        register(owner)
        owner.execute("truncate posted_events")

    lists = {f"GET /api/v1/{path}": Known(query={"cursor": "", "company": ""}) for path in bodies}
    return {
        **{
            f"POST /api/v1/{path}": Known(
                query={"company": ""}, bodies=(body,), prepare=unused_keys
            )
            for path, body in bodies.items()
        },
        **lists,
        "GET /api/v1/feed/stock": Known(query={"company": ""}),
        "GET /api/v1/telemetry/range": Known(
            query={
                "from": "2026-05-01T00:00:00Z",
                "to": "2026-05-01T06:00:00Z",
                "bucket": "",
                "company": "",
            }
        ),
    }


def alerts(owner: Owner, paths: Paths) -> dict[str, Known]:
    """Episode, rule, window, channel, contact and message: all there before each request."""
    which = {
        "episode_id": EPISODE, "rule_id": "hot", "window_id": EPISODE, "channel_id": "mail",
        "contact_id": "ann", "message_id": EPISODE,
    }  # fmt: skip
    rule = {"signal": "telemetry.temperature", "condition": "above", "threshold": 30}
    bodies: dict[str, Any] = {
        "POST alerts/{episode_id}/acknowledge": {"note": "I look at it"},
        "PUT alert-rules/{rule_id}": rule,
        "POST alert-rules/try": {"rule": rule, "days": 1},
        "POST alert-windows": {
            "begin_at": datetime.now(UTC).isoformat(), "reason": "work",
            "end_at": (datetime.now(UTC) + DAY).isoformat(),
        },
        "PUT alert-channels/{channel_id}": {"kind": "email"},
        "POST alert-channels/{channel_id}/test": {"address": "ann@example.com"},
        "PUT alert-contacts/{contact_id}": {
            "name": "Ann", "addresses": {"mail": "ann@example.com"},
        },
        "PUT alert-settings": {"escalate_after_min": 5},
    }  # fmt: skip

    def there_again() -> None:
        with owner.transaction():
            owner.execute("set local role farmiq_service")
            for statement in ALERTS:
                owner.execute(statement.encode(), {"id": EPISODE})

    found = {}
    for path, item in paths.items():
        short = path.removeprefix("/api/v1/")
        if not short.startswith("alert"):
            continue
        for method, operation in item.items():
            parameters = operation["parameters"]
            names = [each["name"] for each in parameters if each["in"] == "path"]
            body = bodies.get(f"{method.upper()} {short}")
            found[f"{method.upper()} {path}"] = Known(
                path={name: str(which[name]) for name in names} or None,
                query={each["name"]: "" for each in parameters if each["in"] == "query"},
                bodies=(body,) if body else (),
                prepare=there_again,
            )
    return found


EPISODE = ids.new()
ALERTS = (
    "delete from alert_messages",
    "delete from alert_episodes",
    "delete from alert_rules",
    "delete from alert_windows",
    "delete from alert_contacts",
    "delete from alert_channels",
    """
    insert into alert_episodes (tenant_id, episode_id, cause, source, severity, subject, message,
      opened_at, last_at)
    values ('t-001', %(id)s, 'rule:hot|f/b/d', 'rule', 'warning', 'f/b/d', 'hot', now(), now())
    """,
    """
    insert into alert_rules (tenant_id, rule_id, rule, changed_by)
    values ('t-001', 'hot', '{"rule_id": "hot", "signal": "telemetry.temperature",
      "condition": "above", "threshold": 30}', 'x')
    """,
    """
    insert into alert_windows (tenant_id, window_id, begin_at, end_at, reason, made_by)
    values ('t-001', %(id)s, now(), now() + interval '1 hour', 'work', 'x')
    """,
    """
    insert into alert_channels (tenant_id, channel_id, kind, settings, secret_names, changed_at,
      changed_by)
    values ('t-001', 'mail', 'email', '{}', '{}', now(), 'x')
    """,
    """
    insert into alert_contacts (tenant_id, contact_id, name, level, severities, addresses,
      quiet_passed_by, changed_at, changed_by)
    values ('t-001', 'ann', 'Ann', 1, '{critical}', '{"mail": "ann@example.com"}', '{}', now(), 'x')
    """,
    """
    insert into alert_messages (tenant_id, message_id, step, channel_id, address, severity, subject,
      body, content, state, created_at, send_after, next_attempt_at)
    values ('t-001', %(id)s, 'test', 'mail', 'ann@example.com', 'info', 's', 'b', '{}', 'sent',
      now(), now(), now())
    """,
)


def register(owner: Owner) -> None:
    with owner.transaction():
        owner.execute("set local role farmiq_service")
        owner.execute("delete from batches")
        for farm in ("f-8", "f-9"):
            owner.execute(
                "insert into farms (tenant_id, farm_id, name, timezone) "
                "values ('t-001', %s, 'Farm', 'UTC') on conflict do nothing",
                (farm,),
            )
        for barn in ("b-8", "b-9"):
            owner.execute(
                "insert into barns (tenant_id, farm_id, barn_id, name) "
                "values ('t-001', 'f-8', %s, 'Barn') on conflict do nothing",
                (barn,),
            )
        owner.execute(
            "insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count, "
            "placed_on) values ('t-001', 'x-9', 'f-8', 'b-8', 'broiler', 10, '2026-05-01')"
        )
        owner.execute(
            "insert into feed_products (tenant_id, feed_product_id, name) "
            "values ('t-001', 'starter', 'Starter') on conflict do nothing"
        )
        owner.execute(
            "insert into metrics (tenant_id, metric_type, label, unit) "
            "values ('t-001', 'temperature', 'Temperature', 'C') on conflict do nothing"
        )
        owner.execute(
            "insert into breed_standards (tenant_id, species, breed, sex, age_days, source) "
            "values ('t-001', 'broiler', 'example', 'mixed', 7, 'us') on conflict do nothing"
        )


@dataclass(frozen=True)
class Edge:
    """An edge that is enrolled, and how another and a next key would be."""

    key: dict[str, Any]
    code: str
    other: dict[str, Any]


async def enrolled(cloud: CloudSite) -> Edge:
    edge = Edge(tokens.new_key(), "", tokens.new_key())
    async with await psycopg.AsyncConnection.connect(cloud.database.admin_url) as tx:
        code, again = [
            (await registry.invite(tx, "edge-01", ["t-001"], lasts=DAY, actor="tests"))[0]
            for _ in range(2)
        ]
        public = tokens.PublicKey.read(tokens.public_part(edge.key))
        await registry.enroll(tx, code, public)
    return replace(edge, code=again)


def headers(cloud: CloudSite, edge: Edge, token: str) -> dict[str, dict[str, str]]:
    signed = tokens.sign(
        edge.key,
        subject="edge-01",
        issuer=cloud.settings.token_issuer,
        audience=cloud.settings.token_audience,
        now=datetime.now(UTC),
        tenants=["t-001"],
        edge_cluster_id="edge-01",
    )
    return {
        "edgeToken": {"authorization": f"Bearer {signed}"},
        "signIn": {"cookie": f"farmiq_sign_in={token}"},
    }


def known(lots: list[dict[str, Any]], edge: Edge) -> dict[str, Known]:
    other, following = tokens.public_part(edge.other), tokens.public_part(tokens.new_key())
    heartbeat = {
        "tenant_id": "t-001", "sent_at": "2026-01-02T03:04:05Z", "versions": {"farmiq": "1"},
        "waiting": 1, "oldest_s": 2.5, "dlq": 0, "disk_percent": 40,
    }  # fmt: skip
    return {
        "POST /api/v1/edges/enroll": Known(bodies=({"code": edge.code, "public_key": other},)),
        "POST /api/v1/edges/rotate": Known(bodies=({"public_key": following},)),
        "POST /api/v1/edges/heartbeat": Known(bodies=(heartbeat,)),
        "POST /api/v1/ingestion/batch": Known(
            bodies=({"events": [event()]}, {"events": lots, "batchId": "b-1"})
        ),
        "GET /api/v1/weighvision/sessions": Known(
            query={"day": "2026-05-31", "cursor": "", "company": "", "batch": ""}
        ),
        "GET /api/v1/weighvision/sessions/{session_id}": Known(
            path={"session_id": str(WEIGHING)}, query={"company": ""}
        ),
        "GET /api/v1/kpis": Known(query={"from": "2026-05-01", "batch": "x-9", "company": ""}),
        "GET /api/v1/dead-letters": Known(query={"queue": PILE}),
        "GET /api/v1/dead-letters/messages": Known(query={"queue": PILE}),
        "POST /api/v1/dead-letters/redrive": Known(bodies=({"queue": PILE, "limit": 1},)),
        "POST /api/v1/dead-letters/discard": Known(bodies=({"event_ids": [lots[0]["event_id"]]},)),
    }


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
