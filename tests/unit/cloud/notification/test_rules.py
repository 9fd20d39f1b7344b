"""Who is told of an alert, and when."""

from datetime import UTC, datetime, time, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from farmiq.cloud.notification.rules import Contact, Earlier, Plan, QuietHours, Step, plan

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ALL = frozenset({"info", "warning", "critical", "security"})


def contact(contact_id: str, **changes: Any) -> Contact:
    return Contact(
        **{
            "contact_id": contact_id,
            "severities": ALL,
            "addresses": {"mail": f"{contact_id}@example.com"},
            **changes,
        }
    )


def step(name: str, **changes: Any) -> Step:
    return Step(
        **{
            "step": name,
            "created_at": NOW,
            "severity": "warning",
            "farm_id": "north",
            "state": "active",
            **changes,
        }
    )


def told(contact_id: str, **changes: Any) -> Earlier:
    return Earlier(
        **{
            "message_id": UUID(int=7),
            "contact_id": contact_id,
            "channel_id": "mail",
            "step": "opened",
            "severity": "warning",
            "state": "sent",
            "send_after": NOW - MINUTE,
            **changes,
        }
    )


def planned(
    given: Step, *contacts: Contact, before: tuple[Earlier, ...] = (), now: datetime = NOW
) -> Plan:
    return plan(given, contacts, before, channels={"mail", "hook"}, now=now)


def names(made: Plan) -> list[str]:
    return [message.contact_id for message in made.messages]


ANN, BOB = contact("ann"), contact("bob", level=2)


def test_opened_goes_to_level_one_only() -> None:
    assert names(planned(step("opened"), ANN, BOB)) == ["ann"]


def test_opened_goes_to_level_two_if_nobody_of_level_one_fits() -> None:
    away = contact("ann", severities=frozenset({"critical"}))
    assert names(planned(step("opened"), away, BOB)) == ["bob"]
    unreachable = contact("ann", addresses={"gone": "x"})
    assert names(planned(step("opened"), unreachable, BOB)) == ["bob"]


def test_worsened_goes_to_who_was_told_and_to_who_wants_that_severity() -> None:
    eve = contact("eve", severities=frozenset({"critical"}))
    worse = step("worsened", severity="critical")
    assert names(planned(worse, ANN, eve, BOB, before=(told("ann"),))) == ["ann", "eve"]
    before = (told("ann"), told("bob", step="escalated"))
    assert names(planned(worse, ANN, BOB, before=before)) == ["ann", "bob"]
    assert names(planned(worse, ANN, before=(told("ann", severity="critical"),))) == []


def test_worsened_replaces_what_quiet_hours_delay() -> None:
    delayed = told("ann", state="pending", send_after=NOW + MINUTE)
    made = planned(step("worsened", severity="critical"), ANN, before=(delayed,))
    assert (names(made), made.dropped) == (["ann"], (delayed.message_id,))


def test_worsened_during_maintenance_is_sent_when_that_and_quiet_hours_are_over() -> None:
    held_until = NOW + 60 * MINUTE
    worse = step("worsened", held_until=held_until)
    resting = contact("eve", quiet_hours=QuietHours(time(12, 30), time(14), ZoneInfo("UTC")))
    assert [item.send_after for item in planned(worse, ANN, resting).messages] == [
        held_until,
        NOW + 120 * MINUTE,
    ]


@pytest.mark.parametrize(
    ("farms", "farm_id", "is_told"),
    [
        (None, "north", True),
        (frozenset({"north"}), "north", True),
        (frozenset({"south"}), "north", False),
        (frozenset({"south"}), None, True),
    ],
)
def test_contact_is_told_of_their_farms_and_of_what_concerns_no_single_farm(
    farms: frozenset[str] | None, farm_id: str | None, *, is_told: bool
) -> None:
    made = planned(step("opened", farm_id=farm_id), contact("ann", farms=farms))
    assert bool(made.messages) is is_told


def test_contact_is_told_over_each_channel_that_is_in_use() -> None:
    both = contact("ann", addresses={"mail": "a@example.com", "hook": "", "gone": "x"})
    made = planned(step("opened"), both)
    assert [message.channel_id for message in made.messages] == ["hook", "mail"]


def test_escalated_goes_to_level_two_who_were_not_told() -> None:
    assert names(planned(step("escalated"), ANN, BOB)) == ["bob"]
    assert names(planned(step("escalated"), ANN, BOB, before=(told("bob"),))) == []


@pytest.mark.parametrize("state", ["acknowledged", "resolved", "withdrawn"])
def test_escalated_tells_nobody_once_somebody_looks_after_it(state: str) -> None:
    assert names(planned(step("escalated", state=state), ANN, BOB)) == []


def test_acknowledged_goes_to_all_who_were_told_but_for_who_acknowledged() -> None:
    ann = contact("ann", label="Ann (ann)")
    before = (told("ann"), told("bob", step="escalated"))
    given = step("acknowledged", state="acknowledged", acknowledged_by="Ann (ann)")
    assert names(planned(given, ann, BOB, contact("eve"), before=before)) == ["bob"]
    signed_in = step("acknowledged", state="acknowledged", acknowledged_by="bob@example.com")
    assert names(planned(signed_in, ann, BOB, before=before)) == ["ann"]


def test_resolved_goes_only_to_those_who_were_told() -> None:
    before = (
        told("ann"),
        told("bob", state="failed"),
        told("cid", state="dropped"),
        told("dan", state="pending"),
    )
    people = [ANN, BOB, contact("cid"), contact("dan"), contact("eve")]
    assert names(planned(step("resolved", state="resolved"), *people, before=before)) == [
        "ann",
        "dan",
    ]


def test_resolved_goes_only_over_the_channels_that_told_of_it() -> None:
    both = contact("ann", addresses={"mail": "a@example.com", "hook": ""})
    made = planned(step("resolved", state="resolved"), both, before=(told("ann"),))
    assert [message.channel_id for message in made.messages] == ["mail"]


def test_message_of_quiet_hours_is_dropped_if_it_is_over_before_they_end() -> None:
    waiting = told("ann", state="pending", send_after=NOW + MINUTE)
    made = planned(step("resolved", state="resolved"), ANN, before=(waiting,))
    assert made == Plan((), (waiting.message_id,))
    kept = planned(step("acknowledged", state="acknowledged"), ANN, before=(waiting,))
    assert kept == Plan()


def test_opened_step_that_waited_long_tells_nobody_if_it_is_over() -> None:
    late = NOW + 16 * MINUTE
    assert names(planned(step("opened", state="resolved"), ANN, now=late)) == []
    assert names(planned(step("opened", state="active"), ANN, now=late)) == ["ann"]
    assert names(planned(step("opened", state="resolved"), ANN, now=NOW + MINUTE)) == ["ann"]


# --- quiet hours

BERLIN, BANGKOK = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Bangkok")
NIGHT = QuietHours(time(22), time(6), BANGKOK)


def at(text: str, zone: ZoneInfo = BANGKOK, *, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).astimezone(UTC)


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-11-18 21:59", None),
        ("2026-11-18 22:00", "2026-11-19 06:00"),
        ("2026-11-18 23:59", "2026-11-19 06:00"),
        ("2026-11-19 00:00", "2026-11-19 06:00"),
        ("2026-11-19 05:59", "2026-11-19 06:00"),
        ("2026-11-19 06:00", None),
    ],
)
def test_quiet_hours_over_midnight(now: str, until: str | None) -> None:
    assert NIGHT.until(at(now)) == (None if until is None else at(until))


def test_quiet_hours_within_a_day() -> None:
    noon = QuietHours(time(12), time(14), BANGKOK)
    assert noon.until(at("2026-11-18 13:00")) == at("2026-11-18 14:00")
    assert noon.until(at("2026-11-18 11:59")) is None
    assert noon.until(at("2026-11-18 14:00")) is None


def test_quiet_hours_when_clocks_go_forward_end_at_the_local_time() -> None:
    night = QuietHours(time(22), time(6), BERLIN)
    end = night.until(at("2026-03-28 23:00", BERLIN))
    assert end == at("2026-03-29 06:00", BERLIN) == datetime(2026, 3, 29, 4, tzinfo=UTC)
    # 02:30 does not exist on that day: it counts as an hour later.
    short = QuietHours(time(22), time(2, 30), BERLIN)
    assert short.until(at("2026-03-29 01:59", BERLIN)) == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


def test_quiet_hours_when_clocks_go_back_end_the_first_time() -> None:
    night = QuietHours(time(22), time(6), BERLIN)
    assert night.until(at("2026-10-24 23:00", BERLIN)) == datetime(2026, 10, 25, 5, tzinfo=UTC)
    short = QuietHours(time(22), time(2, 30), BERLIN)
    assert short.until(at("2026-10-25 02:10", BERLIN)) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert short.until(at("2026-10-25 02:10", BERLIN, fold=1)) is None


@pytest.mark.parametrize(
    ("severity", "delayed"),
    [("info", True), ("warning", True), ("critical", False), ("security", False)],
)
def test_quiet_hours_delay_by_severity(severity: str, *, delayed: bool) -> None:
    night = at("2026-11-19 01:00")
    sleeper = contact("ann", quiet_hours=NIGHT)
    (message,) = planned(step("opened", severity=severity), sleeper, now=night).messages
    assert message.send_after == (at("2026-11-19 06:00") if delayed else night)


def test_person_may_let_other_severities_pass_or_none() -> None:
    night = at("2026-11-19 01:00")
    nobody = QuietHours(time(22), time(6), BANGKOK, frozenset())
    (message,) = planned(
        step("opened", severity="critical"), contact("ann", quiet_hours=nobody), now=night
    ).messages
    assert message.send_after == at("2026-11-19 06:00")
