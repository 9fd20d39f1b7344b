"""Thousands of bad messages: each is rejected with reasons, the good ones are not."""

import itertools
import time
from collections import Counter
from random import Random

import pytest

from farmiq.edge.arrival import accept
from farmiq.edge.ingress.receipts import sender_and_id
from farmiq.messages.check import InvalidError
from tests.support import bad_input
from tests.support.bad_input import Sent
from tests.unit.messages.examples import AT


def verdict(sent: Sent) -> list[str]:
    """Why it was refused; empty if it was accepted. Anything else that is raised is a failure."""
    try:
        accept(sent.topic, sent.raw, now=AT)
    except InvalidError as invalid:
        return invalid.reasons
    return []


def test_a_message_that_is_wrong_everywhere_is_answered_soon_and_shortly() -> None:
    rng = Random(7)
    for _ in range(12):
        sent = bad_input.wrong_in_many_places(rng, "many", places=9_000)
        began = time.process_time()
        reasons = verdict(sent)
        assert time.process_time() - began < 2.0
        assert len(reasons) <= 1001
        assert max(len(reason) for reason in reasons) <= 500


def judge(sent: Sent) -> None:
    reasons = verdict(sent)
    case = (sent.name, sent.topic[:200], sent.raw[:500], reasons[:5])
    assert (not reasons) is sent.good, case
    assert all(reasons), case
    assert sent.said in "; ".join(reasons), case
    sender_and_id(sent.topic, sent.raw)


@pytest.mark.req("WV-08", "WV-09")
def test_six_thousand_bad_messages_are_refused_with_reasons() -> None:
    for sent in bad_input.messages(seed=1, count=6_000):
        judge(sent)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_hundred_thousand_bad_messages_are_refused_with_reasons() -> None:
    for sent in bad_input.messages(seed=2, count=100_000):
        judge(sent)


def test_the_same_seed_gives_the_same_messages_and_another_gives_others() -> None:
    once, again, other = (list(bad_input.messages(seed, 500)) for seed in (3, 3, 4))

    assert once == again
    assert once != other


def test_every_damage_comes_up_equally_often() -> None:
    names = Counter(
        sent.name for sent in bad_input.messages(seed=5, count=10 * len(bad_input.MESSAGE_DAMAGES))
    )

    assert names.keys() == bad_input.MESSAGE_DAMAGES.keys()
    assert set(names.values()) == {10}


def test_messages_are_not_all_the_same() -> None:
    sent = list(bad_input.messages(seed=6, count=2_500))

    assert len({one.raw for one in sent}) > 1_500
    assert len({one.topic for one in sent}) > 30
    for name, group in itertools.groupby(sorted(sent, key=lambda o: o.name), lambda o: o.name):
        assert len({(one.topic, one.raw) for one in group}) > 20, name
