"""Quarantine on a real database: kinds, alerts, bounds with their ledger, and the API."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest

from farmiq.config import EdgeSettings
from farmiq.edge import api_keys
from farmiq.edge.ingress import api, handlers, jobs, quarantine
from farmiq.messages import topics
from farmiq.messages.topics import Place
from farmiq.plumbing import db, http, ids, log
from tests.conftest import Database
from tests.integration.edge.test_ingress import TOPIC, message, rows
from tests.support import databases

OTHER = topics.telemetry(Place("t-9", "f", "b", "d"), "temperature")


def settings(database: Database, **more: str) -> EdgeSettings:
    return EdgeSettings.load(
        {
            "FARMIQ_EDGE_DB_URL": database.url,
            "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
            "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
            "FARMIQ_EDGE_KEY_FILE": "none",
            **more,
        }
    )


def ahead(database: Database, **by: float) -> None:
    """Move the clock that decides (C-101)."""
    with databases.connected(database.admin_url) as owner:
        owner.execute(
            "insert into test_clock (ahead) values (%s) on conflict on constraint "
            "test_clock_pkey do update set ahead = excluded.ahead",
            (timedelta(**by),),
        )


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test") as opened:
        yield opened


class TestAlerts:
    """A refusal that a person must hear of raises an alert in the transaction of its row."""

    @pytest.mark.parametrize(
        ("changes", "kind", "severity"),
        [
            ({"tenant_id": "t-2"}, "ingress.impostor", "security"),
            ({"device_id": "d-2"}, "ingress.impostor", "security"),
            ({"event_type": "feed.dispensed"}, "ingress.impostor", "security"),
        ],
    )
    async def test_a_mismatch_is_a_security_alert(
        self, pool: db.Pool, edge_db: Database, changes: Any, kind: str, severity: str
    ) -> None:
        await handlers.commit(pool, [(TOPIC, message(**changes))])
        found = rows(edge_db, "select kind, severity, subject, seen_count from alerts")
        assert found == [(kind, severity, "t-1/f-1/b-1/d-1", 1)]
        assert rows(edge_db, "select kind from quarantine") == [("security",)]

    async def test_a_conflict_is_a_warning(self, pool: db.Pool, edge_db: Database) -> None:
        event_id = ids.new()
        other = message(event_id, payload={"value": 99, "unit": "C"})
        await handlers.commit(pool, [(TOPIC, message(event_id)), (TOPIC, other)])
        found = rows(edge_db, "select kind, severity, subject from alerts")
        assert found == [("ingress.event_id_conflict", "warning", "t-1/f-1/b-1/d-1")]

    async def test_mere_nonsense_raises_none(self, pool: db.Pool, edge_db: Database) -> None:
        await handlers.commit(pool, [(TOPIC, b"nonsense"), ("iot/odd", message())])
        assert rows(edge_db, "select count(*) from alerts") == [(0,)]
        assert rows(edge_db, "select distinct kind from quarantine") == [("format",)]

    async def test_a_flood_is_one_alert_per_device_and_bounded_over_devices(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        for _ in range(4):
            await handlers.commit(pool, [(TOPIC, message(tenant_id="t-2")) for _ in range(100)])
        assert rows(edge_db, "select subject, seen_count from alerts") == [("t-1/f-1/b-1/d-1", 400)]
        many = [
            topics.telemetry(Place("t-1", "f", "b", f"d-{n}"), "temperature") for n in range(500)
        ]
        for _ in range(2):
            await handlers.commit(pool, [(topic, message(tenant_id="t-2")) for topic in many])
        ((count, seen),) = rows(edge_db, "select count(*), sum(seen_count)::int from alerts")
        assert (count, seen) == (quarantine.MAX_SUBJECTS + 1, 1400)

    async def test_no_alert_without_its_row(
        self, pool: db.Pool, edge_db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def broken(*_: Any) -> None:
            raise psycopg.OperationalError("gone")

        monkeypatch.setattr(quarantine, "limit_subjects", broken)
        with pytest.raises(psycopg.OperationalError):
            await handlers.commit(pool, [(TOPIC, message(tenant_id="t-2"))])
        assert rows(edge_db, "select count(*) from quarantine") == [(0,)]

    async def test_the_log_names_the_event_and_nothing_else_of_it(self, pool: db.Pool) -> None:
        written = io.StringIO()
        log.configure("info", written)
        event_id = ids.new()
        await handlers.commit(pool, [(TOPIC, message(event_id, tenant_id="t-secret"))])
        (line,) = [
            json.loads(text)
            for text in written.getvalue().splitlines()
            if "ingress.impostor" in text
        ]
        assert (line["event_id"], line["event_type"]) == (str(event_id), "telemetry.reading")
        assert "t-secret" not in json.dumps(line)
        assert "21.5" not in json.dumps(line)


class TestBounds:
    """Oldest first, by bytes and by age; the ledger's sum is what is gone."""

    @staticmethod
    def ledger(database: Database) -> int:
        ((total,),) = rows(
            database,
            "select coalesce(sum(count), 0)::int from loss_ledger where class = 'quarantine'",
        )
        return int(total)

    async def test_by_bytes_the_oldest_go_and_the_ledger_has_them(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        one = settings(edge_db, QUARANTINE_MAX_BYTES=str(2**20))
        await handlers.commit(pool, [(TOPIC, message())])  # t-1 is owed something
        for n in range(30):
            ahead(edge_db, minutes=n)
            topic = (TOPIC, OTHER, "iot/odd")[n % 3]
            await handlers.commit(pool, [(topic, bytes([n]) * 100_000)])
        before = rows(edge_db, "select quarantine_id from quarantine order by last_received_at")
        await jobs.bound_quarantine(pool, one)
        after = rows(edge_db, "select quarantine_id from quarantine order by last_received_at")
        gone = len(before) - len(after)
        assert (after, gone) == (before[gone:], 20)
        assert self.ledger(edge_db) == gone
        ((size,),) = rows(edge_db, "select sum(octet_length(raw))::int from quarantine")
        assert 900_000 < size <= 2**20
        assert await jobs.bound_quarantine(pool, one) == {"count": 0}
        assert self.ledger(edge_db) == gone

    async def test_rubbish_goes_before_what_only_waits_for_this_edge(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        one = settings(edge_db, QUARANTINE_MAX_BYTES=str(2**20))
        await handlers.commit(pool, [(TOPIC, b"old " * 100)])
        with databases.connected(edge_db.admin_url) as owner:
            owner.execute("update quarantine set kind = 'not_recorded'")
        for n in range(15):
            ahead(edge_db, minutes=n)
            await handlers.commit(pool, [(TOPIC, bytes([n]) * 100_000)])
        await jobs.bound_quarantine(pool, one)
        kinds = rows(edge_db, "select kind, count(*)::int from quarantine group by 1 order by 1")
        assert kinds == [("format", 10), ("not_recorded", 1)]

    async def test_the_cloud_hears_of_tenants_it_is_owed_for_and_of_no_other(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await handlers.commit(pool, [(TOPIC, message())])
        await handlers.commit(
            pool, [(TOPIC, b"a"), (TOPIC, b"b"), (OTHER, b"c"), ("iot/odd", b"d")]
        )
        ahead(edge_db, days=91)
        await jobs.bound_quarantine(pool, settings(edge_db))
        found = rows(
            edge_db, "select tenant_id, farm_id, device_id, count from loss_ledger order by 1"
        )
        assert found == [
            ("t-1", "f-1", "d-1", 2),
            ("t-9", "f", "d", 1),
            ("unknown", "unknown", "unknown", 1),
        ]
        owed = rows(
            edge_db,
            "select o.tenant_id, o.payload_json->>'count', o.id = l.loss_id from sync_outbox o "
            "join loss_ledger l using (tenant_id) where o.event_type = 'device.buffer.dropped'",
        )
        assert owed == [("t-1", "2", True)]

    async def test_by_age_what_still_comes_stays(self, pool: db.Pool, edge_db: Database) -> None:
        await handlers.commit(pool, [(TOPIC, b"once"), (TOPIC, b"again")])
        ahead(edge_db, days=60)
        await handlers.commit(pool, [(TOPIC, b"again")])
        ahead(edge_db, days=91)
        await jobs.bound_quarantine(pool, settings(edge_db))
        assert rows(edge_db, "select raw, received_count from quarantine") == [(b"again", 2)]
        assert self.ledger(edge_db) == 1

    async def test_two_gateways_that_clean_up_count_each_message_once(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await handlers.commit(pool, [(TOPIC, b"%d" % n) for n in range(3_000)])
        ahead(edge_db, days=91)
        await asyncio.gather(*(jobs.bound_quarantine(pool, settings(edge_db)) for _ in range(3)))
        assert rows(edge_db, "select count(*) from quarantine") == [(0,)]
        assert self.ledger(edge_db) == 3_000


@dataclass
class Caller:
    """The desk over HTTP, by somebody with a key."""

    client: httpx2.AsyncClient
    keys: dict[str, str]

    async def get(self, path: str, role: str = "viewer", **query: Any) -> httpx2.Response:
        return await self.client.get(path, params=query, headers=self._headers(role))

    async def post(self, path: str, body: Any, role: str = "operator") -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body, default=str).encode()
        return await self.client.post(path, content=content, headers=self._headers(role))

    def _headers(self, role: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[role]}"} if role else {}


@pytest.fixture
async def caller(pool: db.Pool, edge_db: Database) -> AsyncIterator[Caller]:
    keys: dict[str, str] = {role: api_keys.new_key() for role in api_keys.ROLES}
    with databases.connected(edge_db.admin_url) as owner:
        for role, key in keys.items():
            owner.execute(
                "insert into api_keys (api_key_id, name, role, key_sha256) values (%s,%s,%s,%s)",
                (ids.new(), f"a {role}", role, api_keys.digest(key)),
            )
    server = http.HttpServer(title="test", version="0")
    api.Api(pool, handlers.handle).add_to(server.app)
    transport = httpx2.ASGITransport(app=server.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://edge") as client:
        yield Caller(client, {**keys, "stranger": "fiq_wrong"})


def read(answer: httpx2.Response, kind: Any) -> Any:
    """The body, which must be of the documented type."""
    assert answer.status_code == 200, answer.text
    return kind.model_validate_json(answer.content)


class TestApi:
    async def test_pages_lead_through_all_rows_once(self, caller: Caller, pool: db.Pool) -> None:
        await handlers.commit(pool, [(TOPIC, b"%d" % n) for n in range(25)])
        seen: list[UUID] = []
        before: dict[str, Any] = {}
        while True:
            found = read(
                await caller.get("/api/v1/quarantine", limit=10, **before), api.QuarantinePage
            )
            seen += [row.quarantine_id for row in found.rows]
            if found.next is None:
                break
            before = {"before": str(found.next)}
        assert len(seen) == len(set(seen)) == 25
        assert seen == sorted(seen, reverse=True)
        assert found.total_rows == 25

    async def test_filters_and_counts(
        self, caller: Caller, pool: db.Pool, edge_db: Database
    ) -> None:
        await handlers.commit(pool, [(TOPIC, b"nonsense"), (TOPIC, b"7"), (OTHER, b"nonsense")])
        await handlers.commit(pool, [(TOPIC, message(tenant_id="t-2"))] * 2)
        ahead(edge_db, hours=5)
        await handlers.commit(pool, [("iot/odd", b"late")])

        async def number(**query: Any) -> int:
            found = read(await caller.get("/api/v1/quarantine", **query), api.QuarantinePage)
            assert sum(each.rows for each in found.counts) == len(found.rows)
            return len(found.rows)

        assert await number() == 5
        assert await number(kind="security") == 1
        assert await number(reason="NOT json") == 3
        assert await number(topic="iot/telemetry/t-9/") == 1
        assert await number(older_than_hours=1) == 4
        assert await number(newer_than_hours=1) == 1
        assert await number(topic="%") == 0
        found = read(await caller.get("/api/v1/quarantine"), api.QuarantinePage)
        counted = {(each.kind, each.reason): (each.rows, each.messages) for each in found.counts}
        assert counted["security", "topic says tenant_id"] == (1, 2)
        assert counted["format", "not JSON"] == (2, 2)
        assert counted["format", "topic is not in the topic map"] == (1, 1)

    async def test_one_message_with_its_bytes(self, caller: Caller, pool: db.Pool) -> None:
        await handlers.commit(pool, [(TOPIC, b"\xff\x00nonsense")])
        (row,) = read(await caller.get("/api/v1/quarantine"), api.QuarantinePage).rows
        found = read(
            await caller.get(f"/api/v1/quarantine/{row.quarantine_id}"), api.QuarantinedMessage
        )
        assert base64.b64decode(found.raw_base64) == b"\xff\x00nonsense"
        assert (await caller.get(f"/api/v1/quarantine/{ids.new()}")).status_code == 404
        assert (await caller.get("/api/v1/quarantine/7")).status_code == 400

    async def test_redrive_and_discard_by_ids_and_by_filter(
        self, caller: Caller, pool: db.Pool, edge_db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as before_the_fix:
            before_the_fix.delitem(handlers.HANDLERS, "telemetry.reading")
            await handlers.commit(pool, [(TOPIC, message()), (TOPIC, message()), (TOPIC, b"bad")])
        some = rows(edge_db, "select quarantine_id from quarantine where kind = 'not_recorded'")
        answer = await caller.post("/api/v1/quarantine/redrive", {"ids": [some[0][0]]})
        assert read(answer, api.QuarantineResult).accepted == 1
        dry = await caller.post("/api/v1/quarantine/redrive", {"all": True, "dry_run": True})
        assert read(dry, api.QuarantineResult).chosen == 2
        rest = await caller.post("/api/v1/quarantine/redrive", {"all": True})
        result = read(rest, api.QuarantineResult)
        assert (result.accepted, result.refused) == (1, 1)
        assert rows(edge_db, "select count(*) from telemetry_raw") == [(2,)]
        gone = await caller.post("/api/v1/quarantine/discard", {"reason": "not json"})
        assert read(gone, api.QuarantineResult).gone == 1
        assert rows(edge_db, "select count(*) from quarantine") == [(0,)]
        assert TestBounds.ledger(edge_db) == 1
        audited = rows(edge_db, "select actor, action from audit_log order by at")
        assert audited == [
            ("key a operator", "quarantine.redrive"),
            ("key a operator", "quarantine.redrive"),
            ("key a operator", "quarantine.discard"),
        ]

    async def test_alerts_are_listed_and_closed(
        self, caller: Caller, pool: db.Pool, edge_db: Database
    ) -> None:
        await handlers.commit(pool, [(TOPIC, message(tenant_id="t-2"))])
        (alert,) = read(await caller.get("/api/v1/alerts"), api.EdgeAlerts).alerts
        named = {"kind": alert.kind, "subject": alert.subject}
        assert read(await caller.post("/api/v1/alerts/close", named), api.AlertClosed).closed
        assert read(await caller.get("/api/v1/alerts"), api.EdgeAlerts).alerts == []
        (closed,) = read(await caller.get("/api/v1/alerts", closed="true"), api.EdgeAlerts).alerts
        assert closed.closed_by == "key a operator"
        assert (await caller.post("/api/v1/alerts/close", named)).status_code == 404
        assert rows(edge_db, "select action from audit_log") == [("alert.close",)]

    async def test_losses_with_their_totals(
        self, caller: Caller, pool: db.Pool, edge_db: Database
    ) -> None:
        await handlers.commit(pool, [(TOPIC, b"a"), (TOPIC, b"b"), ("iot/odd", b"c")])
        ahead(edge_db, days=91)
        await jobs.bound_quarantine(pool, settings(edge_db))
        found = read(await caller.get("/api/v1/losses"), api.Losses)
        assert [(one.tenant_id, one.event_class, one.count) for one in found.totals] == [
            ("t-1", "quarantine", 2),
            ("unknown", "quarantine", 1),
        ]
        assert len(found.losses) == 2

    async def test_gaps_by_device(self, caller: Caller, pool: db.Pool) -> None:
        for seq in (1, 2, 5, 9):
            await handlers.commit(pool, [(TOPIC, message(seq=seq, boot_id="one"))])
        (device,) = read(await caller.get("/api/v1/devices/gaps"), api.AllGaps).devices
        assert (device.device_id, device.missing, device.highest_seq) == ("d-1", 5, 9)
        assert [(gap.first_missing, gap.last_missing) for gap in device.gaps] == [(3, 4), (6, 8)]
        for seq in (3, 4, 6, 7, 8):
            await handlers.commit(pool, [(TOPIC, message(seq=seq, boot_id="one"))])
        assert read(await caller.get("/api/v1/devices/gaps"), api.AllGaps).devices == []

    @pytest.mark.parametrize(
        ("path", "query"),
        [
            ("/api/v1/quarantine", {"limit": "0"}),
            ("/api/v1/quarantine", {"limit": "1001"}),
            ("/api/v1/quarantine", {"limit": "٣"}),
            ("/api/v1/quarantine", {"before": "x"}),
            ("/api/v1/quarantine", {"kind": "odd"}),
            ("/api/v1/quarantine", {"reason": "\x00"}),
            ("/api/v1/quarantine", {"older_than_hours": "nan"}),
            ("/api/v1/quarantine", {"older_than_hours": "1e999"}),
            ("/api/v1/quarantine", {"newer_than_hours": "-1"}),
            ("/api/v1/alerts", {"closed": "maybe"}),
            ("/api/v1/losses", {"before": "7"}),
        ],
    )
    async def test_invalid_query_gets_400_with_details(
        self, caller: Caller, path: str, query: dict[str, str]
    ) -> None:
        answer = await caller.get(path, **query)
        assert answer.status_code == 400
        assert answer.json()["error"]["details"]

    @pytest.mark.parametrize(
        "body",
        [
            b"", b"[]", b"nonsense", b"{}", b'{"ids": []}', b'{"ids": ["x"]}', b'{"all": 1}',
            b'{"all": true, "limit": 0}', b'{"all": true, "limit": 999999}', b'{"odd": 1}',
            b'{"kind": "odd"}', rb'{"reason": "\u0000"}', b'{"older_than_hours": -1}',
            b"[" * 20_000, b'{"older_than_hours": 1e999}', b'{"all": false}',
        ],
    )  # fmt: skip
    async def test_invalid_body_gets_400(self, caller: Caller, body: bytes) -> None:
        for action in ("redrive", "discard"):
            answer = await caller.post(f"/api/v1/quarantine/{action}", body)
            assert answer.status_code == 400, answer.text
        assert (await caller.post("/api/v1/alerts/close", body)).status_code == 400

    async def test_body_that_is_too_large_gets_413(self, caller: Caller) -> None:
        answer = await caller.post("/api/v1/quarantine/redrive", b" " * (api.MAX_BODY_BYTES + 1))
        assert answer.status_code == 413

    @pytest.mark.parametrize(
        ("role", "status"), [("", 401), ("stranger", 401), ("viewer", 403), ("admin", 200)]
    )
    async def test_only_operators_act(self, caller: Caller, role: str, status: int) -> None:
        for action in ("redrive", "discard"):
            answer = await caller.post(f"/api/v1/quarantine/{action}", {"all": True}, role)
            assert answer.status_code == status

    @pytest.mark.parametrize("path", ["quarantine", "alerts", "losses", "devices/gaps"])
    async def test_nobody_reads_without_a_key(self, caller: Caller, path: str) -> None:
        assert (await caller.get(f"/api/v1/{path}", role="")).status_code == 401
        assert (await caller.get(f"/api/v1/{path}", role="stranger")).status_code == 401
        assert (await caller.get(f"/api/v1/{path}")).status_code == 200


async def test_what_is_in_quarantine_shows_in_the_metrics(pool: db.Pool, edge_db: Database) -> None:
    sent = [(TOPIC, b"x" * 1000), (TOPIC, message(seq=1)), (TOPIC, message(seq=4))]
    await handlers.commit(pool, sent)
    made = jobs.jobs_of(pool, settings(edge_db), is_active=jobs.always_active)
    schedule = {job.name: job for job in made}
    await schedule["ingress.quarantine"].do()
    await schedule["ingress.gaps"].do()
    gauges = (jobs.ROWS, jobs.GAPS, jobs.MISSING)
    assert [gauge._value.get() for gauge in gauges] == [1, 1, 2]
    assert jobs.BYTES._value.get() >= 1000
