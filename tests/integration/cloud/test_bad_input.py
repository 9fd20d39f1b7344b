"""Bad bodies at the ingestion route: the standard error for each, healthy batches in between."""

import json
from typing import Any

import httpx2
import pytest

from farmiq.plumbing.http import CODES
from tests.integration.cloud.conftest import event
from tests.integration.cloud.test_ingestion import Client, client, ready
from tests.support import bad_input
from tests.support.bad_input import Posted
from tests.support.until import until

__all__ = ["client"]  # the fixture: a real route, database and bus

EVERY = 20


def assert_answer(case: Posted, answer: httpx2.Response) -> None:
    found = (case.name, case.body[:500], answer.status_code, answer.text[:500])
    assert answer.status_code == case.status, found
    body: dict[str, Any] = answer.json()
    if case.status == 202:
        assert body["accepted"] is True, found
        return
    assert body.keys() == {"error"}, found
    error = body["error"]
    assert {"code", "message", "traceId"} <= error.keys() <= {*error, "details"}, found
    assert error["code"] == CODES[case.status], found
    assert error["message"], found
    for detail in error.get("details", []):
        assert detail["reason"], found


async def send(client: Client, *, seed: int, count: int) -> None:
    healthy = []
    noted = 0
    for index, case in enumerate(bad_input.bodies(seed, count, tenant_id="t-001")):
        assert_answer(case, await client.post(case.body))
        if case.status == 202:
            noted += len({each["event_id"] for each in json.loads(case.body)["events"]})
        if index % EVERY == 0:
            healthy.append(event())
            answer = await client.post({"events": [healthy[-1]]})
            assert answer.status_code == 202
    assert client.site.rows("select count(*) from ingestion_dedupe") == [(noted + len(healthy),)]
    known = {row[0] for row in client.site.rows("select event_id::text from ingestion_dedupe")}
    assert {each["event_id"] for each in healthy} <= known
    await until(lambda: ready(client.server))


@pytest.mark.req("XC-01")
async def test_bad_bodies_get_the_standard_error_and_healthy_ones_are_taken(client: Client) -> None:
    await send(client, seed=21, count=1_200)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_a_hundred_thousand_bad_bodies_get_the_standard_error(client: Client) -> None:
    await send(client, seed=22, count=100_000)


def test_every_damage_of_a_body_comes_up() -> None:
    names = [case.name for case in bad_input.bodies(3, 1_000, tenant_id="t-001")]

    assert set(names) == bad_input.BODY_DAMAGES.keys()
