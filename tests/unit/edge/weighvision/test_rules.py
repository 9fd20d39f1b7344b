"""The session machine: a set of facts has one meaning, however it came together."""

from datetime import UTC, datetime, timedelta
from itertools import combinations
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.farm.sessions import PARTS, Fact, Session, fold, overdue
from farmiq.messages import weighvision as words

START = datetime(2026, 11, 15, 6, 0, tzinfo=UTC)
IMAGE = UUID(int=900)

CREATED = Fact(UUID(int=1), words.SESSION_CREATED, START, 1, batch_id="lot-7", weight_kg=80.0)
WEIGHT = Fact(UUID(int=2), words.WEIGHT_RECORDED, START + timedelta(seconds=3), 3, weight_kg=80.5)
CAPTURED = Fact(UUID(int=3), words.IMAGE_CAPTURED, START + timedelta(seconds=2), 2, media_id=IMAGE)
FINALIZED = Fact(
    UUID(int=4),
    words.SESSION_FINALIZED,
    START + timedelta(seconds=5),
    5,
    image_count=1,
    weight_kg=81.0,
)
CANCELLED = Fact(
    UUID(int=5), words.SESSION_CANCELLED, START + timedelta(seconds=9), 6, reason="no stable weight"
)
FULL = (CREATED, WEIGHT, CAPTURED, FINALIZED)
NAMES = dict(zip(FULL, ("created", "weight", "image", "finalized"), strict=True))


def subsets() -> list[tuple[Fact, ...]]:
    return [chosen for size in range(1, 5) for chosen in combinations(FULL, size)]


@pytest.mark.req("SC-01")
@pytest.mark.parametrize(
    "chosen", subsets(), ids=lambda chosen: "+".join(NAMES[fact] for fact in chosen)
)
def test_only_the_full_set_is_valid(chosen: tuple[Fact, ...]) -> None:
    """15 of the 16 subsets; the empty one is no session at all (below)."""
    session = fold(chosen, stored=[IMAGE])
    present = {NAMES[fact] for fact in chosen}
    assert session.valid is (len(chosen) == 4)
    assert session.missing == tuple(part for part in PARTS if part not in present)
    assert session.status == ("finalized" if FINALIZED in chosen else "created")


@pytest.mark.req("SC-01")
def test_fold_of_no_facts_raises() -> None:
    with pytest.raises(IndexError):
        fold([])


@pytest.mark.req("SC-01")
@pytest.mark.parametrize("chosen", subsets())
def test_image_announced_but_not_uploaded_is_missing(
    chosen: tuple[Fact, ...],
) -> None:
    session = fold(chosen)
    assert not session.valid
    assert "image" in session.missing


@pytest.mark.req("SC-01")
def test_image_uploaded_but_not_announced_is_missing() -> None:
    session = fold([CREATED, WEIGHT, FINALIZED], stored=[IMAGE])
    assert session.missing == ("image",)
    assert _overdue(session) == ("image (uploaded, not announced)",)


def facts() -> st.SearchStrategy[Fact]:
    """Events of one session with few times and numbers, so that they meet."""
    moments = st.integers(0, 3).map(lambda seconds: START + timedelta(seconds=seconds))
    numbers = st.none() | st.integers(0, 3)
    weights = st.none() | st.sampled_from([79.5, 80.0, 120.25])
    unique = st.uuids()
    return st.one_of(
        st.builds(
            Fact, unique, st.just(words.SESSION_CREATED), moments, numbers,
            batch_id=st.sampled_from([None, "a", "b"]), weight_kg=weights,
        ),
        st.builds(
            Fact, unique, st.just(words.WEIGHT_RECORDED), moments, numbers,
            weight_kg=st.floats(1, 200),
        ),
        st.builds(
            Fact, unique, st.just(words.IMAGE_CAPTURED), moments, numbers,
            media_id=st.integers(0, 3).map(lambda number: UUID(int=number)),
        ),
        st.builds(
            Fact, unique, st.just(words.SESSION_FINALIZED), moments, numbers,
            image_count=st.integers(0, 3), weight_kg=weights,
        ),
        st.builds(
            Fact, unique, st.just(words.SESSION_CANCELLED), moments, numbers,
            reason=st.sampled_from([None, "left the scale"]),
        ),
    )  # fmt: skip


@pytest.mark.req("SC-05", "WV-12")
@given(st.data(), st.lists(facts(), min_size=1, max_size=8))
def test_fold_in_any_order_with_repeats_gives_the_same_session(
    data: st.DataObject, told: list[Fact]
) -> None:
    repeats = data.draw(st.lists(st.sampled_from(told), max_size=8))
    mixed = data.draw(st.permutations(told + repeats))
    stored = data.draw(st.sets(st.integers(0, 3).map(lambda number: UUID(int=number))))
    assert fold(mixed, stored=stored) == fold(told, stored=stored)


@pytest.mark.req("SC-05")
@given(st.lists(facts(), min_size=1, max_size=8), facts())
def test_ended_session_stays_ended_when_a_late_fact_arrives(told: list[Fact], late: Fact) -> None:
    """C-28: a late created undoes nothing; a finalized counts whatever else there is."""
    before, after = fold(told), fold([*told, late])
    if before.status == "finalized":
        assert after.status == "finalized"
    if before.status == "cancelled":
        assert after.status in ("cancelled", "finalized")
        assert (after.status == "finalized") is (late.event_type == words.SESSION_FINALIZED)
    assert before.parts <= after.parts


def test_finalized_wins_over_cancelled_in_either_order() -> None:
    for told in ([FINALIZED, CANCELLED], [CANCELLED, FINALIZED]):
        session = fold(told)
        assert (session.status, session.end_at) == ("finalized", FINALIZED.occurred_at)
        assert session.cancel_reason is None


def test_earlier_of_two_finalized_counts() -> None:
    again = Fact(
        UUID(int=40), words.SESSION_FINALIZED, START + timedelta(seconds=6), 9, image_count=7
    )
    for told in ([FINALIZED, again], [again, FINALIZED]):
        assert fold(told).image_count == 1


def test_facts_without_seq_are_ordered_by_the_devices_clock() -> None:
    first = Fact(UUID(int=8), words.WEIGHT_RECORDED, START, weight_kg=70.0)
    last = Fact(UUID(int=7), words.WEIGHT_RECORDED, START + timedelta(seconds=1), weight_kg=71.0)
    end = Fact(UUID(int=9), words.SESSION_FINALIZED, START, image_count=0)
    session = fold([last, end, first])
    assert (session.initial_weight_kg, session.final_weight_kg) == (70.0, 71.0)


def test_facts_of_one_moment_are_ordered_by_seq() -> None:
    """C-29: by (ts, seq)."""
    second = Fact(UUID(int=7), words.WEIGHT_RECORDED, START, 12, weight_kg=71.0)
    first = Fact(UUID(int=8), words.WEIGHT_RECORDED, START, 11, weight_kg=70.0)
    end = Fact(UUID(int=9), words.SESSION_FINALIZED, START, 13)
    session = fold([second, end, first])
    assert (session.initial_weight_kg, session.final_weight_kg) == (70.0, 71.0)


def test_weight_named_by_the_device_counts_before_its_weighings() -> None:
    session = fold(FULL)
    assert (session.initial_weight_kg, session.final_weight_kg) == (80.0, 81.0)
    assert fold([CREATED, WEIGHT]).final_weight_kg is None


PATIENCE_S = 600.0


def _overdue(
    session: Session, waited_s: float = 601, quiet_s: float | None = None
) -> tuple[str, ...]:
    quiet = waited_s if quiet_s is None else quiet_s
    return overdue(session, waited_s=waited_s, quiet_s=quiet, patience_s=PATIENCE_S)


@pytest.mark.req("SC-03")
@pytest.mark.parametrize(("waited_s", "expected"), [(599, ()), (600, ()), (601, ("image",))])
def test_image_is_overdue_after_ten_minutes(waited_s: float, expected: tuple[str, ...]) -> None:
    assert _overdue(fold([CREATED, WEIGHT, FINALIZED]), waited_s) == expected


@pytest.mark.req("SC-03")
def test_overdue_names_every_missing_part() -> None:
    assert _overdue(fold([WEIGHT])) == ("created", "image", "finalized")
    assert _overdue(fold([CAPTURED], stored=[IMAGE])) == ("created", "weight", "finalized")
    assert _overdue(fold(FULL)) == ("image (announced, not uploaded)",)


@pytest.mark.req("WV-13")
def test_overdue_names_fewer_images_than_counted() -> None:
    two = Fact(UUID(int=4), words.SESSION_FINALIZED, START, image_count=2)
    session = fold([CREATED, WEIGHT, CAPTURED, two], stored=[IMAGE])
    assert session.valid
    assert not session.is_settled
    assert _overdue(session) == ("images: 1 of 2",)


def test_session_is_not_overdue_while_its_station_sends() -> None:
    session = fold([CREATED, WEIGHT, CAPTURED], stored=[IMAGE])
    assert _overdue(session, waited_s=3000, quiet_s=10) == ()
    assert _overdue(session, waited_s=3000, quiet_s=601) == ("finalized",)


def test_cancelled_or_complete_session_is_never_overdue() -> None:
    assert _overdue(fold([CANCELLED])) == ()
    assert _overdue(fold(FULL, stored=[IMAGE])) == ()
