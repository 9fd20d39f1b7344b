"""What the logs tell of an event on the bus: published, taken, dead; its ids and no payload."""

import asyncio
import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import prometheus_client
import pytest

from farmiq.cloud import sink
from farmiq.cloud.telemetry import service as telemetry
from farmiq.config import CloudSettings
from farmiq.plumbing import http, log
from farmiq.plumbing.bus import amqp
from tests.integration.cloud.conftest import CloudSite, event
from tests.integration.cloud.test_ingestion import Client, client
from tests.integration.cloud.test_sinks import outgoing, publisher, quick
from tests.support import vhosts
from tests.support.until import until

__all__ = ["client", "publisher", "quick"]


class Written(io.StringIO):
    def lines(self, said: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.getvalue().splitlines()]
        return [line for line in found if line["event"] == said]


@pytest.fixture(autouse=True)
def written() -> Iterator[Written]:
    """Before anything else: a logger keeps the settings under which it was made."""
    stream = Written()
    log.configure("info", stream=stream)
    yield stream
    log.configure("warning")


@pytest.mark.req("RB-29", "RB-30")
async def test_publishing_and_taking_tell_the_ids_of_every_event(
    client: Client, quick: CloudSettings, written: Written, tasks: asyncio.TaskGroup
) -> None:
    one = event()
    headers = {"x-request-id": "request-7", "x-trace-id": "trace-of-the-request"}
    answer = await client.post({"batchId": "batch-7", "events": [one]}, **headers)
    assert answer.status_code == 202
    first, *_ = written.lines("ingestion.published")
    assert (first["batch_id"], first["request_id"]) == ("batch-7", "request-7")
    assert (first["trace_id"], first["count"]) == ("trace-of-the-request", 2)
    whole = {
        "event_id": [one["event_id"]], "event_type": one["event_type"],
        "trace_id": [one["trace_id"]], "count": 1,
    }  # fmt: skip
    assert [line for line in written.lines("ingestion.events") if whole.items() <= line.items()]

    server = http.HttpServer(title="test", version="0")
    tasks.create_task(sink.run(quick, server, telemetry.READINGS))
    (taken,) = await until(lambda: written.lines("amqp.consumed"))
    assert whole.items() <= taken.items()
    del taken["timestamp"]  # its digits are those of no reading
    assert str(one["payload"]["metric_value"]) not in json.dumps(taken)


@pytest.mark.req("RB-30")
async def test_what_is_dead_is_told_as_an_error_with_its_trace_and_counted(
    publisher: amqp.Publisher, quick: CloudSettings, written: Written, tasks: asyncio.TaskGroup
) -> None:
    before = _dead()
    bad = event(payload={"metric_type": "m"}, trace_id="trace-of-the-poison")
    letter = outgoing(bad["event_type"], json.dumps(bad).encode())
    named = amqp.Outgoing(
        letter.exchange,
        letter.routing_key,
        letter.body,
        bad["event_id"],
        headers={"trace_id": bad["trace_id"]},
    )
    server = http.HttpServer(title="test", version="0")
    tasks.create_task(sink.run(quick, server, telemetry.READINGS))
    await publisher.publish([named], timeout_s=60)
    (told,) = await until(lambda: written.lines("amqp.dead_letter"))
    assert (told["level"], told["event_id"]) == ("error", bad["event_id"])
    assert (told["trace_id"], told["attempt"]) == ("trace-of-the-poison", 1)
    assert "metric_value" in told["reason"]
    await until(lambda: _dead() == before + 1)


@pytest.mark.req("RB-23")
async def test_what_the_bus_refuses_for_good_is_an_error_with_its_trace_and_a_counter(
    client: Client, cloud: CloudSite, engines: dict[str, str], written: Written
) -> None:
    """The login may no longer write: trying again does not help, a person must act."""
    before = _refused()
    vhost = urlsplit(cloud.settings.amqp_url.get_secret_value()).path[1:]
    permissions = f"permissions/{vhost}/farmiq"
    vhosts.ask(engines, "PUT", permissions, {"configure": "", "write": "", "read": ".*"})
    one = event(trace_id="trace-of-the-refused")
    try:
        answer = await client.post({"batchId": "batch-9", "events": [one]})
    finally:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        vhosts.ask(engines, "PUT", permissions, everything)
    assert answer.status_code == 503
    (line,) = written.lines("bus.publish_refused")
    assert "trace-of-the-refused" in line["trace_id"]
    assert (line["level"], line["service"]) == ("error", "cloud-ingestion")
    assert one["event_id"] in line["event_id"]
    assert line["reason"]
    assert _refused() > before


def _refused() -> float:
    labels = {"service": "cloud-ingestion", "outcome": "refused"}
    name = "farmiq_bus_publish_failed_total"
    return prometheus_client.REGISTRY.get_sample_value(name, labels) or 0.0


def _dead() -> float:
    labels = {"queue": telemetry.READINGS.work.queue, "outcome": "dead"}
    found = prometheus_client.REGISTRY.get_sample_value("farmiq_bus_consumed_total", labels)
    return found or 0.0
