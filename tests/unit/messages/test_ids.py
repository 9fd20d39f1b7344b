"""Ids computed from others: always the same, always version 7, in the order of time."""

from datetime import UTC, datetime, timedelta
from uuid import RFC_4122

from hypothesis import given
from hypothesis import strategies as st

from farmiq.messages import ids
from tests.unit.messages.examples import AT

moments = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    max_value=datetime(9999, 12, 31),  # noqa: DTZ001
    timezones=st.just(UTC),
)
parts = st.lists(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x1f")),
    min_size=1,
    max_size=4,
)


@given(at=moments, names=parts)
def test_derived_id_of_the_same_parts_is_the_same(at: datetime, names: list[str]) -> None:
    made = ids.derived(at, *names)

    assert made == ids.derived(at, *names)
    assert (made.version, made.variant) == (7, RFC_4122)


@given(at=moments, names=parts)
def test_id_says_its_millisecond(at: datetime, names: list[str]) -> None:
    millis = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)

    assert abs((ids.derived(at, *names).int >> 80) - millis) <= 1


@given(earlier=moments, later=moments, names=parts, others=parts)
def test_ids_sort_by_time(
    earlier: datetime, later: datetime, names: list[str], others: list[str]
) -> None:
    if later - earlier >= timedelta(milliseconds=2):
        assert ids.derived(earlier, *names) < ids.derived(later, *others)


@given(names=parts, others=parts)
def test_derived_id_of_other_parts_is_another(names: list[str], others: list[str]) -> None:
    assert (ids.derived(AT, *names) == ids.derived(AT, *others)) == (names == others)


def test_derived_id_keeps_parts_apart() -> None:
    assert ids.derived(AT, "ab", "c") != ids.derived(AT, "a", "bc")
    assert ids.derived(AT, "ab") != ids.derived(AT, "a", "b")
