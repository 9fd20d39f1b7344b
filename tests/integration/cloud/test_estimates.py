"""What an edge inferred is on the page of its weighing, and on nobody else's."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import msgspec
import pytest

from farmiq.cloud import sinks
from farmiq.cloud.console.weighings import queries
from farmiq.cloud.identity.accounts import add_user, open_sign_in
from farmiq.cloud.weighvision import store
from farmiq.farm.sessions import Fact
from farmiq.messages import weighvision as words
from farmiq.messages.inference import COMPLETED
from farmiq.plumbing import db, ids
from tests.browser.served import Served
from tests.conftest import Database
from tests.integration.cloud.test_weight_sessions import START, Told, pool
from tests.support import databases

__all__ = ["pool"]  # a fixture


def _ended(weight_kg: float) -> list[Fact]:
    return [
        Fact(ids.new(), words.SESSION_CREATED, START),
        Fact(ids.new(), words.WEIGHT_RECORDED, START, weight_kg=weight_kg),
        Fact(ids.new(), words.SESSION_FINALIZED, START, weight_kg=weight_kg, image_count=1),
    ]


async def infer(pool: db.Pool, told: Told, minute: int, **payload: Any) -> UUID:
    result_id = ids.new()
    result = {"inference_result_id": result_id, "confidence": 0.8, "model_version": "m-1"}
    event = msgspec.structs.replace(
        told.event(_ended(100.0)[0]),
        event_id=ids.new(),
        event_type=COMPLETED,
        occurred_at=START + timedelta(minutes=minute),
        payload=msgspec.Raw(msgspec.json.encode({**result, **payload})),
    )
    async with db.transaction(pool) as tx:
        assert await sinks.store_inference_events(tx, [event]) == 1
    return result_id


@pytest.mark.req("RB-19")
async def test_estimate_of_a_weighing_comes_with_how_its_station_did_so_far(pool: db.Pool) -> None:
    one, silent = Told(), Told()
    for told in (one, silent):
        async with db.transaction(pool) as tx:
            await store.apply_events(tx, [told.event(fact) for fact in _ended(100.0)])
    await infer(pool, one, 1, predicted_weight_kg=95.0, low_kg=90.0, high_kg=101.0, n_train=40)
    await infer(pool, silent, 2, predicted_weight_kg=None, reason="hand", is_shadow=False)
    async with pool.connection() as connection:
        shown = []
        for told in (one, silent):
            weighing = await queries.find(connection, told.session_id, zone="UTC", patience_s=60)
            assert weighing is not None
            shown.append(await queries.estimate(connection, weighing))
    first, second = shown
    assert first is not None
    assert second is not None
    assert (first.predicted_weight_kg, first.low_kg, first.n_train) == (95.0, 90.0, 40)
    assert (first.sessions, first.coverage) == (1, 1.0)
    assert first.mape == pytest.approx(0.05)
    assert (second.predicted_weight_kg, second.reason, second.sessions) == (None, "hand", 1)


async def test_program_that_reads_a_weighing_gets_its_estimate_or_the_reason_for_none(
    pool: db.Pool, cloud_db: Database
) -> None:
    one, silent, unseen = Told(), Told(), Told()
    for told in (one, silent, unseen):
        async with db.transaction(pool) as tx:
            await store.apply_events(tx, [told.event(fact) for fact in _ended(100.0)])
    result_id = await infer(pool, one, 1, predicted_weight_kg=95.0, low_kg=90.0, high_kg=101.0)
    await infer(pool, silent, 2, predicted_weight_kg=None, reason="hand")
    with databases.connected(cloud_db.admin_url) as owner:
        ((company_id,),) = owner.execute(
            "select company_id from companies where tenant_id = 't-001'"
        ).fetchall()
        add_user(
            owner, "ann@x.farm", company_id=company_id, password="long enough 1", role="viewer"
        )
        token = open_sign_in(owner, "ann@x.farm", lasts=timedelta(hours=1))
    console = Served(cloud_db.url)
    console.start()
    try:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=console.url, headers=headers) as client:
            address = "/api/v1/weighvision/sessions"
            first, second, third = [
                (await client.get(f"{address}/{told.session_id}")).raise_for_status().json()
                for told in (one, silent, unseen)
            ]
    finally:
        console.stop()
    assert first["estimate"] == {
        "inference_result_id": str(result_id), "predicted_weight_kg": 95.0, "low_kg": 90.0,
        "high_kg": 101.0, "confidence": 0.8, "model_version": "m-1", "is_shadow": False,
        "reason": None,
    }  # fmt: skip
    assert (second["estimate"]["predicted_weight_kg"], second["estimate"]["reason"]) == (
        None,
        "hand",
    )
    assert third["estimate"] is None
