"""Dead letters: what their headers and bodies tell, whatever those hold."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from farmiq.cloud import bus
from farmiq.cloud.deadletter import rules
from farmiq.cloud.deadletter.rules import BusFilter, Group, Remaining
from farmiq.plumbing.bus import delivery as deliveries
from farmiq.plumbing.bus.delivery import Delivery, Properties

PILE = bus.FEED.dead_letters


def delivered(body: bytes = b"{}", /, **headers: Any) -> Delivery:
    return Delivery(body, 1, "e", "k", False, Properties(headers=headers or None), 0.0)


def test_our_own_account_is_read() -> None:
    found = rules.read(
        PILE,
        delivered(
            b'{"event_id": "1", "event_type": "feed.x", "tenant_id": "t"}',
            **{
                deliveries.QUEUE: bus.FEED.queue,
                deliveries.REASON: "tenant 'x' is not registered here",
                deliveries.ATTEMPTS: 5,
            },
        ),
    )
    assert (found.origin, found.attempts) == (bus.FEED.queue, 5)
    assert (found.event_id, found.event_type, found.tenant_id) == ("1", "feed.x", "t")
    assert found.kind == "tenant … is not registered here"


def test_what_the_broker_moved_itself_names_the_queue_it_died_in_first() -> None:
    deaths = [
        {"queue": "later", "reason": "expired"},
        {"queue": bus.FEED.queue, "reason": "delivery_limit"},
    ]
    found = rules.read(PILE, delivered(**{"x-death": deaths}))
    assert found.origin == bus.FEED.queue
    assert found.reason == "the broker gave up on it: delivery_limit"


def test_what_no_queue_wanted_has_no_origin() -> None:
    found = rules.read(bus.UNROUTED_QUEUE, delivered())
    assert (found.origin, found.reason) == (None, rules.UNWANTED)


@given(
    st.binary(max_size=200),
    st.dictionaries(
        st.sampled_from([*deliveries.OURS, "x-death"]),
        st.none() | st.integers() | st.text(max_size=20) | st.lists(st.text(), max_size=2),
    ),
)
def test_any_body_and_any_headers_make_a_letter(body: bytes, headers: dict[str, object]) -> None:
    found = rules.read(PILE, delivered(body, **headers))
    assert found.size_bytes == len(body)
    assert found.reason
    assert found.attempts >= 0
    assert BusFilter().matches(found)


def test_a_wish_means_what_fits_all_that_it_says() -> None:
    found = rules.read(
        PILE, delivered(b'{"event_id": "1", "tenant_id": "t"}', **{deliveries.REASON: "no 7"})
    )
    for fits in (
        BusFilter(queue=PILE),
        BusFilter(reason="no"),
        BusFilter(reason="no …"),
        BusFilter(tenant_id="t"),
        BusFilter(event_ids=frozenset({"1", "2"})),
    ):
        assert fits.matches(found)
    for other in (
        BusFilter(queue=bus.UNROUTED_QUEUE),
        BusFilter(reason="yes"),
        BusFilter(tenant_id="u"),
        BusFilter(event_type="feed.x"),
        BusFilter(event_ids=frozenset({"2"})),
    ):
        assert not other.matches(found)


def test_a_letter_that_starts_afresh_carries_nothing_of_its_failures() -> None:
    headers = {**dict.fromkeys(deliveries.OURS, "x"), "x-death": [], "x-first-death-queue": "q"}
    fresh = deliveries.afresh(delivered(**headers, trace_id="t"))
    assert fresh.headers == {"trace_id": "t"}


def test_a_group_knows_its_span() -> None:
    group = Group("p", "k")
    for at in ("2026-01-02", "2026-01-01", None):
        headers = {deliveries.FAILED_AT: at} if at else {}
        group.add(rules.read(PILE, delivered(b'{"event_type": "a.b"}', **headers)))
    assert (group.count, group.oldest, group.newest) == (3, "2026-01-01", "2026-01-02")
    assert group.event_types == {"a.b"}


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_letter_goes_back_without_a_person_only_if_its_cause_is_over() -> None:
    letter = replace(
        rules.read(PILE, delivered(b'{"tenant_id": "t"}')), reason=bus.unknown_tenant("t")
    )
    assert rules.redrive_at(letter, {"other"}) is None
    assert rules.redrive_at(letter, {"t"}) is not None
    # What another tenant's letter says, or a sender chose to say, is no such reason.
    for reason in (bus.unknown_tenant("other"), f"x {bus.unknown_tenant('t')}", "no good"):
        assert rules.redrive_at(replace(letter, reason=reason), {"t", "other"}) is None
    assert rules.redrive_at(replace(letter, reason=rules.CONSUMER_ENDED), ()) is not None


def test_letter_that_died_again_waits_and_is_left_alone_after_its_last_time() -> None:
    sent = delivered(**{"x-death": [{"queue": bus.FEED.queue, "reason": "delivery_limit"}]})
    for redriven, after_s in enumerate(rules.REDRIVE_AFTER_S, 1):
        properties = deliveries.afresh(sent, redriven_at=NOW)
        deaths = [{"queue": bus.FEED.queue, "reason": "delivery_limit"}]
        sent = delivered(**{**(properties.headers or {}), "x-death": deaths})
        letter = rules.read(PILE, sent)
        assert letter.redriven == redriven
        if redriven < len(rules.REDRIVE_AFTER_S):
            later_s = rules.REDRIVE_AFTER_S[redriven]
            assert rules.redrive_at(letter, ()) == NOW + timedelta(seconds=later_s)
            assert later_s > after_s
    assert rules.redrive_at(letter, ()) is None
    # A person's redrive starts anew.
    assert not (deliveries.afresh(sent).headers or {}).keys() & set(deliveries.OURS)


@given(st.text(max_size=40), st.integers())
def test_any_redriven_headers_are_read(text: str, count: int) -> None:
    headers = {deliveries.REDRIVEN: count, deliveries.REDRIVEN_AT: text}
    letter = replace(rules.read(PILE, delivered(**headers)), reason=rules.CONSUMER_ENDED)
    rules.redrive_at(letter, ())


def test_message_has_the_count_the_most_frequent_reasons_and_the_command() -> None:
    remaining = Remaining()
    for number in range(60):
        for _ in range(60 - number):
            remaining.add(f"reason {number}")
    assert len(remaining.kinds) == rules.MAX_REASONS + 1
    assert sum(remaining.kinds.values()) == remaining.count == 1830
    message = remaining.message(PILE, tenant_id="t-001")
    assert message.startswith("1830 events wait in the dead letters of cloud-feed-service: ")
    assert "reason 0 (60); reason 1 (59); " in message
    assert message.endswith(
        f"; …. Repair the cause, then: farmiq dlq redrive --queue {PILE} --tenant t-001"
    )


def test_kind_says_a_reason_once() -> None:
    reason = "missing field `a` - at `$`; missing field `b` - at `$`; no zone"
    found = rules.read(PILE, delivered(b"{}", **{deliveries.REASON: reason}))
    assert found.kind == "missing field … - at …; no zone"
