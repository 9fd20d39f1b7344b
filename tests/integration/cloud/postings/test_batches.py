"""The batch of what people enter without naming one: written down with it, and never lost."""

from typing import Any

import psycopg
import pytest

from farmiq.cloud import posting
from farmiq.cloud.farms import store as farms
from farmiq.cloud.farms.kinds import BATCHES
from farmiq.cloud.identity.accounts import add_company
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.cloud.postings.conftest import BARN, INTAKES, PLACE, Cloud
from tests.support.until import until

CURE = {
    "record_type": "treatment", "product": "amoxicillin", "value": 40, "withdrawal_days": 14,
    "occurred_at": "2026-02-01T03:00:00Z",
}  # fmt: skip


def registered(api: Cloud, statement: str) -> None:
    """Change master data behind the API, which refuses what would lose a treatment."""
    with psycopg.connect(api.site.database.admin_url) as owner:
        owner.execute(statement.encode())


def safe_from(api: Cloud, batch_id: str) -> str:
    ((day,),) = api.site.rows(f"select fn_safe_to_sell_from('t-001', '{batch_id}')")
    return str(day)


async def batches(api: Cloud) -> list[str | None]:
    return [row["batch_id"] for row in (await api.get(BARN, type="treatment"))["records"]]


async def test_record_without_a_batch_keeps_the_one_that_was_in_the_barn(api: Cloud) -> None:
    first = await api.post(BARN, {**PLACE, **CURE}, key="k")
    taken = await api.entered(INTAKES, quantity_kg=5)
    await until(lambda: api.count("barn_events") == api.count("feed_events") == 1)

    assert (first.json()["batch_id"], taken["batch_id"]) == ("flock-1", "flock-1")
    for family in ("barn", "feed"):
        query = f"select payload ->> 'batch_derived' from {family}_events"  # noqa: S608
        assert api.site.rows(query) == [("true",)]
    # The batch moves to another barn, another one comes into the old barn.
    registered(api, "insert into barns values ('t-001', 'hill', 'b-3', 'b-3')")
    registered(api, "update batches set barn_id = 'b-3' where batch_id = 'flock-1'")
    registered(
        api,
        "insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count, "
        "placed_on) values ('t-001', 'flock-3', 'hill', 'b-1', 'broiler', 10, '2026-06-01')",
    )
    assert safe_from(api, "flock-1") == "2026-02-15"
    assert safe_from(api, "flock-3") == "None"
    assert await batches(api) == ["flock-1"]
    # The same request has the same answer.
    assert (await api.post(BARN, {**PLACE, **CURE}, key="k")).text == first.text
    # A correction is of the same batch, also by its name, though it is elsewhere by now.
    second = await api.entered(BARN, **CURE | {"withdrawal_days": 20}, replaces=_id(first))
    await until(lambda: api.count("barn_events") == 2)
    third = await api.entered(
        BARN, **CURE | {"withdrawal_days": 21}, replaces=second["record_id"], batch_id="flock-1"
    )
    await until(lambda: api.count("barn_events") == 3)
    assert (second["batch_id"], third["batch_id"]) == ("flock-1", "flock-1")
    assert safe_from(api, "flock-1") == "2026-02-22"


def _id(answer: Any) -> str:
    return str(answer.json()["record_id"])


async def test_treatment_whose_days_were_wrong_counts_for_both_batches(api: Cloud) -> None:
    await api.entered(BARN, **CURE)
    await until(lambda: api.count("barn_events") == 1)

    # It is registered late that the animals had left and others had come.
    registered(api, "update batches set closed_on = '2026-01-31' where batch_id = 'flock-1'")
    registered(
        api,
        "insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count, "
        "placed_on) values ('t-001', 'flock-3', 'hill', 'b-1', 'broiler', 10, '2026-02-01')",
    )

    assert (safe_from(api, "flock-1"), safe_from(api, "flock-3")) == ("2026-02-15", "2026-02-15")
    assert await batches(api) == ["flock-3"]
    # Both batches have their days computed again.
    marked = api.site.rows("select distinct batch_id from analytics_dirty_days order by 1")
    assert {("flock-1",), ("flock-3",)} <= set(marked)
    registered(api, "delete from batches where batch_id = 'flock-1'")
    assert safe_from(api, "flock-3") == "2026-02-15"


async def test_treatment_counts_while_it_is_posted_and_not_stored_yet(api: Cloud) -> None:
    stored = await api.entered(BARN, **CURE)
    await until(lambda: api.count("barn_events") == 1)
    with psycopg.connect(api.site.database.admin_url) as owner:
        # Nothing is stored until this transaction ends.
        owner.execute("lock table barn_events in exclusive mode")
        await api.entered(BARN, **CURE | {"withdrawal_days": 3000})
        assert safe_from(api, "flock-1") == "2034-04-20"
        async with db.pool(api.site.database.url, name="test") as pool, pool.connection() as tx:
            with pytest.raises(farms.RejectedError, match="not to be sold before 2034-04-20"):
                await farms.remove(tx, BATCHES, "t-001", {"batch_id": "flock-1"})
        # So do corrections, of what is stored and of what is not.
        mistake = await api.entered(BARN, **CURE | {"withdrawal_days": 3600})
        assert safe_from(api, "flock-1") == "2035-12-11"
        await api.entered(BARN, **CURE | {"withdrawal_days": 1}, replaces=mistake["record_id"])
        assert safe_from(api, "flock-1") == "2034-04-20"
        await api.entered(BARN, **CURE | {"withdrawal_days": 3300}, replaces=stored["record_id"])
        assert safe_from(api, "flock-1") == "2035-02-14"
    await until(lambda: api.count("barn_events") == 5)
    assert safe_from(api, "flock-1") == "2035-02-14"


async def test_treatment_before_its_batch_is_registered_counts_while_it_is_not_stored(
    api: Cloud,
) -> None:
    registered(api, "update batches set placed_on = '2026-03-01' where batch_id = 'flock-1'")
    with psycopg.connect(api.site.database.admin_url) as owner:
        owner.execute("lock table barn_events in exclusive mode")
        assert (await api.entered(BARN, **CURE))["batch_id"] is None
        registered(api, "update batches set placed_on = '2026-01-01' where batch_id = 'flock-1'")
        assert safe_from(api, "flock-1") == "2026-02-15"
    assert safe_from(api, "flock-2") == "None"


def test_posted_treatments_of_a_batch_are_found_by_indexes(cloud_db: Database) -> None:
    with psycopg.connect(cloud_db.admin_url) as owner:
        add_company(owner, "t-001", name="One")
        owner.execute(
            """
            insert into posted_events (tenant_id, idempotency_key, content_hash, event_id,
              event_type, subject, event, posted_by, posted_at)
            select 't-001', n::text, '', gen_random_uuid(), 'barn.record.created', n::text,
              jsonb_build_object('farm_id', 'f', 'barn_id', (n % 100)::text, 'payload',
                jsonb_build_object('batch_id', (n % 1000)::text, 'record_type', case n % 3
                  when 0 then 'treatment' else 'water' end)), 'ann', now()
            from generate_series(1, 6000) n
            """
        )
        owner.execute("analyze")
        for condition, index in (
            ("batch_id = '3'", "posted_events_batch_idx"),
            ("farm_id = 'f' and barn_id = '3'", "posted_events_medicine_idx"),
        ):
            query = (
                "explain select * from posted_records where tenant_id = 't-001' and "  # noqa: S608
                f"record_type in ('treatment', 'vaccination') and {condition}"
            )
            plan = "\n".join(row[0] for row in owner.execute(query.encode()))
            assert index in plan, plan


async def test_more_dead_than_there_are_is_refused_with_their_number(api: Cloud) -> None:
    def dead(value: int, **more: Any) -> dict[str, Any]:
        at = {"occurred_at": "2026-02-01T03:00:00Z"}
        return {**PLACE, "record_type": "mortality", "value": value, **at, **more}

    first = await api.post(BARN, dead(600))
    # Also while the first is not stored yet.
    refused = await api.post(BARN, dead(401, record_type="cull"))
    assert (first.status_code, refused.status_code) == (201, 400)
    (detail,) = refused.json()["error"]["details"]
    assert detail["field"] == "value"
    assert "400 animals are left" in detail["reason"]
    await until(lambda: api.count("barn_events") == 1)
    assert (await api.post(BARN, dead(401))).status_code == 400
    assert (await api.post(BARN, dead(1000, replaces=_id(first)))).status_code == 201
    assert (await api.post(BARN, dead(1))).status_code == 400
    # Somebody counted the animals: there are some.
    await api.entered(BARN, record_type="head_count", value=7, occurred_at="2026-02-02T03:00:00Z")
    later = "2026-02-03T03:00:00Z"
    assert (await api.post(BARN, dead(8, occurred_at=later))).status_code == 400
    assert (await api.post(BARN, dead(7, occurred_at=later))).status_code == 201


@pytest.mark.parametrize(
    ("family", "indexes"),
    [
        (
            "barn",
            {"barn_events_record_idx", "barn_events_replaces_idx", "posted_events_subject_idx"},
        ),
        ("feed", {"feed_events_pkey", "feed_events_replaces_idx", "posted_events_event_id_idx"}),
    ],
)
def test_what_a_correction_names_is_found_by_indexes(
    cloud_db: Database, family: str, indexes: set[str]
) -> None:
    name = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0601"
    named = {"tenant": "t-001", "type": "any", "name": name, "farm": "f"}
    with psycopg.connect(cloud_db.admin_url) as owner:
        add_company(owner, "t-001", name="One")
        owner.execute(
            f"""
            insert into {family}_events (tenant_id, event_id, event_type, farm_id, barn_id,
              occurred_at, trace_id, payload)
            select 't-001', gen_random_uuid(), 'any', 'f', 'b', now(), 't',
              jsonb_build_object('record_id', n::text, 'replaces', gen_random_uuid())
            from generate_series(1, 3000) n
            """.encode()  # noqa: S608
        )
        owner.execute(
            "insert into posted_events (tenant_id, idempotency_key, content_hash, event_id, "
            "event_type, subject, event, posted_by, posted_at) select 't-001', n::text, '', "
            "gen_random_uuid(), 'any', n::text, '{}', 'ann', now() "
            "from generate_series(1, 3000) n"
        )
        owner.execute("analyze")
        cursor = psycopg.ClientCursor(owner)
        query = f"explain {posting.FAMILIES[family].replaced}"
        plan = "\n".join(row[0] for row in cursor.execute(query.encode(), named))
    assert all(index in plan for index in indexes), plan
    assert "Seq Scan" not in plan
