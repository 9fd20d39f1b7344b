"""Gaps in seq: the same whatever the order, the repetition and the batches (C-84)."""

from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge.arrival import Arrival, accept
from farmiq.edge.ingress import rules
from farmiq.edge.ingress.rules import Gap, Seen, Span
from tests.unit.messages import examples
from tests.unit.messages.examples import AT, TOPIC

START = datetime(2025, 1, 2, tzinfo=UTC)


def arrival(seq: int | None, boot_id: str | None = "a", *, minutes: int = 0) -> Arrival:
    said = {"seq": seq} if seq is not None else {}
    named = {"boot_id": boot_id} if boot_id is not None else {}
    raw = examples.envelope(
        event_id=str(UUID(int=(seq or 0) % 2**64)),
        ts=(START + timedelta(minutes=minutes)).isoformat(),
        **said,
        **named,
    )
    return accept(TOPIC, raw, now=AT)


def joined(*parts: tuple[Span, ...]) -> tuple[Span, ...]:
    """As the database's union of ranges."""
    return rules.spans(n for part in parts for low, high in part for n in range(low, high + 1))


def of(*seqs: int, boot_id: str = "a", minutes: int = 0) -> Seen:
    at = START + timedelta(minutes=minutes)
    return Seen("t", "d", boot_id, rules.spans(seqs), at)


@given(st.sets(st.integers(-50, 50), min_size=1), st.randoms(use_true_random=False))
def test_any_order_repetition_and_split_give_the_same_gaps(seqs: set[int], rng: Random) -> None:
    sent = [*seqs, *rng.choices(sorted(seqs), k=10)]
    rng.shuffle(sent)
    cut = rng.randrange(len(sent) + 1)
    parts = [rules.seen(map(arrival, part)) for part in (sent[:cut], sent[cut:])]
    whole = joined(*(one.spans for part in parts for one in part))
    found = rules.missing([Seen("t", "d", "a", whole, START)])
    told = {n for gap in found for n in range(gap.first_missing, gap.last_missing + 1)}
    assert told == set(range(min(seqs), max(seqs) + 1)) - seqs


@given(st.sets(st.integers(0, 60), min_size=2), st.integers(0, 60))
def test_a_late_number_closes_or_shrinks_a_gap_and_opens_none(seqs: set[int], late: int) -> None:
    def numbers(found: list[Gap]) -> set[int]:
        return {n for gap in found for n in range(gap.first_missing, gap.last_missing + 1)}

    inside = min(seqs) + late % (max(seqs) - min(seqs))
    before, after = (
        numbers(rules.missing([of(*seqs)])),
        numbers(rules.missing([of(*seqs, inside)])),
    )
    assert after == before - {inside}


def test_a_huge_jump_is_one_gap() -> None:
    assert rules.missing([of(1, 10**9 + 1)]) == [Gap("a", 2, 10**9)]


def test_messages_without_seq_say_nothing() -> None:
    assert rules.seen([arrival(None), arrival(None, None)]) == []


def test_a_boot_that_goes_on_shows_what_is_missing_between() -> None:
    before, after = of(1, 2, 3), of(6, 7, boot_id="b", minutes=5)
    assert rules.missing([after, before]) == [Gap("b", 4, 5)]
    assert rules.missing([before, of(4, 5, boot_id="b", minutes=5)]) == []


def test_a_counter_that_begins_anew_opens_no_gap() -> None:
    long_ago = of(5000, 5001)
    anew = of(1, 2, boot_id="b", minutes=5)
    assert rules.missing([long_ago, anew]) == []
    assert rules.missing([long_ago, of(1, 2, 4, boot_id="b", minutes=5)]) == [Gap("b", 3, 3)]


@given(st.permutations([of(1, 2), of(4, boot_id="b", minutes=1), of(1, boot_id="c", minutes=2)]))
def test_the_order_in_which_boots_are_known_does_not_matter(boots: list[Seen]) -> None:
    assert rules.missing(boots) == [Gap("b", 3, 3)]


def test_seen_groups_numbers_by_device_and_boot_with_the_earliest_time() -> None:
    found = rules.seen([arrival(5, minutes=3), arrival(4, minutes=1), arrival(1, None)])
    assert [(one.boot_id, one.spans) for one in found] == [("", ((1, 1),)), ("a", ((4, 5),))]
    assert found[1].first_at == START + timedelta(minutes=1)


def test_a_boot_id_is_cut_to_what_an_index_can_hold() -> None:
    (found,) = rules.seen([arrival(1, "ä" * 5000)])
    assert len(found.boot_id) == 128
