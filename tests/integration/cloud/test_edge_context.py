"""An edge fetches the cloud's master data, works with the last copy, and names batches by it."""

import signal
from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx2
import psycopg
import pytest
from psycopg.types.json import Jsonb

from farmiq.cloud.edges import api as edges
from farmiq.cloud.farms import kinds, store
from farmiq.cloud.farms.kinds import BARNS, BATCHES, BREED_STANDARDS, FARMS
from farmiq.config import EdgeSettings
from farmiq.edge.alert.rules import of_context
from farmiq.edge.ingress import handlers
from farmiq.edge.sync import context
from farmiq.edge.sync.cloud import Cloud
from farmiq.messages.topics import Place
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.integration.cloud.test_edges import EdgeHost, edge_host
from tests.integration.edge.feed.conftest import said
from tests.integration.edge.sync.owed import rows
from tests.integration.edge.weighvision.conftest import Weighing, station
from tests.support import databases, devices, preloaded
from tests.support.until import until

__all__ = ["edge_host"]  # the fixture: a real cloud, its database and its bus

NOW = datetime.now(UTC).replace(microsecond=0)
TODAY = (NOW + timedelta(hours=7)).date()  # in Bangkok
DAY = timedelta(days=1)
SCALE = Place("t-001", "f-001", "b-001", "scale-1")
COPY = "select farm_id, timezone from farm_zones where tenant_id = 't-001' order by 1"
BATCH_COPY = "select batch_id from cloud_batches order by 1"


def batch(batch_id: str, placed_on: date, closed_on: date | None = None, **more: Any) -> Any:
    values: dict[str, Any] = {
        "farm_id": "f-001", "barn_id": "b-001", "species": "broiler", "breed": "example",
        "placed_count": 100, **more,
    }  # fmt: skip
    return kinds.Batch(batch_id=batch_id, placed_on=placed_on, closed_on=closed_on, **values)


class Master:
    """The cloud's master data, as somebody who registers it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, kind: kinds.Kind, *structs: Any, tenant: str = "t-001") -> None:
        async with await psycopg.AsyncConnection.connect(self._database.url) as tx:
            await store.save(tx, kind, tenant, structs)

    async def farm(self, tenant: str, farm_id: str, timezone: str) -> None:
        farm = kinds.Farm(farm_id=farm_id, name=farm_id, timezone=timezone)
        await self.save(FARMS, farm, tenant=tenant)
        barn = kinds.Barn(farm_id=farm_id, barn_id="b-001", name="One")
        await self.save(BARNS, barn, tenant=tenant)


@pytest.fixture
async def master(edge_host: EdgeHost) -> Master:
    """Two farms of t-001 and one of t-002; a batch that left, and one that is there."""
    made = Master(edge_host.site.database)
    await made.farm("t-001", "f-001", "Asia/Bangkok")
    await made.farm("t-001", "f-002", "Asia/Tokyo")
    await made.farm("t-002", "f-001", "Europe/Berlin")
    await made.save(BATCHES, batch("old", TODAY - 40 * DAY, TODAY - 3 * DAY))
    await made.save(BATCHES, batch("new", TODAY - DAY))
    await made.save(BATCHES, batch("far", TODAY - DAY, farm_id="f-002"))
    await made.save(BATCHES, batch("theirs", TODAY - DAY), tenant="t-002")
    for breed in ("example", "unused"):
        row = kinds.BreedStandard(species="broiler", breed=breed, age_days=7, source="us")
        await made.save(BREED_STANDARDS, row)
    return made


class Edge:
    """An edge that enrolled for t-001, with a scale in barn b-001 of f-001."""

    def __init__(self, database: Database, pool: db.Pool, cloud: Cloud) -> None:
        self.database, self.pool, self.cloud = database, pool, cloud

    async def fetch(self) -> object:
        return (await context.fetch(self.pool, self.cloud, every_s=0))["changed"]

    def sent_on(self, event_type: str) -> list[dict[str, Any]]:
        """The payloads in the outbox."""
        found = rows(
            self.database, "select event_type, payload_json from sync_outbox order by occurred_at"
        )
        return [payload for kind, payload in found if kind == event_type]


@pytest.fixture
async def edge(edge_host: EdgeHost, edge_db: Database) -> AsyncIterator[Edge]:
    await edge_host.enroll()
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute("update devices set revoked_at = now()")
    devices.register(
        edge_db.admin_url, [devices.at(SCALE, kind="station", station_id=station(SCALE))]
    )
    edge_host.environment |= {
        "FARMIQ_EDGE_DB_URL": edge_db.url,
        "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
    }
    settings = EdgeSettings.load(edge_host.environment)
    async with (
        db.pool(edge_db.url, name="test") as pool,
        Cloud(lambda: httpx2.AsyncClient(timeout=60), settings) as cloud,
    ):
        yield Edge(edge_db, pool, cloud)


async def ask(edge_host: EdgeHost, etag: str = "", **claims: Any) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {edge_host.token(**claims)}"}
    headers |= {"If-None-Match": etag} if etag else {}
    return await edge_host.client.get(f"{edges.CONTEXT}?farms=f-001", headers=headers)


async def test_context_holds_what_concerns_the_edge_and_nothing_of_others(
    edge_host: EdgeHost, master: Master
) -> None:
    del master
    await edge_host.enroll()
    answer = await ask(edge_host)
    assert answer.status_code == 200
    (tenant,) = answer.json()["tenants"]
    assert tenant["tenant_id"] == "t-001"
    assert [farm["farm_id"] for farm in tenant["farms"]] == ["f-001"]
    assert [each["batch_id"] for each in tenant["batches"]] == ["new", "old"]
    assert [each["breed"] for each in tenant["breed_standards"]] == ["example"]
    assert (await ask(edge_host, tenants=["t-002"])).status_code == 403
    assert (await edge_host.client.get(edges.CONTEXT)).status_code == 401
    everything = await edge_host.client.get(
        edges.CONTEXT, headers={"Authorization": f"Bearer {edge_host.token()}"}
    )
    assert len(everything.json()["tenants"][0]["farms"]) == 2


async def test_context_is_sent_again_only_when_it_changed(
    edge_host: EdgeHost, master: Master
) -> None:
    await edge_host.enroll()
    first = await ask(edge_host)
    again = await ask(edge_host, first.headers["ETag"])
    assert (again.status_code, again.content) == (304, b"")
    await master.farm("t-002", "f-001", "UTC")
    assert (await ask(edge_host, first.headers["ETag"])).status_code == 304
    await master.save(BATCHES, batch("new", TODAY - DAY, placed_count=99))
    changed = await ask(edge_host, first.headers["ETag"])
    assert (changed.status_code, changed.headers["ETag"] != first.headers["ETag"]) == (200, True)


async def test_context_has_the_rules_that_the_edge_evaluates(
    edge_host: EdgeHost, edge: Edge, master: Master
) -> None:
    """Its tenant's own for its farms and those that ship, less what is switched off."""
    del master
    hot = {"signal": "telemetry.temperature", "condition": "above", "threshold": 20}
    rules = {
        ("t-001", "here"): {**hot, "farm_id": "f-001"},
        ("t-001", "elsewhere"): {**hot, "farm_id": "f-002"},
        ("t-001", "everywhere"): hot,
        ("t-001", "default.heat.any"): {**hot, "enabled": False},
        ("t-001", "figure"): {**hot, "signal": "kpi.fcr"},
        ("t-001", "compared"): {**hot, "baseline": "same_hour"},
        ("t-001", "of a later version"): {**hot, "moon_phase": "full"},
        ("t-002", "theirs"): hot,
    }
    with psycopg.connect(edge_host.site.database.admin_url) as owner:
        for (tenant_id, rule_id), rule in rules.items():
            owner.execute(
                "insert into alert_rules (tenant_id, rule_id, rule, changed_by) "
                "values (%s, %s, %s, 'ann')",
                (tenant_id, rule_id, Jsonb({"rule_id": rule_id, **rule})),
            )
    await edge.fetch()
    ((content,),) = rows(edge.database, "select content from cloud_contexts")
    sent = [rule["rule_id"] for rule in content["alert_rules"]]
    own = [rule_id for rule_id in sent if not rule_id.startswith("default.")]
    assert own == ["everywhere", "here"]
    assert "default.ventilation.stopped" in sent
    assert "default.heat.any" not in sent
    assert not {"default.water.drop", "default.feed.low", "default.edge.silent"} & set(sent)
    found = of_context(content)
    assert (found.unreadable, len(found.by_metric["temperature"])) == (0, sum(
        rule["signal"] == "telemetry.temperature" for rule in content["alert_rules"]
    ))  # fmt: skip


async def test_context_has_what_people_did_that_keeps_a_siren_silent(
    edge_host: EdgeHost, edge: Edge, master: Master
) -> None:
    """Maintenance of its farms, and what somebody acknowledged, or ended while it is still bad."""
    del master
    with psycopg.connect(edge_host.site.database.admin_url) as owner:
        for tenant_id, reason, fields in (
            ("t-001", "all", {}),
            ("t-001", "here", {"farm_id": "f-001", "barn_id": "b-001"}),
            ("t-001", "elsewhere", {"farm_id": "f-002"}),
            ("t-001", "of the edge itself", {"edge_cluster_id": "hill-1"}),
            ("t-001", "over", {"end_at": NOW - timedelta(hours=1)}),
            ("t-002", "theirs", {}),
        ):
            row = {
                "tenant_id": tenant_id, "reason": reason, "window_id": ids.new(),
                "begin_at": NOW - DAY, "end_at": NOW + DAY, "made_by": "ann", **fields,
            }  # fmt: skip
            _insert(owner, "alert_windows", row)
        for device, more in {
            "active": {},
            "acknowledged": {"state": "acknowledged", "acknowledged_at": NOW},
            "ended": {"state": "resolved", "resolved_at": NOW, "ended_reason": "person"},
            "ended-and-clear": {"state": "resolved", "resolved_at": NOW, "ended_reason": "person"},
            "over": {"state": "resolved", "resolved_at": NOW, "acknowledged_at": NOW},
            "elsewhere": {"state": "acknowledged", "acknowledged_at": NOW, "farm_id": "f-002"},
            "theirs": {"state": "acknowledged", "acknowledged_at": NOW, "tenant_id": "t-002"},
        }.items():
            place = {"farm_id": "f-001", "barn_id": "b-001", "device_id": device, **more}
            subject = f"{place['farm_id']}/b-001/{device}"
            row = {
                "tenant_id": "t-001", "episode_id": ids.new(), "cause": f"rule:hot|{subject}",
                "source": "rule", "rule_id": "hot", "signal": "telemetry.temperature",
                "severity": "critical", "subject": subject, "message": "hot",
                "opened_at": NOW - DAY, "last_at": NOW, **place,
            }  # fmt: skip
            _insert(owner, "alert_episodes", row)
            opened_at = None if device == "ended-and-clear" else NOW.isoformat()
            states = {"hot": {"hash": "", "state": {"opened_at": opened_at}}}
            series = {name: row[name] for name in ("tenant_id", "signal", "subject")}
            _insert(owner, "alert_states", {**series, "states": Jsonb(states)})
    await edge.fetch()
    ((content,),) = rows(edge.database, "select content from cloud_contexts")
    found = of_context(content)
    assert [window.farm_id for window in found.windows] == [None, "f-001"]
    here = "t-001/f-001/b-001"
    assert found.silences == {
        ("rule.hot", f"{here}/acknowledged"): NOW, ("rule.hot", f"{here}/ended"): NOW,
    }  # fmt: skip


def _insert(owner: psycopg.Connection[Any], table: str, row: dict[str, Any]) -> None:
    names, places = ", ".join(row), ", ".join(f"%({name})s" for name in row)
    owner.execute(f"insert into {table} ({names}) values ({places})".encode(), row)  # noqa: S608


async def test_edge_stores_the_context_and_keeps_it_while_the_cloud_is_away(
    edge_host: EdgeHost, edge: Edge, master: Master
) -> None:
    assert await edge.fetch() == 1
    assert rows(edge.database, COPY) == [("f-001", "Asia/Bangkok")]
    assert rows(edge.database, BATCH_COPY) == [("new",), ("old",)]
    assert await edge.fetch() == 0
    await edge_host.run("edge", "revoke", "hill-1")

    async def denied() -> bool:
        answer = await ask(edge_host)
        return answer.status_code == 401

    await until(denied)
    await master.save(BATCHES, batch("new", TODAY - DAY, placed_count=50))
    assert await edge.fetch() == 0
    settings = EdgeSettings.load(
        {**edge_host.environment, "FARMIQ_CLOUD_URL": "http://127.0.0.1:9"}
    )
    async with Cloud(lambda: httpx2.AsyncClient(timeout=5), settings) as nowhere:
        assert await context.fetch(edge.pool, nowhere, every_s=0) == {"changed": 0}
    assert rows(edge.database, COPY) == [("f-001", "Asia/Bangkok")]
    assert rows(edge.database, BATCH_COPY) == [("new",), ("old",)]


async def test_zone_set_at_the_edge_counts_before_the_clouds(
    edge_host: EdgeHost, edge: Edge, master: Master
) -> None:
    with databases.connected(edge.database.admin_url) as owner:
        owner.execute(
            "insert into telemetry_latest (tenant_id, device_id, metric_type, farm_id, barn_id, "
            "event_id, occurred_at, ingested_at, metric_value, unit, clock_suspect) values "
            "('t-001', 'd', 'temperature', 'f-001', 'b-001', gen_random_uuid(), now(), now(), 1, "
            "'C', false)"
        )
    rezoned = "select tenant_id, device_id from telemetry_rezoned"
    await edge.fetch()
    assert rows(edge.database, rezoned) == [("t-001", "d")]
    await edge_host.run("farm", "set", "t-001", "f-001", "--timezone", "Europe/Paris")
    assert rows(edge.database, COPY) == [("f-001", "Europe/Paris")]
    with databases.connected(edge.database.admin_url) as owner:
        owner.execute("delete from telemetry_rezoned")
    await master.farm("t-001", "f-001", "Asia/Jakarta")
    assert await edge.fetch() == 1
    assert rows(edge.database, COPY) == [("f-001", "Europe/Paris")]
    assert rows(edge.database, rezoned) == []
    assert "set here" in await edge_host.run("farm", "ls")
    await edge_host.run("farm", "unset", "t-001", "f-001")
    assert rows(edge.database, COPY) == [("f-001", "Asia/Jakarta")]
    assert rows(edge.database, rezoned) == [("t-001", "d")]
    assert "from the cloud" in await edge_host.run("farm", "ls")


async def test_session_without_a_batch_gets_the_one_in_the_barn(edge: Edge, master: Master) -> None:
    del master
    await edge.fetch()
    weighings = [
        Weighing(place=SCALE, at=NOW - 4 * DAY),
        Weighing(place=SCALE, at=NOW - 2 * DAY),
        Weighing(place=SCALE, at=NOW - timedelta(minutes=1)),
        Weighing(place=SCALE, at=NOW - timedelta(minutes=1)),
    ]
    named = [None, None, None, "lot-7"]
    messages = [one.created(batch_id=name) for one, name in zip(weighings, named, strict=True)]
    for _ in range(2):
        await handlers.commit(edge.pool, messages)
    stored = dict(rows(edge.database, "select id, batch_id from weight_sessions"))
    assert [stored[one.session_id] for one in weighings] == ["old", None, "new", "lot-7"]
    sent = edge.sent_on("weighvision.session.created")
    assert sorted((str(body["batch_id"]), body.get("batch_derived", False)) for body in sent) == [
        ("None", False), ("lot-7", False), ("new", True), ("old", True),
    ]  # fmt: skip


async def test_intake_without_a_batch_gets_the_one_in_the_barn(edge: Edge, master: Master) -> None:
    del master
    await edge.fetch()
    at = NOW - timedelta(minutes=1)
    row = {"feed_lot_id": "lot-1", "quantity_kg": 7.50, "ref": "row 1"}
    messages = [
        said("feed.dispensed", {"quantity_kg": 10}, place=SCALE, ts=at),
        said("feed.dispensed", {"quantity_kg": 11, "batch_id": None}, place=SCALE, ts=at),
        said("feed.dispensed", {"quantity_kg": 12, "batch_id": "mine"}, place=SCALE, ts=at),
        said("feed.dispensed", {"quantity_kg": 13}, place=SCALE, ts=NOW - 2 * DAY),
        said("feed.imported", {"rows": [row]}, place=SCALE, ts=NOW - 4 * DAY),
    ]
    for _ in range(2):
        await handlers.commit(edge.pool, messages)
    stored = rows(edge.database, "select quantity_kg, batch_id from feed_intakes order by 1")
    assert stored == [(7.5, "old"), (10, "new"), (11, "new"), (12, "mine"), (13, None)]
    sent = {body["quantity_kg"]: body for body in edge.sent_on("feed.intake.recorded")}
    assert sent[11] == {
        "source": "SILO_AUTO", "quantity_kg": 11, "batch_id": "new", "batch_derived": True,
    }  # fmt: skip
    assert (sent[12]["batch_id"], "batch_derived" in sent[12]) == ("mine", False)
    assert "batch_id" not in sent[13]


async def test_barn_record_without_a_batch_gets_the_one_in_the_barn(
    edge: Edge, master: Master
) -> None:
    del master
    await edge.fetch()
    at = NOW - timedelta(minutes=1)

    def record(number: int, ts: datetime, **more: Any) -> tuple[str, bytes]:
        payload = {
            "record_id": f"r-{number}", "record_type": "mortality", "value": 1, "unit": None,
            "recorded_by_ref": "ann", "recorded_at": at.isoformat(), **more,
        }  # fmt: skip
        return said("barn.record.created", payload, place=SCALE, ts=ts)

    messages = [record(1, at), record(2, at, batch_id="mine"), record(3, NOW - 2 * DAY)]
    for _ in range(2):
        await handlers.commit(edge.pool, messages)
    stored = rows(edge.database, "select record_id, batch_id from barn_records order by 1")
    assert stored == [("r-1", "new"), ("r-2", "mine"), ("r-3", None)]
    sent = {body["record_id"]: body for body in edge.sent_on("barn.record.created")}
    assert (sent["r-1"]["batch_id"], sent["r-1"]["batch_derived"]) == ("new", True)
    assert "batch_derived" not in sent["r-2"]
    assert "batch_id" not in sent["r-3"]
    assert rows(edge.database, "select distinct placed_count from cloud_batches") == [(100,)]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("point", "stored"),
    [("context.before_commit", []), ("context.after_commit", [("f-001", "Asia/Bangkok")])],
)
async def test_forwarder_killed_while_it_stores_the_context_leaves_all_or_nothing(  # noqa: PLR0917
    edge_host: EdgeHost,
    edge: Edge,
    master: Master,
    point: str,
    stored: list[tuple[str, str]],
    free_port: Callable[[], int],
) -> None:
    del master
    environment = {**edge_host.environment, "FARMIQ_EDGE_HTTP_PORT": str(free_port())}
    dying = preloaded.run("edge-sync-forwarder", {**environment, "FARMIQ_CRASH_AT": point})
    await until(lambda: dying.poll() is not None, within_s=60)
    assert dying.returncode == -signal.SIGKILL
    assert rows(edge.database, COPY) == stored
    assert bool(rows(edge.database, BATCH_COPY)) is bool(stored)
    environment["FARMIQ_EDGE_HTTP_PORT"] = str(free_port())
    living = preloaded.run("edge-sync-forwarder", environment)
    try:
        checked = "select count(*) from cloud_contexts where checked_at >= %s"
        since = datetime.now(UTC)
        with psycopg.connect(edge.database.admin_url, autocommit=True) as owner:
            await until(lambda: owner.execute(checked, (since,)).fetchone() == (1,), within_s=60)
    finally:
        living.terminate()
        living.wait(timeout=20)
    assert rows(edge.database, COPY) == [("f-001", "Asia/Bangkok")]
    assert rows(edge.database, BATCH_COPY) == [("new",), ("old",)]
