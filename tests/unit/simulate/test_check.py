"""The account: what was lost, stored twice or invented is found, each in its list."""

import random

from hypothesis import given
from hypothesis import strategies as st

from farmiq.simulate import check

SENT = [f"event-{number:03}" for number in range(200)]


def test_a_clean_account() -> None:
    shuffled = random.Random(1).sample(SENT, len(SENT))

    findings = check.compare(SENT, shuffled)

    assert findings.clean
    assert (findings.sent, findings.stored) == (200, 200)


def test_planted_violations_are_all_found() -> None:
    stored = [one for one in SENT if one not in {"event-003", "event-150"}]
    stored += ["event-007", "event-007", "event-199", "ghost", "ghost"]

    findings = check.compare(SENT, stored)

    assert findings.lost == ("event-003", "event-150")
    assert findings.twice == ("event-007", "event-199", "ghost")
    assert findings.invented == ("ghost",)
    assert not findings.clean


def test_what_was_never_confirmed_may_be_missing_but_never_twice() -> None:
    unconfirmed = {"event-000", "event-001"}
    stored = [*SENT[1:], "event-001"]

    findings = check.compare(SENT, stored, unconfirmed=unconfirmed)

    assert findings.lost == ()
    assert findings.twice == ("event-001",)


def test_nothing_sent_and_nothing_stored_is_clean() -> None:
    assert check.compare([], []).clean


names = st.sampled_from("abcdefgh")


@given(sent=st.sets(names), stored=st.lists(names), unconfirmed=st.sets(names))
def test_findings_are_exactly_the_differences(
    sent: set[str], stored: list[str], unconfirmed: set[str]
) -> None:
    findings = check.compare(sent, stored, unconfirmed=unconfirmed)

    assert set(findings.lost) == {one for one in sent if one not in stored} - unconfirmed
    assert set(findings.twice) == {one for one in stored if stored.count(one) > 1}
    assert set(findings.invented) == {one for one in stored if one not in sent}
    assert findings.stored == len(stored)
