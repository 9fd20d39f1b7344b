"""A reading travels from a sensor to the cloud's tables, through processes that may die."""

import json
import signal
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx2
import pytest

from farmiq.plumbing import tracing
from tests.support.farm import STARTED, Farm, log_lines
from tests.support.http_receiver import HttpReceiver, http_receiver
from tests.support.until import until

# About 250 readings a second for a few seconds; the last barn's link is cut now and then.


@pytest.mark.req("FB-04", "FB-05", "RB-13", "XC-02", "FB-15", "XC-03")
async def test_every_reading_arrives_once_can_be_traced_and_a_signal_stops_each_process(
    idle_farm: Farm,
) -> None:
    async with http_receiver() as collector:
        farm = idle_farm
        farm.environment |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_TRACES_SAMPLER_ARG": "1",
        }
        for service in STARTED:
            farm.start(service.name)
        await farm.until_ready()
        await _travel(farm)
        await _follow_one_in_the_spans(farm, collector)
        await _every_process_answers_for_itself(farm)
        _a_signal_stops_each(farm)


async def _travel(farm: Farm) -> None:
    simulator = farm.simulate("--barns", "3", "--interval", "0.2", "--seconds", "4")
    assert simulator.wait(timeout=120) == 0
    await farm.until_quiet()
    owed = "select count(*) from sync_outbox where status <> 'acked'"
    await until(lambda: farm.edge(owed) == [(0,)])
    edge, cloud = farm.findings()
    assert edge.sent > 100
    assert (edge.clean, cloud.clean) == (True, True)
    (counted,) = farm.cloud("select sum(reading_count)::int from telemetry_latest")
    assert farm.cloud("select count(*)::int from telemetry_readings") == [counted]
    _follow_one(farm)
    await _follow_one_in_the_logs(farm)
    _follow_feed(farm)
    _no_payload_in_any_log(farm)


async def _follow_one_in_the_spans(farm: Farm, collector: HttpReceiver) -> None:
    """One reading is one trace: a span of each hop below that of the hop before, by no header."""
    ((event_id, trace_id),) = farm.cloud(
        "select event_id::text, trace_id from telemetry_readings order by stored_at desc limit 1"
    )
    trace = tracing.trace_of(trace_id)
    hops = {
        "edge-ingress-gateway": "ingress",
        "edge-sync-forwarder": "forward",
        "cloud-ingestion": "publish",
        "cloud-telemetry-service": "consume",
    }

    def spans() -> dict[str, dict[str, Any]]:
        return {
            resource["resource"]["attributes"][0]["value"]["stringValue"]: span
            for posted in collector.posted
            for resource in posted.json()["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
            if span["traceId"] == trace
            and {"key": "farmiq.event_id", "value": {"stringValue": event_id}} in span["attributes"]
        }

    def complete() -> dict[str, dict[str, Any]]:
        so_far = spans()
        return so_far if so_far.keys() >= hops.keys() else {}

    found = await until(complete)
    parent = ""
    for service, hop in hops.items():
        span = found[service]
        assert span["name"] == f"{hop} telemetry.ingested"
        assert span["parentSpanId"] == parent
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        # The batch that it was in is a trace of its own.
        assert [link["traceId"] != trace for link in span["links"]] == [True]
        parent = span["spanId"]
    assert {posted.path for posted in collector.posted} == {"/v1/traces"}


def _follow_one(farm: Farm) -> None:
    """`farmiq trace` shows every hop, in order."""
    told = ("intake ", "record ")
    event_id = min(key for key, what in farm.sent().contents.items() if not what.startswith(told))
    answer = farm.cli("trace", event_id, "--json")
    assert answer.returncode == 0, answer.stderr
    hops = json.loads(answer.stdout)
    assert [(hop["site"], hop["place"]) for hop in hops][1:] == [
        ("edge", "ingress_dedupe"),
        ("edge", "telemetry_raw"),
        ("edge", "sync_outbox"),
        ("edge", "edge-sync-forwarder"),
        ("cloud", "ingestion_dedupe"),
        ("cloud", "farmiq.cloud-telemetry-service.ingest.queue"),
        ("cloud", "telemetry_readings"),
    ]
    assert all(hop["at"] for hop in hops)
    text = farm.cli("trace", event_id).stdout
    assert "telemetry_readings" in text
    unknown = farm.cli("trace", "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0200")
    assert unknown.returncode == 1
    assert "knows event" in unknown.stderr


async def _follow_one_in_the_logs(farm: Farm) -> None:
    """A stored reading's trace_id is in the tables of both sites and in the log of each hop.

    A hop writes its line after its commit, and one more if the event comes again.
    """
    ((event_id, trace_id),) = farm.cloud(
        "select event_id::text, trace_id from telemetry_readings order by stored_at desc limit 1"
    )
    assert farm.edge(f"select trace_id from sync_outbox where id = '{event_id}'") == [(trace_id,)]  # noqa: S608
    for service, said in (
        ("edge-ingress-gateway", "ingress.stored"),
        ("edge-sync-forwarder", "sync.delivered"),
        ("cloud-ingestion", "ingestion.events"),
        ("cloud-telemetry-service", "amqp.consumed"),
    ):

        def lines(service: str = service, said: str = said) -> list[dict[str, Any]]:
            return [
                line
                for line in log_lines(farm.log(service))
                if line["event"] == said and event_id in line["event_id"]
            ]

        line = (await until(lines))[-1]
        assert line["trace_id"][line["event_id"].index(event_id)] == trace_id
        assert line["event_type"] == "telemetry.ingested"


def _follow_feed(farm: Farm) -> None:
    contents = farm.sent().contents
    event_id = next(key for key, what in contents.items() if what.startswith("intake "))
    hops = json.loads(farm.cli("trace", event_id, "--json").stdout)
    assert [(hop["site"], hop["place"]) for hop in hops] == [
        ("device", contents[event_id].split()[1]),
        ("edge", "ingress_dedupe"),
        ("edge", "feed_intakes"),
        ("edge", "sync_outbox"),
        ("edge", "edge-sync-forwarder"),
        ("cloud", "ingestion_dedupe"),
        ("cloud", "farmiq.cloud-feed-service.ingest.queue"),
        ("cloud", "feed_events"),
    ]


def _no_payload_in_any_log(farm: Farm) -> None:
    for service in STARTED:
        for line in log_lines(farm.log(service.name)):
            assert not {"metric_value", "quantity_kg"} & set(json.dumps(line).split('"'))
            assert "payload" not in line


async def _every_process_answers_for_itself(farm: Farm) -> None:
    async with httpx2.AsyncClient(timeout=30) as client:
        for service in STARTED:
            for path in ("healthz", "readyz", "version", "metrics"):
                answer = await client.get(f"{farm.url(service.name)}/{path}")
                assert answer.status_code == 200, (service.name, path)
                assert answer.headers["x-request-id"]


def _a_signal_stops_each(farm: Farm) -> None:
    started = {service.name: farm.running[service.name] for service in STARTED}
    for process in started.values():
        process.send_signal(signal.SIGTERM)
    ended = {name: process.wait(timeout=60) for name, process in started.items()}
    assert ended == dict.fromkeys(started, 0)


async def test_settings_that_are_missing_are_all_named(idle_farm: Farm) -> None:
    idle_farm.environment |= {"FARMIQ_EDGE_DB_URL": "", "FARMIQ_CLOUD_URL": ""}
    idle_farm.environment["FARMIQ_STATE_DIR"] = str(idle_farm.folder)
    answer = idle_farm.cli("run", "edge")
    assert answer.returncode == 1
    assert "FARMIQ_EDGE_DB_URL is not set (PostgreSQL of the edge)" in answer.stderr
    assert "FARMIQ_CLOUD_URL is not set" in answer.stderr
    assert "Traceback" not in answer.stderr


async def test_an_unknown_service_is_answered_with_the_choices(idle_farm: Farm) -> None:
    answer = idle_farm.cli("run", "edge-toaster")
    assert answer.returncode == 2
    assert "edge-ingress-gateway" in answer.stderr


@pytest.mark.req("XC-03")
async def test_a_site_started_before_its_database_says_so_and_waits(
    idle_farm: Farm, free_port: Callable[[], int]
) -> None:
    """After a power cut everything starts at once, in any order."""
    real = idle_farm.environment["FARMIQ_EDGE_DB_URL"]
    port = free_port()
    away = urlunsplit(urlsplit(real)._replace(netloc=f"farmiq_edge:x@127.0.0.1:{port}"))
    idle_farm.environment["FARMIQ_EDGE_DB_URL"] = away
    idle_farm.start("edge-ingress-gateway")
    url = f"{idle_farm.url('edge-ingress-gateway')}/readyz"

    async def said() -> dict[str, str]:
        async with httpx2.AsyncClient(timeout=30) as client:
            try:
                answer = await client.get(url)
            except httpx2.HTTPError:
                return {}
        problems: dict[str, str] = answer.json()["problems"]
        return problems if "away" in problems.get("schema", "") else {}

    assert "the edge database is away" in (await until(said))["schema"]
    assert idle_farm.running["edge-ingress-gateway"].poll() is None
