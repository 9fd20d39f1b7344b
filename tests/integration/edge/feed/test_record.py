"""Feed and barn in the one transaction of ingress."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from farmiq.edge.ingress import handlers
from farmiq.edge.sync import store
from farmiq.edge.sync import store as sync
from farmiq.messages import bus
from farmiq.messages.topics import Place
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.integration.edge.feed.conftest import rows, said
from tests.support import databases
from tests.unit.messages import samples

EXAMPLES = Path(samples.__file__).parent / "examples"
ROWS = {
    "rows": [
        {"feed_lot_id": "lot-1", "quantity_kg": 10, "ref": "row 1"},
        {"feed_lot_id": "lot-1", "quantity_kg": 10, "ref": "row 2"},
        {"feed_lot_id": "lot-2", "quantity_kg": 7.5, "ref": "row 3"},
    ]
}


async def delivered(pool: db.Pool) -> list[dict[str, Any]]:
    """What the forwarder would send, as JSON."""
    found = []
    async with db.transaction(pool) as tx:
        for owed in await store.pending_tenants(tx):
            rows_ = await sync.claim(tx, owed.tenant_id, claimed_by="test", limit=500, lease_s=30)
            found += await sync.start_sending(tx, rows_, claimed_by="test", lease_s=30)
    return [json.loads(bus.write(row.event())) for row in found]


@pytest.mark.req("FB-01", "FB-11", "FB-17")
async def test_a_dispensing_reaches_the_cloud_exactly_as_documented(
    pool: db.Pool, edge_db: Database
) -> None:
    (documented,) = json.loads((EXAMPLES / "002.example-1.request.json").read_bytes())["events"]
    message = said(
        "feed.dispensed",
        {"quantity_kg": 25.5, "feed_lot_id": "lot-001"},
        place=Place("t-001", "f-001", "b-001", "d-010"),
        event_id=UUID(documented["event_id"]),
        ts=datetime.fromisoformat(documented["occurred_at"]),
    )
    await handlers.commit(pool, [message, message])
    await handlers.commit(pool, [message])
    # The example's time is long past: the edge adds that the device's clock is suspect.
    expected = {**documented, "trace_id": "trace-1", "clock_suspect": True}
    assert await delivered(pool) == [expected]
    found = rows(
        edge_db,
        "select intake_id::text, device_id, source, feed_lot_id, quantity_kg, parent_event_id, "
        "clock_suspect from feed_intakes",
    )
    assert found == [(documented["event_id"], "d-010", "SILO_AUTO", "lot-001", 25.5, None, True)]


@pytest.mark.req("FB-03")
async def test_an_import_has_an_effect_per_row_and_none_when_it_comes_again(
    pool: db.Pool, edge_db: Database
) -> None:
    at = datetime.now(UTC)
    message = said("feed.imported", ROWS, ts=at)
    await handlers.commit(pool, [message, message])
    with databases.connected(edge_db.admin_url) as connection:
        connection.execute("delete from ingress_dedupe")  # as after three days
    await handlers.commit(pool, [message])
    await handlers.commit(pool, [said("feed.imported", ROWS, ts=at)])  # the same rows, another id
    assert rows(
        edge_db, "select source, sum(quantity_kg), count(*) from feed_intakes group by 1"
    ) == [("IMPORT", 27.5, 3)]
    sent = await delivered(pool)
    assert [each["event_type"] for each in sent] == ["feed.intake.recorded"] * 3
    assert {each["payload"]["ref"] for each in sent} == {"row 1", "row 2", "row 3"}
    assert rows(edge_db, "select count(*) from quarantine") == [(0,)]
    assert rows(edge_db, "select count(*) from alerts") == [(0,)]


async def test_the_same_rows_at_another_time_count_and_a_person_is_told(
    pool: db.Pool, edge_db: Database
) -> None:
    now = datetime.now(UTC)
    for hours in (5, 3):
        await handlers.commit(pool, [said("feed.imported", ROWS, ts=now - timedelta(hours=hours))])
    assert rows(edge_db, "select count(*) from feed_intakes") == [(6,)]
    assert rows(edge_db, "select kind, subject, seen_count from alerts") == [
        ("feed.import_repeated", "t-1/d-1", 3)
    ]


async def test_two_tenants_may_give_two_imports_one_id(pool: db.Pool, edge_db: Database) -> None:
    event_id = ids.new()
    for tenant in ("t-1", "t-2"):
        place = Place(tenant, "f-1", "b-1", "d-1")
        await handlers.commit(pool, [said("feed.imported", ROWS, place=place, event_id=event_id)])
    counted = rows(edge_db, "select tenant_id, count(*) from sync_outbox group by 1 order by 1")
    assert counted == [("t-1", 3), ("t-2", 3)]


async def test_a_barn_record_is_kept_and_told_as_it_came(pool: db.Pool, edge_db: Database) -> None:
    dead = {**samples.BY_DEVICES["barn.record.created"], "record_type": "mortality"}
    note = {**dead, "record_id": "r-2", "record_type": "note", "value": "quiet", "unit": None}
    messages = [said("barn.record.created", each) for each in (dead, note)]
    await handlers.commit(pool, [*messages, *messages])
    found = rows(
        edge_db,
        "select record_id, record_type, value_number, value_text, unit, recorded_by_ref "
        "from barn_records order by 1",
    )
    assert found == [
        ("r-1", "mortality", 2.0, None, "animals", "p-7"),
        ("r-2", "note", None, "quiet", None, "p-7"),
    ]
    sent = await delivered(pool)
    assert {each["event_type"] for each in sent} == {"barn.record.created"}
    assert sorted(each["payload"]["record_id"] for each in sent) == ["r-1", "r-2"]
    assert [each["payload"] for each in sent if each["payload"]["record_id"] == "r-1"] == [dead]


@pytest.mark.req("FB-02")
async def test_the_weight_of_a_silo_is_telemetry(pool: db.Pool, edge_db: Database) -> None:
    topic, raw = said("telemetry.reading", {"value": 4200.5, "unit": "kg"})
    topic = "iot/telemetry/t-1/f-1/b-1/d-1/silo.weight"
    await handlers.commit(pool, [(topic, raw)])
    assert rows(edge_db, "select metric_type, metric_value from telemetry_raw") == [
        ("silo.weight", 4200.5)
    ]
    assert rows(edge_db, "select count(*) from feed_intakes") == [(0,)]


async def test_any_order_repetition_and_split_give_the_same_tables(
    pool: db.Pool, edge_db: Database
) -> None:
    at = datetime.now(UTC)
    every = [
        *(said("feed.dispensed", {"quantity_kg": n}, ts=at) for n in range(20)),
        *(said("feed.imported", ROWS, ts=at + timedelta(seconds=n)) for n in range(5)),
        *(said("barn.record.created", samples.BY_DEVICES["barn.record.created"]) for _ in range(9)),
    ]
    tables = set()
    for seed in range(4):
        rng = Random(seed)
        sent = [*every, *rng.choices(every, k=30)]
        rng.shuffle(sent)
        while sent:
            size = rng.randint(1, 12)
            await handlers.commit(pool, sent[:size])
            sent = sent[size:]
        found = rows(
            edge_db,
            """
            select (select array_agg(intake_id || source || quantity_kg order by intake_id)
                    from feed_intakes)::text,
              (select array_agg(event_id order by event_id) from barn_records)::text,
              (select array_agg(id || event_type || payload_json order by id)
               from sync_outbox)::text
            """,
        )
        tables.add(found[0])
        with databases.connected(edge_db.admin_url) as connection:
            connection.execute(
                "truncate feed_intakes, barn_records, sync_outbox, ingress_dedupe, alerts"
            )
    assert len(tables) == 1
    ((intakes, records, owed),) = tables
    assert (intakes.count(","), records.count(",")) == (34, 8)
    assert owed.count("feed.intake.recorded") == 35


@pytest.mark.parametrize(
    ("event_type", "payload"),
    [
        ("feed.dispensed", {"quantity_kg": 1.7e308}),
        ("feed.imported", {"rows": [{**ROWS["rows"][0], "quantity_kg": 1_000_000_001}]}),
    ],
)
async def test_more_than_a_million_tonnes_is_quarantined(
    pool: db.Pool, edge_db: Database, event_type: str, payload: dict[str, Any]
) -> None:
    await handlers.commit(pool, [said(event_type, payload)])
    ((reasons,),) = rows(edge_db, "select reasons::text from quarantine")
    assert "<= 1000000000" in reasons
    assert "quantity_kg" in reasons
    assert rows(edge_db, "select count(*) from feed_intakes") == [(0,)]
