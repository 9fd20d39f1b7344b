"""Bad messages through the gateway's transaction: all in quarantine, the healthy ones stored."""

import itertools
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from farmiq.edge.ingress import handlers, receipts
from farmiq.edge.ingress.store import Outcome
from farmiq.plumbing import db
from tests.conftest import Database
from tests.support import bad_input, databases
from tests.support.bad_input import Sent

BATCH = 50


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test") as opened:
        yield opened


def row(database: Database, query: str) -> tuple[Any, ...]:
    with databases.connected(database.admin_url) as connection:
        found = connection.execute(query.encode()).fetchone()
        assert found is not None
        return found


async def send(pool: db.Pool, database: Database, *, seed: int, count: int) -> None:
    """Every batch has bad ones and a healthy one; `keep` is the transaction without a net."""
    rng = Random(f"healthy {seed}")
    good, bad = 0, 0
    cases = bad_input.messages(seed, count)
    while batch := [*itertools.islice(cases, BATCH)]:
        batch.insert(rng.randrange(len(batch)), bad_input.healthy(rng))
        outcome = await handlers.commit(pool, [(sent.topic, sent.raw) for sent in batch])
        assert_outcome(batch, outcome)
        good += sum(sent.good for sent in batch)
        bad += sum(not sent.good for sent in batch)
    assert row(database, "select count(*) from telemetry_raw") == (good,)
    assert row(database, "select count(*) from sync_outbox") == (good,)
    assert row(database, "select sum(received_count)::int from quarantine") == (bad,)
    assert row(database, "select min(cardinality(reasons)) from quarantine") == (1,)
    odd_clocks = "occurred_at not between now() - interval '1 day' and now() + interval '1 day'"
    assert row(
        database,
        f"select count(*) from telemetry_raw where clock_suspect <> ({odd_clocks})",  # noqa: S608
    ) == (0,)


def assert_outcome(batch: list[Sent], outcome: Outcome) -> None:
    assert outcome.new_count == sum(sent.good for sent in batch)
    refused = {(one.topic, one.raw) for one in outcome.rejected}
    assert refused == {(sent.topic, sent.raw) for sent in batch if not sent.good}
    receipts.by_sender(outcome)


async def test_bad_messages_end_in_quarantine_and_healthy_ones_in_their_tables(
    pool: db.Pool, edge_db: Database
) -> None:
    await send(pool, edge_db, seed=11, count=6_000)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_a_hundred_thousand_bad_messages_end_in_quarantine(
    pool: db.Pool, edge_db: Database
) -> None:
    await send(pool, edge_db, seed=12, count=100_000)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_a_million_messages_of_one_device_are_all_kept(
    pool: db.Pool, edge_db: Database
) -> None:
    """Without a hole in its numbers, though every thousand of them come in any order."""
    rng = Random("a million")
    count, block = 1_000_000, 1_000
    for start in range(0, count, block):
        block_of = list(range(start, start + block))
        rng.shuffle(block_of)
        sent = [bad_input.numbered(rng, seq) for seq in block_of]
        for first in range(0, block, 500):
            part = sent[first : first + 500]
            await handlers.commit(pool, [(one.topic, one.raw) for one in part])
    assert row(edge_db, "select count(*) from telemetry_raw") == (count,)
    assert row(edge_db, "select count(*) from sync_outbox") == (count,)
    assert row(edge_db, "select seen::text, forgotten from device_seq") == (f"{{[0,{count})}}", 0)
    assert row(edge_db, "select count(*) from quarantine") == (0,)
