"""The bus as it should be: a pure function of the catalogue, and what differs from it."""

import re
from dataclasses import replace

import pytest

from farmiq.cloud import bus, topology

WANT = topology.wanted(days=7, scale=1, with_logins=True)


def test_what_is_as_it_should_be_differs_in_nothing() -> None:
    assert topology.differences(WANT, WANT) == []


@pytest.mark.req("RB-31")
def test_an_empty_broker_lacks_everything_and_nothing_is_in_the_way() -> None:
    empty = topology.State({}, {}, frozenset(), {}, {})
    found = topology.differences(empty, WANT)
    assert {each.action for each in found} == {"create"}
    assert len(found) == sum(
        map(len, (WANT.exchanges, WANT.queues, WANT.bindings, WANT.policies, WANT.logins))
    )


def test_other_arguments_are_a_conflict_other_caps_a_change_and_more_is_left_alone() -> None:
    queue, policy = bus.TELEMETRY_QUEUE, bus.TELEMETRY_QUEUE.removesuffix(".queue")
    have = replace(
        WANT,
        queues={**WANT.queues, queue: {"x-queue-type": "classic"}, "farmiq.old.x.queue": {}},
        policies={**WANT.policies, policy: {"pattern": "x", "definition": {}}},
    )
    found = {(each.action, each.kind, each.name) for each in topology.differences(have, WANT)}
    assert found == {
        ("conflict", "queue", queue),
        ("change", "policy", policy),
        ("extra", "queue", "farmiq.old.x.queue"),
    }


@pytest.mark.req("RB-07")
def test_the_queues_that_document_001_names_are_there() -> None:
    for name in (
        "farmiq.cloud-telemetry-service.ingest.queue",
        "farmiq.cloud-telemetry-service.agg.queue",
        "farmiq.cloud-analytics-service.kpi.queue",
        "farmiq.cloud-analytics-service.days.queue",
        "farmiq.cloud-alerts-service.signals.queue",
        "farmiq.cloud-alerts-service.edge.queue",
        "farmiq.cloud-media-store.store.queue",
        "farmiq.cloud-telemetry-service.dlq.queue",
    ):
        assert name in WANT.queues


@pytest.mark.req("RB-04")
def test_analytics_gets_every_event_that_marks_days() -> None:
    queue = bus.DAYS.queue
    bound = {key for _, name, key in WANT.bindings if name == queue and key != queue}
    assert bound == {
        "telemetry.aggregated", "weighvision.session.created", "weighvision.session.finalized",
        "weighvision.session.cancelled", "weighvision.weight.recorded", "feed.intake.recorded",
        "feed.lot.received", "barn.record.created", "inference.completed",
    }  # fmt: skip


def test_readings_go_into_one_queue_and_former_bindings_are_removed() -> None:
    assert {name for _, name, key in WANT.bindings if key == "telemetry.ingested"} == {
        bus.TELEMETRY_QUEUE
    }
    former = {
        ("farmiq.telemetry.exchange", work.queue, "telemetry.ingested")
        for work in (bus.DAYS, bus.ALERTS)
    }
    assert WANT.former_bindings == former
    theirs = ("farmiq.telemetry.exchange", "their.queue", "telemetry.ingested")
    have = replace(WANT, bindings=WANT.bindings | former | {theirs})
    found = topology.differences(have, WANT)
    assert sorted((each.action, each.name.rpartition(" ")[2]) for each in found) == [
        ("extra", "their.queue"),
        ("remove", bus.ALERTS.queue),
        ("remove", bus.DAYS.queue),
    ]


def test_every_queue_is_a_quorum_queue_and_nothing_that_dies_is_dropped() -> None:
    for name, arguments in WANT.queues.items():
        assert arguments["x-queue-type"] == "quorum"
        if "x-dead-letter-routing-key" in arguments:
            assert arguments["x-dead-letter-strategy"] == "at-least-once"
            assert arguments["x-overflow"] == "reject-publish"
            assert arguments["x-dead-letter-routing-key"] in WANT.queues
        else:
            assert re.search(r"\.(dlq|unrouted)\.queue$", name)


def test_every_queue_but_the_unrouted_has_exactly_one_cap_sized_for_a_week() -> None:
    for queue in WANT.queues.keys() - {bus.UNROUTED_QUEUE}:
        caps = [each for each in WANT.policies.values() if re.search(each["pattern"], queue)]
        assert len(caps) == 1, queue
        assert caps[0]["definition"]["max-length"] > 0
    cap = WANT.policies["farmiq.cloud-telemetry-service.ingest"]["definition"]["max-length"]
    assert cap == 20 * 7 * 86400
    newer = topology.wanted(days=7, scale=2, version=4)
    assert newer.policies["farmiq.unrouted"]["definition"] == {"delivery-limit": -1}
    aside = newer.policies["farmiq.aside"]["definition"]
    assert aside["delivery-limit"] == -1
    assert aside["max-length"] == 2 * topology.MAX_DEAD_LETTERS


@pytest.mark.req("RB-03")
def test_no_login_may_create_anything_and_consumers_read_only_their_own() -> None:
    for login in topology.logins():
        rights = login.permissions
        assert rights["configure"] == "^$"
        if login.name in ("cloud", "cloud-deadletter-service"):
            continue
        readable = {name for name in WANT.queues if re.search(rights["read"], name)}
        assert readable == {work.queue for work in bus.WORKS if work.service == login.name}
        domains = {name for name in WANT.exchanges if re.search(rights["write"], name)}
        if login.name != "cloud-ingestion":
            assert domains == set(login.keys)
