"""What the pages about alerts say: pure views, and their templates with hostile text."""

from datetime import UTC, datetime, time, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec import UNSET

from farmiq.cloud.console.alerts import queries, rule_form, rule_view, view
from farmiq.cloud.console.alerts.view import Episode
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.notifications import form as notification_form
from farmiq.cloud.console.notifications import view as notifications
from farmiq.cloud.console.notifications.form import WrongError
from farmiq.farm.alerts.defaults import DEFAULTS
from farmiq.farm.alerts.rules import sentence
from farmiq.ui import look, words

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def company(role: str = "operator") -> Company:
    return Company(
        company_id=UUID(int=1), name="Green Valley", tenant_id="t", timezone="Asia/Bangkok",
        email="olga@example.com", role=role,
    )  # fmt: skip


def episode(number: int = 1, **changes: Any) -> Episode:
    fields: dict[str, Any] = {
        **dict.fromkeys(Episode.__dataclass_fields__), "episode_id": UUID(int=number),
        "source": "rule", "rule_id": "hot", "severity": "critical",
        "signal": "telemetry.temperature", "is_absence": False, "subject": "f/1/air-01",
        "message": "temperature of air-01 above 38 °C", "state": "active", "farm_id": "f",
        "farm": "Hill farm", "barn_id": "1", "device_id": "air-01", "opened_at": NOW - 12 * MINUTE,
        "last_at": NOW, "raised_at": NOW - 11 * MINUTE, "first_value": 38.4, "worst_value": 39.6,
        "last_value": 39.1, "notified": [], **changes,
    }  # fmt: skip
    return Episode(**fields)


def rows(*episodes: Episode, state: str = "active", **counts: int) -> view.ListView:
    known = {"active": 0, "acknowledged": 0, "resolved": 0} | counts
    return view.list_view(company(), episodes, known, state=state, page=1, now=NOW)


def test_list_shows_what_is_held_back_under_what_holds_it() -> None:
    parent = episode(1)
    child = episode(2, held_by=f"episode:{UUID(int=1)}")
    stranger = episode(3, held_by=f"episode:{UUID(int=9)}")
    shown = rows(parent, child, stranger, active=3)
    assert [
        (row.episode.episode_id.int, [c.episode.episode_id.int for c in row.children])
        for row in shown.rows
    ] == [(1, [2]), (3, [])]
    assert shown.rows[1].silence == "Held back by another problem"
    assert (shown.title, shown.sentence) == ("(3) Alerts", "3 problems wait for somebody")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (39.1, "39.1", "°C", "last value", NOW)),
        # Nobody knows when it came: the alert says for how long nothing did.
        ({"is_absence": True, "last_value": 12.0}, (12.0, "12", "°C", "last value", None)),
        ({"state": "resolved", "resolved_at": NOW}, (39.6, "39.6", "°C", "worst", None)),
        (
            {"state": "resolved", "resolved_at": NOW, "baseline": "standard"},
            (39.6, "39.6", "°C", "farthest off", None),
        ),
        ({"signal": "edge.oldest_s", "last_value": 7200.0}, (7200.0, "2 h", "", "last value", NOW)),
        ({"signal": "edge.heard"}, None),
        ({"signal": None}, None),
    ],
)
def test_value_is_the_one_that_matters(changes: dict[str, Any], expected: Any) -> None:
    found = view.quantity(episode(**changes))
    assert (found and (found.value, found.text, found.unit, found.label, found.at)) == expected


@pytest.mark.parametrize(
    ("message", "changes", "expected"),
    [
        ("temperature in barn 3 above 38 °C: 38.4 °C", {}, "Temperature in barn 3 above 38 °C"),
        (
            "temperature in barn 3 above 38 °C: 38.4 °C at 2026-11-18 10:55Z",
            {},
            "Temperature in barn 3 above 38 °C",
        ),
        (
            "temperature in barn 3 above 38 °C: 38.4 °C at 2026-11-18 10:55Z",
            {"last_value": None},
            "Temperature in barn 3 above 38 °C: 38.4 °C at 18 Nov 2026 17:55",
        ),
        (
            "age of the oldest waiting event above 60 minutes: 2 hours",
            {"signal": "edge.oldest_s"},
            "Age of the oldest waiting event above 60 minutes",
        ),
        ("no heat reading of d in barn 1 for 10 minutes", {"is_absence": True},
         "No heat reading of d in barn 1 for 10 minutes"),
    ],
)  # fmt: skip
def test_sentence_does_not_show_the_value_of_the_begin_beside_the_last_one(
    message: str, changes: dict[str, Any], expected: str
) -> None:
    shown = rows(episode(message=message, **changes), active=1)
    assert shown.rows[0].message == expected


def test_worst_of_a_rule_against_a_standard_is_not_called_the_worst_value() -> None:
    detail = view.detail_view(
        company(), episode(baseline="standard", worst_value=1.56, last_value=5.02), rule=None,
        parent=None, held=[], steps=[], messages=[], times_before=0, now=NOW + MINUTE,
    )  # fmt: skip
    assert [(found.label, found.value, found.at) for _, found in detail.values] == [
        ("first value", 38.4, None), ("farthest off", 1.56, None), ("last value", 5.02, NOW),
    ]  # fmt: skip


def test_what_its_values_did_not_end_is_not_called_resolved() -> None:
    for reason, expected in ((None, "Resolved"), ("rule", "Ended")):
        over = episode(state="resolved", resolved_at=NOW, ended_reason=reason)
        detail = view.detail_view(
            company(), over, rule=None, parent=None, held=[], steps=[], messages=[],
            times_before=0, now=NOW,
        )  # fmt: skip
        assert detail.state[1] == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"notified": [{"name": "Ann", "state": "sent", "at": NOW.isoformat()}]}, ""),
        ({"held_by": "window:7", "window_reason": "washing"}, "Held back by maintenance: washing"),
        ({"held_by": "edge:e-1"}, "Held back until edge e-1 has sent everything"),
        ({"paged_at": NOW}, "Nobody was told: no contact fits"),
        (
            {
                "paged_at": NOW,
                "notified": [{"name": "A", "state": "failed", "at": NOW.isoformat()}],
            },
            "No message arrived: nobody knows of it",
        ),
        ({}, "Nobody was called: it was old when it arrived, or it has just begun"),
    ],
)
def test_page_says_why_nobody_was_told(changes: dict[str, Any], expected: str) -> None:
    assert view.silence(episode(**changes)) == expected


def test_timeline_is_in_the_order_of_events_and_names_the_end() -> None:
    over = episode(
        state="resolved", resolved_at=NOW, ended_reason="person", ended_by="olga", ended_note="ok",
        acknowledged_at=NOW - 2 * MINUTE, acknowledged_by="olga", note="on my way",
        raised_at=NOW - 5 * MINUTE,
    )  # fmt: skip
    steps = [{"step": "opened", "created_at": NOW - 4 * MINUTE}]
    messages = [
        {
            "message_id": 7, "step": "opened", "state": "failed", "created_at": NOW - 4 * MINUTE,
            "ended_at": NOW - 3 * MINUTE, "contact": "Ann", "channel": "mail", "error": "550",
        }
    ]  # fmt: skip
    lines = view.timeline(over, steps, messages, now=NOW, zone=words.zone("UTC"))
    assert [(line.what, line.who, line.detail) for line in lines] == [
        ("It began", "", ""),
        ("It was found here", "", ""),
        ("People were called", "", ""),
        ("Message about the beginning: not delivered", "Ann, mail", "550"),
        ("Somebody looks after it", "olga", "on my way"),
        ("Ended by hand", "olga", "ok"),
    ]
    unheard = view.timeline(over, steps, [], now=NOW, zone=words.zone("UTC"))
    assert unheard[2].what == "No contact fits: not told"


def test_every_way_to_end_has_words() -> None:
    for reason in ("person", "rule", "edge", "moved", "revoked", "batch", "camera", "long"):
        shown = view.row(episode(ended_reason=reason), now=NOW, zone=words.zone("UTC"))
        assert shown.ended.startswith("Ended")


def test_rule_survives_its_form() -> None:
    for rule in DEFAULTS:
        known = {**msgspec.to_builtins(rule), "sentence": sentence(rule), "is_default": True}
        parsed = rule_form.parse(rule_form.fields(known), rule_id=rule.rule_id)
        assert (parsed.rule, parsed.problems) == (rule, {})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"threshold": "warm"}, "threshold"),
        ({"threshold": ""}, "threshold"),
        ({"threshold": "1_000"}, "threshold"),
        ({"threshold": "٣"}, "threshold"),
        ({"threshold": "inf"}, "threshold"),
        ({"for_min": "1e99"}, "for_min"),
        ({"for_min": "nan"}, "for_min"),
        ({"signal": "nothing"}, "signal"),
        ({"signal": "kpi.nothing"}, "signal"),
        ({"condition": "rises"}, "window_min"),
        ({"clear": "99"}, "clear"),
        ({"min_age_days": "9", "max_age_days": "3"}, "max_age_days"),
        ({"name": "n" * 500}, "name"),
        ({"severity": "security"}, "severity"),
    ],
)
def test_form_of_a_rule_names_the_field_that_is_wrong(changes: dict[str, str], field: str) -> None:
    form = {**rule_form.EMPTY, "threshold": "30", **changes}
    parsed = rule_form.parse(form, rule_id="r")
    assert parsed.rule is None
    assert list(parsed.problems) == [field]


def test_form_of_a_rule_speaks_of_the_minutes_that_were_typed() -> None:
    for text in ("-5", "1e15", "99999"):
        form = {**rule_form.EMPTY, "threshold": "30", "for_min": text}
        assert rule_form.parse(form, rule_id="r").problems == {
            "for_min": "This is from 0 to 10,080 minutes"
        }


def test_new_rule_gets_an_id_that_is_free() -> None:
    assert rule_form.new_id("Barn 1 is hot!", {"barn-1-is-hot"}) == "barn-1-is-hot-2"
    assert rule_form.new_id("ไก่", set()) == "own"


def test_window_of_a_form_is_in_the_companys_own_time() -> None:
    zone = words.zone("Asia/Bangkok")
    form = {"reason": "washing", "hours": "2", "begin": "2026-11-18T20:00", "scope": "barn:f/1"}
    values, problems = rule_view.window_values(form, now=NOW, zone=zone)
    assert not problems
    assert values["begin_at"] == NOW + 60 * MINUTE
    assert (values["end_at"] - values["begin_at"], values["farm_id"], values["barn_id"]) == (
        120 * MINUTE, "f", "1",
    )  # fmt: skip
    _, problems = rule_view.window_values({"hours": "x", "begin": "soon"}, now=NOW, zone=zone)
    assert set(problems) == {"reason", "begin", "hours"}
    at_the_end_of_time = {**form, "begin": "9999-12-31T23:00", "hours": "168"}
    _, problems = rule_view.window_values(at_the_end_of_time, now=NOW, zone=zone)
    assert set(problems) == {"begin"}


CHANNELS = [{"channel_id": "mail", "kind": "email"}, {"channel_id": "hook", "kind": "webhook"}]


def test_contact_of_a_form_has_addresses_and_quiet_hours() -> None:
    form = {
        **notification_form.NEW_CONTACT, "name": "Ann", "address.mail": "ann@example.com",
        "address.hook": "yes", "quiet_from": "22:00", "quiet_until": "05:30", "farms": "f, g",
    }  # fmt: skip
    values = notification_form.contact(form, CHANNELS, {}, timezone="Asia/Bangkok")
    assert values.addresses == {"mail": "ann@example.com", "hook": ""}
    assert values.farms == ["f", "g"]
    assert values.quiet_hours is not None
    assert (values.quiet_hours.timezone, values.quiet_hours.passed_by) == (
        "Asia/Bangkok", ["critical", "security"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"quiet_from": "22:00"}, "quiet_until"),
        ({"severity.warning": "", "severity.critical": "", "severity.security": ""}, "severities"),
    ],
)
def test_contact_that_is_wrong_names_the_field(changes: dict[str, str], field: str) -> None:
    form = {**notification_form.NEW_CONTACT, "name": "Ann", **changes}
    with pytest.raises(WrongError) as error:
        notification_form.contact(form, CHANNELS, {}, timezone="UTC")
    assert list(error.value.problems) == [field]


def test_secrets_left_empty_are_not_given() -> None:
    values = notification_form.channel({"name": "", "url": "", "enabled": "yes"}, "webhook")
    assert values.secrets is UNSET
    with pytest.raises(WrongError):
        notification_form.channel({"headers": "no colon"}, "sms")
    with pytest.raises(WrongError):
        notification_form.channel({"template": "{"}, "post")


HOSTILE = "<script>alert(1)</script>\u202e" + "N" * 4000


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_pages_with_hostile_text_are_inert_for_every_role(role: str) -> None:
    bad = episode(
        message=HOSTILE, barn=HOSTILE, acknowledged_by=HOSTILE, note=HOSTILE, device_id=HOSTILE,
        batch_id=HOSTILE, state="acknowledged", acknowledged_at=NOW,
        notified=[{"name": HOSTILE, "state": "failed", "at": NOW.isoformat()}],
    )  # fmt: skip
    listed = view.list_view(
        company(role), [bad], {"active": 0, "acknowledged": 1, "resolved": 0},
        state="acknowledged", page=1, now=NOW,
    )  # fmt: skip
    detail = view.detail_view(
        company(role), bad, rule=None, parent=bad, held=[bad], steps=[], messages=[],
        times_before=2, now=NOW,
    )  # fmt: skip
    places = queries.Places([("f", HOSTILE)], [("f", "1", HOSTILE)], [HOSTILE], [HOSTILE])
    window = {
        "window_id": UUID(int=3), "begin_at": NOW, "end_at": NOW + MINUTE, "reason": HOSTILE,
        "farm_id": "f", "farm": HOSTILE, "barn_id": None, "barn": None, "device_id": None,
        "edge_cluster_id": None, "rule_id": HOSTILE, "made_by": HOSTILE, "held": 1,
    }  # fmt: skip
    channel = {
        "channel_id": "mail", "kind": "email", "name": HOSTILE, "enabled": True, "settings": {},
        "secret_names": ["smtp_url"], "host": HOSTILE, "public_key": None,
    }  # fmt: skip
    person = {
        "contact_id": "ann", "name": HOSTILE, "enabled": False, "level": 2, "severities": ["info"],
        "addresses": {"mail": HOSTILE, "gone": HOSTILE}, "timezone": HOSTILE,
        "quiet_from": time(22), "quiet_until": time(5), "quiet_passed_by": [], "farms": None,
    }  # fmt: skip
    sent = {
        "message_id": UUID(int=5), "state": "failed", "step": "opened", "ended_at": NOW,
        "created_at": NOW, "channel_id": "mail", "contact_id": HOSTILE, "subject": HOSTILE,
        "error": HOSTILE, "episode_id": UUID(int=1),
    }  # fmt: skip
    told = notifications.notifications_view(
        company(role), channels=[channel], contacts=[person], messages=[sent], test=sent,
        escalate_after_min=15, can_seal=False, now=NOW,
    )  # fmt: skip
    rule = {
        **msgspec.to_builtins(DEFAULTS[0]), "sentence": HOSTILE, "is_default": False,
        "changed_by": HOSTILE, "name": HOSTILE,
    }  # fmt: skip
    rules = rule_view.rules_view(company(role), [rule], now=NOW)
    one = rule_view.rule_view(
        company(role), row=rule, form=rule_form.fields(rule), rule=DEFAULTS[0], problems={},
        tried=None, places=places, is_shipped=False, now=NOW,
    )  # fmt: skip
    windows = rule_view.windows_view(
        company(role), [window], places=places, form={"reason": HOSTILE}, problems={}, now=NOW
    )
    for template, shown in (
        ("alerts.html", listed), ("alert.html", detail), ("notifications.html", told),
        ("alert_rules.html", rules), ("alert_rule.html", one), ("alert_windows.html", windows),
    ):  # fmt: skip
        html = look.render(template, view=shown, csrf="token", choices=[], nav=[])
        assert "<script>alert" not in html
        assert ('method="post"' in html.partition("<main")[2]) <= (role != "viewer"), template
