"""What the edge's pages say, without a database."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from farmiq.edge import pins
from farmiq.edge.console import nav, watch
from farmiq.edge.console.delivery import view as delivery
from farmiq.edge.console.delivery.queries import MAX_COUNTED, Backlog
from farmiq.edge.console.devices import view as devices
from farmiq.edge.console.readings import view as readings
from farmiq.edge.console.readings.queries import Bucket
from farmiq.edge.console.records import view as records
from farmiq.edge.console.records.queries import Barn
from farmiq.edge.console.sign_ins import bounds_of_key, bounds_of_pin
from farmiq.edge.console.tenant import Tenant, bounds
from farmiq.edge.console.today import view as today
from farmiq.edge.console.today.queries import Day, Silent
from farmiq.edge.console.weighings import view as weighings
from farmiq.edge.console.weighings.queries import Figures
from farmiq.edge.telemetry.queries import TelemetryReading
from farmiq.plumbing import ids
from farmiq.plumbing.attempts import Attempts
from farmiq.ui import words
from farmiq.ui.metrics import Catalogue
from farmiq.ui.sparkline import Point

NOW = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
TENANT = Tenant(
    tenant_id="t-1", name="Hill Farm", timezone="Asia/Bangkok", email="anna", role="operator"
)
WELL = Backlog(
    waiting=0, oldest_at=None, images=0, dead=0, failures=0, paused_until=None, error_code=None,
    error_message=None, acked_at=NOW - timedelta(seconds=20), checked_at=NOW - HOUR,
    is_enrolled=True,
)  # fmt: skip
QUIET = Day(weighings=3, incomplete=0, mean_kg=2.1, dead=0, feed_kg=0)


def seen(**changes: Any) -> today.TodayView:
    given: dict[str, Any] = {
        "tenant": TENANT, "now": NOW, "backlog": WELL, "alerts": [], "alert_count": 0,
        "device_count": 4, "silent": [], "day": QUIET, "rejected": 0, "patience_s": 180.0,
        **changes,
    }  # fmt: skip
    return today.view(given.pop("tenant"), **given)


# --- Today


def test_quiet_day_says_that_nothing_needs_anybody() -> None:
    view = seen()
    assert view.sentence == "All 4 devices report and nothing needs you"
    assert (view.title, view.tone, view.reasons) == ("Today", "good", [])
    assert view.link_text == "The cloud is reached and has everything."


@pytest.mark.parametrize(
    ("changes", "state", "text"),
    [
        ({}, "reached", "The cloud is reached and has everything."),
        ({"waiting": 1}, "reached", "The cloud is reached; 1 event is on its way."),
        (
            {"waiting": 1204, "failures": 3, "acked_at": NOW - 3 * HOUR, "checked_at": None},
            "away",
            "No internet since 10:00:00; 1,204 events wait here, none is lost.",
        ),
        (
            {"acked_at": NOW - 4 * HOUR, "checked_at": NOW - 3 * HOUR},
            "away",
            "No internet since 10:00:00; nothing waits.",
        ),
        (
            {"waiting": MAX_COUNTED, "failures": 1, "acked_at": NOW - 3 * HOUR, "checked_at": None},
            "away",
            "No internet since 10:00:00; more than 100,000 events wait here, none is lost.",
        ),
        (
            {"waiting": 5, "acked_at": None, "checked_at": None},
            "never",
            "This edge has not reached the cloud yet. What arrives is stored here.",
        ),
    ],
)
def test_link_to_the_cloud_is_told_in_a_sentence(
    changes: dict[str, Any], state: str, text: str
) -> None:
    view = seen(backlog=replace(WELL, **changes))
    assert (view.link.state, view.link_text) == (state, text)
    # Days without internet are nothing to mend in the barn.
    assert view.reason_count == 0


def test_cloud_that_refuses_this_edge_names_the_reason() -> None:
    view = seen(backlog=replace(WELL, failures=9, error_code="HTTP_403", error_message="not yours"))
    assert view.link.state == "refused"
    assert "farmiq edge add-tenant" in view.link_text
    assert "not yours" in view.link_text


def alert(severity: str, subject: str = "t-1/f-1/b-1") -> dict[str, Any]:
    return {
        "alert_id": ids.new(), "kind": "rule.hot", "subject": subject, "severity": severity,
        "message": "too hot", "raised_at": NOW - HOUR,
    }  # fmt: skip


def test_problems_are_listed_worst_first_and_counted_in_the_title() -> None:
    silent = [
        Silent(device_id=f"d-{n}", barn_id="b-1", state="offline", last_seen_at=NOW - HOUR)
        for n in range(5)
    ]
    view = seen(
        alerts=[alert("critical"), alert("warning", "t-1")],
        alert_count=30,
        silent=silent,
        day=replace(QUIET, incomplete=2),
        backlog=replace(WELL, dead=1),
        rejected=3,
    )
    assert [(reason.tone, reason.where) for reason in view.reasons] == [
        ("bad", "f-1 · b-1"), ("warn", "This edge"), ("warn", "d-0, d-1, d-2 and 2 more"),
        ("warn", "Weighings"), ("warn", "Delivery"), ("warn", "Delivery"),
    ]  # fmt: skip
    # 28 alerts more than are listed.
    assert view.title == "(34) Today"
    assert view.sentence == "34 things need attention"
    assert view.reasons[0].closes == ("rule.hot", "t-1/f-1/b-1")


def test_problems_beyond_seven_are_behind_one_press_and_the_worst_stand_first() -> None:
    notices = [alert("info", f"t-1/f-1/b-{n}") for n in range(7)]
    view = seen(alerts=[alert("critical"), *notices], alert_count=10, rejected=3)
    tones = [reason.tone for reason in (*view.shown, *view.others)]
    assert tones == ["bad", "warn", *["info"] * 7]
    assert (len(view.shown), len(view.others), view.unlisted) == (7, 2, 2)
    assert view.reason_count == 11


def test_key_for_feed_alone_sees_nothing_of_devices_and_cannot_close_alerts() -> None:
    feeder = replace(TENANT, areas=("feed",))
    silent = [Silent(device_id="d", barn_id="b", state="late", last_seen_at=None)]
    view = seen(tenant=feeder, silent=silent, day=replace(QUIET, incomplete=1), rejected=1)
    assert (view.sentence, view.reasons, view.may_enter) == ("Nothing needs you", [], True)
    assert [entry.key for entry in nav.entries(feeder)] == ["today", "records"]
    assert not seen(tenant=replace(TENANT, role="viewer")).may_enter
    closed = seen(tenant=replace(TENANT, role="viewer"), alerts=[alert("info")], alert_count=1)
    assert closed.reasons[0].closes is None


# --- readings


def reading(age_s: float, **changes: Any) -> TelemetryReading:
    at = NOW - timedelta(seconds=age_s)
    values: dict[str, Any] = {
        "tenant_id": "t-1", "farm_id": "f", "barn_id": "b", "device_id": "d",
        "metric_type": "temperature", "metric_value": 24.64, "unit": "°C", "occurred_at": at,
        "ingested_at": at, "clock_suspect": False, "event_id": ids.new(), **changes,
    }  # fmt: skip
    return TelemetryReading(**values)


def line(every_s: float, count: int = 5) -> list[Point]:
    return [Point(NOW - timedelta(seconds=every_s * n), 20.0) for n in range(count)][::-1]


@pytest.mark.parametrize(
    ("age_s", "every_s", "heartbeat_s", "state"),
    [
        (119, 60, 60.0, "current"),
        (121, 60, 60.0, "late"),
        (1000, 600, 60.0, "current"),  # it reports every ten minutes
        (1201, 600, 60.0, "late"),
        (500, 60, 300.0, "current"),  # it may be silent for five minutes
        (99_999, 60, None, "revoked"),
    ],
)
def test_reading_is_late_after_two_expected_intervals(
    age_s: float, every_s: float, heartbeat_s: float | None, state: str
) -> None:
    row = readings.row(reading(age_s), line(every_s), heartbeat_s, catalogue=Catalogue(), now=NOW)
    assert row.state == state
    assert row.value == "24.6"


def test_readings_of_a_wrong_clock_are_never_current_and_barns_with_problems_come_first() -> None:
    found = [
        reading(5, barn_id="a"),
        reading(5, barn_id="z", device_id="wrong", clock_suspect=True),
        reading(5, barn_id="z", device_id="d-2"),
    ]
    view = readings.view(
        TENANT, found, lines={}, heartbeats={"d": 60, "d-2": 60, "wrong": 60}, now=NOW
    )
    assert [barn.barn_id for barn in view.barns] == ["z", "a"]
    assert [row.state for row in view.barns[0].rows] == ["ahead", "current"]
    assert view.sentence == "1 of 3 sensors is late or has a wrong clock"
    assert view.title == "(1) Readings"
    assert view.refresh_at == NOW + timedelta(seconds=115)


def test_chart_has_a_row_without_values_where_nothing_was_measured() -> None:
    step = timedelta(minutes=10)
    buckets = [Bucket(at=NOW + step * n, mean=1.0, low=0.0, high=2.0, count=6) for n in (0, 1, 5)]
    rows = readings.with_gaps(buckets, step=step)
    assert [row[3] for row in rows] == [1.0, 1.0, None, 1.0]
    assert rows[2][0] == NOW + 2 * step


# --- devices, weighings, delivery, records


def device(device_id: str, state: str, **changes: Any) -> dict[str, Any]:
    return {
        "device_id": device_id, "farm_id": "f", "barn_id": "b", "kind": "sensor", "place": None,
        "state": state, "since": NOW, "last_seen_at": NOW, "paused_until": None,
        "buffer_depth": None, "battery_v": None, "signal_strength": None,
        "firmware_version": None, "firmware": "1.0", **changes,
    }  # fmt: skip


def test_devices_with_problems_come_first_and_are_counted() -> None:
    found = [
        device("a", "online"), device("b", "never seen"), device("c", "offline"),
        device("d", "online"), device("e", "online", paused_until=NOW + HOUR),
    ]  # fmt: skip
    view = devices.view(TENANT, found, {"d"}, now=NOW)
    assert [row.device_id for row in view.barns[0].rows] == ["c", "d", "e", "b", "a"]
    assert view.sentence == "3 of 5 devices need attention"
    assert devices.view(TENANT, [], set(), now=NOW).tone == "muted"


def test_weighings_of_a_day_say_how_many_lack_a_part() -> None:
    figures = Figures(total=9, incomplete=1, open=0, cancelled=0, mean_kg=2.0)
    session = {
        "session_id": ids.new(), "station_id": "s", "barn_id": "b", "state": "INCOMPLETE",
        "initial_weight_kg": 2.0, "final_weight_kg": None, "start_at": NOW,
        "incomplete_reason": "the image has not arrived", "cancel_reason": None,
    }  # fmt: skip
    view = weighings.day_view(
        TENANT, now=NOW, day=NOW.date(), state=None, figures=figures, sessions=[session],
        images={}, next_href="", fragment="",
    )  # fmt: skip
    assert view.sentence == "9 weighings, 1 incomplete"
    assert (view.rows[0].tone, view.rows[0].weight_kg) == ("warn", 2.0)
    assert view.rows[0].why == "the image has not arrived"
    assert view.rows[0].started == "13:00:00"


def test_local_day_of_a_change_of_clocks_has_23_hours() -> None:
    begin, end = bounds(datetime(2026, 3, 29, tzinfo=UTC).date(), words.zone("Europe/Berlin"))
    assert end.astimezone(UTC) - begin.astimezone(UTC) == timedelta(hours=23)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("redriven-3-1-0", "3 accepted, 1 rejected again, 0 gone meanwhile."),
        ("discarded-2", "2 discarded and noted in the loss ledger."),
        ("moved-5", "5 wait for the cloud again."),
        ("redriven-3", ""),
        ("<script>-1", ""),
        ("moved-99999999999", ""),
        ("", ""),
    ],
)
def test_outcome_in_the_address_is_one_of_our_sentences_or_nothing(code: str, text: str) -> None:
    assert delivery.outcome_text(code) == text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'{"a":1}', '{\n  "a": 1\n}'),
        (b"not json", "not json"),
        (b"\xff\x00", "ff 00"),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
def test_message_in_quarantine_is_shown_as_text(raw: bytes, text: str) -> None:
    assert delivery.readable(raw) == text


def test_barns_of_several_farms_are_told_apart() -> None:
    one = Barn(farm_id="f", barn_id="b", farm_name="Hill", batch_id="flock-7", timezone=None)
    other = Barn(farm_id="g", barn_id="b", farm_name=None, batch_id=None, timezone="UTC")
    assert records.place_options([one]) == [("f/b/", "b (flock-7)")]
    assert records.place_options([one, other]) == [
        ("f/b/", "b · Hill (flock-7)"), ("g/b/", "b · g"),
    ]  # fmt: skip
    assert [place.zone.key for place in records.places([one, other], TENANT).values()] == [
        "Asia/Bangkok", "UTC",
    ]  # fmt: skip


# --- sign-in and live pages


@pytest.mark.parametrize(
    ("pin", "is_good"),
    [
        ("482913", True), ("000000", False), ("123456", False), ("987654", False),
        ("12345", False), ("4829130000000", False), ("48291a", False), ("٤٨٢٩١٣", False),
    ],
)  # fmt: skip
def test_pin_has_six_digits_that_others_do_not_try_first(pin: str, is_good: bool) -> None:  # noqa: FBT001
    assert (pins.problem(pin) is None) == is_good


def test_pin_matches_itself_and_nobody_has_one_that_is_not_set() -> None:
    kept = pins.hashed("482913")
    assert pins.matches(kept, "482913")
    assert not pins.matches(kept, "482914")
    assert not pins.matches(None, "482913")
    assert not pins.matches(None, "nobody has this PIN")


def test_guesses_of_a_pin_are_a_hundred_a_day_and_do_not_count_for_keys() -> None:
    tries = Attempts()
    allowed = [tries.begin(bounds_of_pin("anna", f"network {n}"), float(n)) for n in range(200)]
    assert allowed.count(None) == 100
    assert tries.begin(bounds_of_key("network 1"), 200.0) is None


def test_pages_wake_for_the_tables_that_were_written_to() -> None:
    before = {"sync_outbox": 5, "alerts": 1, "telemetry_dirty": 7}
    assert watch.changed(before, before) == []
    assert watch.changed(before, {**before, "alerts": 2, "sync_outbox": 6}) == [
        "alerts", "delivery",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("areas", "role", "kept"),
    [
        (None, "operator", {"/records/new", "/feed/intakes/new", "/feed/lots/new"}),
        (("feed",), "operator", {"/feed/intakes/new", "/feed/lots/new"}),
        (("telemetry",), "admin", set()),
        (None, "viewer", set()),
    ],
)
def test_browser_keeps_the_forms_that_its_key_may_fill_in(
    areas: tuple[str, ...] | None, role: Any, kept: set[str]
) -> None:
    forms = nav.offline_forms(replace(TENANT, areas=areas, role=role))
    assert {form.partition("?")[0] for form in forms} == kept
