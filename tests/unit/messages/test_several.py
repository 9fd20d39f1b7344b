"""Two or three damages in one message or event: every one of them is named."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.messages import bus, mqtt
from farmiq.messages.check import InvalidError
from tests.support import bad_input
from tests.support.bad_input import Draft
from tests.support.properties import drawn


def refused(read: Callable[..., Any], *given: Any) -> list[str]:
    with pytest.raises(InvalidError) as refusal:
        read(*given)
    return refusal.value.reasons


def unnamed(draft: Draft, reasons: list[str]) -> list[str]:
    """The harms that no reason tells of; each harm has a reason of its own."""
    left = list(reasons)
    missed = []
    # The most particular words first: " - at `$.payload" is at home in many reasons.
    for said in sorted(draft.said, key=len, reverse=True):
        told = next((reason for reason in left if said in reason), None)
        if told is None:
            missed.append(said)
        else:
            left.remove(told)
    return missed


seeds = st.integers(0, 2**32)


@given(seed=seeds)
@drawn(1_000)
def test_message_with_several_problems_names_all(seed: int) -> None:
    draft = bad_input.harmed_message(Random(seed))

    reasons = refused(mqtt.read, draft.topic, draft.raw())

    assert unnamed(draft, reasons) == [], (draft.said, reasons)


@given(seed=seeds)
@drawn(1_000)
def test_event_with_several_problems_names_all(seed: int) -> None:
    draft = bad_input.harmed_event(Random(seed))

    reasons = refused(bus.read, draft.raw())

    assert unnamed(draft, reasons) == [], (draft.said, reasons)


def test_every_problem_is_named_beside_others() -> None:
    rng = Random(1)
    drafts = [bad_input.harmed_message(rng) for _ in range(4_000)]
    drafts += [bad_input.harmed_event(rng) for _ in range(4_000)]

    said = {words for draft in drafts for words in draft.said}
    for words in (
        "missing required field `trace_id` - at `$`",
        "missing required field `metric_value`",
        "is not understood, expected 1 or 1.<digits>",
        "topic says tenant_id",
        "does not carry 'feed.eaten'",
        "`farm_id` must not be null",
        "is not registered",
        " - at `$.ts`",
        " - at `$.payload.rows[1].ref`",
        " - at `$.payload",
    ):
        assert words in said
    assert {len(draft.said) for draft in drafts} == {2, 3}
