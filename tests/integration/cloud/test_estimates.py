"""What an edge inferred is on the page of its weighing, and on nobody else's."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from farmiq.cloud import sinks
from farmiq.cloud.console.weighings import queries
from farmiq.cloud.weighvision import store
from farmiq.farm.sessions import Fact
from farmiq.messages import weighvision as words
from farmiq.messages.inference import COMPLETED
from farmiq.plumbing import db, ids
from tests.integration.cloud.test_weight_sessions import START, Told, pool

__all__ = ["pool"]  # a fixture


def _ended(weight_kg: float) -> list[Fact]:
    return [
        Fact(ids.new(), words.SESSION_CREATED, START),
        Fact(ids.new(), words.WEIGHT_RECORDED, START, weight_kg=weight_kg),
        Fact(ids.new(), words.SESSION_FINALIZED, START, weight_kg=weight_kg, image_count=1),
    ]


@pytest.mark.req("RB-19")
async def test_estimate_of_a_weighing_comes_with_how_its_station_did_so_far(pool: db.Pool) -> None:
    one, silent = Told(), Told()

    async def infer(told: Told, minute: int, **payload: Any) -> None:
        result = {
            "inference_result_id": ids.new(), "confidence": 0.8, "model_version": "m-1", **payload,
        }  # fmt: skip
        event = msgspec.structs.replace(
            told.event(_ended(100.0)[0]),
            event_id=ids.new(),
            event_type=COMPLETED,
            occurred_at=START + timedelta(minutes=minute),
            payload=msgspec.Raw(msgspec.json.encode(result)),
        )
        async with db.transaction(pool) as tx:
            assert await sinks.store_inference_events(tx, [event]) == 1

    for told in (one, silent):
        async with db.transaction(pool) as tx:
            await store.apply_events(tx, [told.event(fact) for fact in _ended(100.0)])
    await infer(one, 1, predicted_weight_kg=95.0, low_kg=90.0, high_kg=101.0, n_train=40)
    await infer(silent, 2, predicted_weight_kg=None, reason="hand", is_shadow=False)
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
