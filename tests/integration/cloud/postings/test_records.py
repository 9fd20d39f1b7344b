"""Barn records that people enter: answered once, published, stored as those of edges."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.integration.cloud.postings.conftest import BARN, PLACE, Cloud
from tests.support.until import until

DEAD = {**PLACE, "record_type": "mortality", "value": 3}


@pytest.mark.req("FB-13")
async def test_record_posted_at_the_cloud_is_published_and_stored_as_any_other(api: Cloud) -> None:
    answer = (await api.post(BARN, DEAD | {"batch_id": "flock-1"})).json()

    await until(lambda: api.count("barn_events") == 1)
    (stored,) = api.site.rows(
        "select e.event_id::text, e.tenant_id, e.record_id, e.value_number, e.recorded_by_ref, "
        "p.posted_by, p.published_at is not null from barn_events e "
        "join posted_events p using (tenant_id, event_id)"
    )
    assert stored == (
        answer["event_id"], "t-001", answer["record_id"], 3.0, "ann@t-001.farm", "ann@t-001.farm",
        True,
    )  # fmt: skip
    (listed,) = (await api.get(BARN))["records"]
    assert {**listed, "unit": None} == {**answer, "unit": None}
    assert (listed["batch_id"], listed["value"]) == ("flock-1", 3.0)


async def test_same_key_and_content_has_the_same_answer_and_no_second_effect(api: Cloud) -> None:
    answers = await asyncio.gather(*(api.post(BARN, DEAD, key="k") for _ in range(5)))

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    await until(lambda: api.count("barn_events") == 1)
    assert api.count("posted_events") == 1


async def test_same_key_with_other_content_is_a_conflict(api: Cloud) -> None:
    await api.post(BARN, DEAD, key="k")

    other = await api.post(BARN, DEAD | {"value": 4}, key="k")
    feed = await api.post("feed/lots", {**PLACE, "feed_lot_id": "l", "quantity_kg": 1}, key="k")

    assert (other.status_code, feed.status_code) == (409, 409)
    assert "Idempotency-Key was used for something else" in other.json()["error"]["message"]
    # Another company's keys are its own.
    place = {"farm_id": "dale", "barn_id": "b-9"}
    assert (await api.post(BARN, DEAD | place, who="bob", key="k")).status_code == 201


async def test_correction_names_the_record_and_the_old_one_counts_no_more(api: Cloud) -> None:
    first = await api.entered(BARN, record_type="mortality", value=30)

    second = await api.entered(BARN, record_type="mortality", value=3, replaces=first["record_id"])
    again = await api.post(BARN, DEAD | {"replaces": first["record_id"]})

    assert again.status_code == 409
    assert "replaced already" in again.json()["error"]["message"]
    await until(lambda: api.count("barn_events") == 2)
    assert api.site.rows("select value_number from counted_records") == [(3.0,)]
    (counted,) = (await api.get(BARN, counted="true"))["records"]
    assert counted["record_id"] == second["record_id"]
    replaced = {row["record_id"]: row["replaced_by"] for row in (await api.get(BARN))["records"]}
    assert replaced == {first["record_id"]: second["record_id"], second["record_id"]: None}


async def test_record_of_another_farms_device_is_not_there_to_be_corrected(api: Cloud) -> None:
    with psycopg.connect(api.site.database.admin_url) as owner:
        owner.execute("insert into farms values ('t-001', 'lake', 'lake', 'Asia/Bangkok')")
        owner.execute("insert into barns values ('t-001', 'lake', 'b-1', 'b-1')")
        owner.execute(
            "insert into barn_events (tenant_id, event_id, event_type, farm_id, barn_id, "
            "device_id, occurred_at, trace_id, payload) values ('t-001', gen_random_uuid(), "
            "'barn.record.created', 'hill', 'b-1', 'd', now(), 't', "
            """'{"record_id": "1", "record_type": "mortality", "value": 7}')"""
        )
    correction = DEAD | {"replaces": "1"}

    elsewhere = await api.post(BARN, correction | {"farm_id": "lake"})
    here = await api.post(BARN, correction)

    assert (elsewhere.status_code, here.status_code) == (404, 201)
    # What a person entered has an id of its own, so its farm can be corrected too.
    moved = await api.post(BARN, DEAD | {"farm_id": "lake", "replaces": here.json()["record_id"]})
    assert moved.status_code == 201
    await until(lambda: api.count("barn_events") == 3)
    (counted,) = (await api.get(BARN, counted="true"))["records"]
    assert counted["record_id"] == moved.json()["record_id"]


async def test_note_takes_a_head_count_back(api: Cloud) -> None:
    wrong = await api.entered(BARN, record_type="head_count", value=60)

    await api.entered(BARN, record_type="note", value="other barn", replaces=wrong["record_id"])

    await until(lambda: api.count("barn_events") == 2)
    assert api.site.rows("select record_type from counted_records") == [("note",)]


_LATER = (datetime.now(UTC) + timedelta(days=2)).isoformat()


@pytest.mark.parametrize(
    ("change", "status", "field", "said"),
    [
        ({"value": -1}, 400, "body", "must not be negative"),
        ({"value": 1.5}, 400, "body", "whole animals"),
        ({"value": "three"}, 400, "body", "must be a number"),
        ({"record_type": "death"}, 400, "record_type", "Invalid enum value"),
        ({"occurred_at": _LATER}, 400, "occurred_at", "is in the future"),
        ({"occurred_at": "2026-01-01T10:00:00"}, 400, "occurred_at", "timezone"),
        ({"farm": "hill"}, 400, "farm", "is not known"),
        ({"dose": 2}, 400, "body", "is for treatments"),
        ({"record_type": "treatment"}, 400, "body", "needs its `product`"),
        ({"record_type": "water", "unit": "gallons"}, 400, "body", "`unit` of water"),
        ({"record_type": "water", "unit": ""}, 400, "body", "`unit` of water"),
        ({"barn_id": "b-7"}, 404, "barn_id", "there is no barn 'b-7'"),
        ({"batch_id": "flock-7"}, 404, "batch_id", "there is no batch 'flock-7'"),
        ({"batch_id": "flock-2"}, 400, "batch_id", "is in hill/b-2"),
        (
            {"batch_id": "flock-1", "occurred_at": "2025-12-31T10:00:00Z"}, 400, "batch_id",
            "is in that barn from 2026-01-01, not on 2025-12-31",
        ),
        ({"record_type": "temperature", "value": 1e300}, 400, "body", "between -100 and 200"),
        ({"replaces": "r-7"}, 404, "replaces", "there is no barn.record.created 'r-7'"),
    ],
)  # fmt: skip
async def test_bad_record_is_refused_with_the_reason(
    api: Cloud, change: dict[str, Any], status: int, field: str, said: str
) -> None:
    answer = await api.post(BARN, DEAD | change, key="k")

    assert answer.status_code == status, answer.text
    (detail,) = answer.json()["error"]["details"]
    assert detail["field"] == field
    assert said in detail["reason"]
    assert api.count("posted_events") == 0
    # The key was not used up.
    assert (await api.post(BARN, DEAD, key="k")).status_code == 201


async def test_ids_of_another_company_are_not_there(api: Cloud) -> None:
    record = await api.entered(BARN, record_type="mortality", value=1)
    await until(lambda: api.count("barn_events") == 1)
    mine = {**DEAD, "farm_id": "dale", "barn_id": "b-9"}

    refused = [
        await api.post(BARN, DEAD, who="bob"),
        await api.post(BARN, mine | {"batch_id": "flock-1"}, who="bob"),
        await api.post(BARN, mine | {"replaces": record["record_id"]}, who="bob"),
    ]

    assert [answer.status_code for answer in refused] == [404, 404, 404]
    assert (await api.get(BARN, who="bob"))["records"] == []


async def test_who_may_not_or_has_no_key_is_refused(api: Cloud) -> None:
    assert (await api.post(BARN, DEAD, who="vic")).status_code == 403
    url, headers = f"/api/v1/{BARN}", {"Authorization": f"Bearer {api.tokens['ann']}"}
    assert (await api.client.post(url, json=DEAD, headers=headers)).status_code == 400
    assert (
        await api.client.post(url, json=DEAD, headers={"Idempotency-Key": "k"})
    ).status_code == 401


async def test_records_are_listed_by_filters_and_in_pages(api: Cloud) -> None:
    for hour in range(5):
        at = f"2026-02-01T0{hour}:00:00Z"
        await api.entered(BARN, record_type="water", value=100 + hour, occurred_at=at)
    await api.entered(BARN, record_type="note", value="calm", occurred_at="2026-02-02T00:00:00Z")
    await api.entered(BARN, record_type="note", value="b", barn_id="b-2")
    await until(lambda: api.count("barn_events") == 7)

    first = await api.get(BARN, type="water", limit=3)
    second = await api.get(BARN, type="water", limit=3, cursor=first["next_cursor"])

    values = [row["value"] for page in (first, second) for row in page["records"]]
    assert values == [104, 103, 102, 101, 100]
    assert second["next_cursor"] is None
    assert {row["batch_id"] for row in first["records"]} == {"flock-1"}
    assert len((await api.get(BARN, batch="flock-1"))["records"]) == 6
    assert [row["value"] for row in (await api.get(BARN, barn="b-2"))["records"]] == ["b"]
    span = {"from": "2026-02-01T01:00:00Z", "to": "2026-02-01T03:00:00Z"}
    assert len((await api.get(BARN, **span))["records"]) == 2


async def test_batch_is_safe_to_sell_when_the_last_withdrawal_is_over(api: Cloud) -> None:
    def safe() -> Any:
        return api.site.rows("select fn_safe_to_sell_from('t-001', 'flock-1')")[0][0]

    assert safe() is None
    # 20:00 in UTC is the next day in Bangkok.
    cure = {"record_type": "treatment", "product": "amoxicillin", "value": 40}
    first = await api.entered(BARN, **cure, withdrawal_days=14, occurred_at="2026-02-01T20:00:00Z")
    await api.entered(
        BARN, **cure | {"record_type": "vaccination"}, withdrawal_days=2,
        occurred_at="2026-02-10T01:00:00Z", batch_id="flock-1",
    )  # fmt: skip
    await until(lambda: api.count("barn_events") == 2)
    assert str(safe()) == "2026-02-16"

    await api.entered(
        BARN, **cure | {"value": 0}, replaces=first["record_id"],
        occurred_at="2026-02-01T20:00:00Z",
    )  # fmt: skip
    await until(lambda: api.count("barn_events") == 3)
    assert str(safe()) == "2026-02-12"
