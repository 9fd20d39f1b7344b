"""What Today says needs attention, in which order, and in which words."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from farmiq.cloud.console.batches.view import Batch, Figure
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.sites import strips
from farmiq.cloud.console.sites import view as site_list
from farmiq.cloud.console.telemetry import view as telemetry
from farmiq.cloud.console.telemetry.view import Reading
from farmiq.cloud.console.today import first_steps, reasons
from farmiq.cloud.console.today import view as today
from farmiq.cloud.console.today.pipeline import Arrived
from farmiq.cloud.console.today.queries import Progress, RegisteredBarn
from farmiq.cloud.console.today.reasons import Edge, Episode, Known, Rank, Reason
from farmiq.plumbing import ids
from farmiq.ui.sparkline import Point

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
COMPANY = Company(
    company_id=ids.new(), name="Green", tenant_id="tenant-a", timezone="UTC", email="a@b.c"
)
SITE = UUID("0197a000-0000-7000-8000-000000000001")


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def reading(
    device_id: str, metric_type: str = "temperature", *, age_min: float = 0.1, barn_id: str = "b-1"
) -> Reading:
    captured_at = ago(age_min)
    history = tuple(Point(captured_at - timedelta(minutes=back), 20.0) for back in (2, 1, 0))
    return Reading(
        event_id=ids.new(), farm_id="f-1", barn_id=barn_id, device_id=device_id,
        metric_type=metric_type, value=20.0, unit="°C", captured_at=captured_at,
        arrived_at=captured_at, count=3, history=history,
    )  # fmt: skip


def episode(cause: str = "rule:x|f-1/b-1/d1", **fields: Any) -> Episode:
    given: dict[str, Any] = {
        "episode_id": ids.new(), "cause": cause, "severity": "warning",
        "signal": "telemetry.temperature", "is_absence": False, "message": "temperature above 38",
        "farm_id": "f-1", "barn_id": "b-1", "device_id": "d1", "edge_cluster_id": None,
        "batch_id": None, "opened_at": ago(60), "last_at": ago(1), "last_value": None,
        "is_acknowledged": False, "site_id": None,
    }  # fmt: skip
    return Episode(**(given | fields))


def edge(**fields: Any) -> Edge:
    given: dict[str, Any] = {
        "edge_cluster_id": "edge-1", "received_at": ago(0.5), "waiting": 3, "oldest_s": 2.0,
        "dead_letters": 0, "quarantine": 0, "farms": ["f-1"],
    }  # fmt: skip
    return Edge(**(given | fields))


def known(*readings: Reading, **fields: Any) -> Known:
    view = telemetry.view(COMPANY, readings, now=NOW)
    return Known(now=NOW, readings=view, barn_names={("f-1", "b-1"): "North barn"}, **fields)


def site(*, overdue: int = 0) -> site_list.Row:
    """A site that expects ten images today, some of them overdue."""
    session, camera = ids.new(), ids.new()
    wakes = [
        strips.Wake(
            session_id=session, device_id=camera, at=ago(60 * hour), expected_at=ago(60 * hour),
            image_id=None, status=None if hour <= overdue else "complete", received_at=None,
            overage_reason=None, clock_suspect=False,
        )
        for hour in range(10, 0, -1)
    ]  # fmt: skip
    found = site_list.Site(
        site_id=SITE, site_name="East field", timezone="UTC", is_active=True,
        program_name="Trial", today=NOW.date(), zone_today="UTC", cameras=1, last_seen_at=ago(5),
    )  # fmt: skip
    day = site_list.Day(
        session_id=session, site_id=SITE, session_date=NOW.date(), timezone="UTC", expected=10,
        completed=10 - overdue, failed=0, extra=0, status="in_progress", opened_at=ago(700),
        config_changed=False, late_updates=0, locked_at=None,
    )  # fmt: skip
    view = site_list.view(COMPANY, [found], days=[day], wakes=wakes, cameras=[], now=NOW)
    return view.rows[0]


def causes(found: list[Reason]) -> list[str]:
    return [reason.cause for reason in found]


def test_farm_that_fares_well_has_no_reason() -> None:
    assert reasons.reasons(known(reading("d1"), edges=[edge()], sites=[site()])) == []


def test_reason_shows_the_last_value_and_not_that_of_the_begin() -> None:
    message = "temperature in North barn above 38 °C: 38.4 °C"
    hot = episode(message=message, last_value=39.5, last_at=ago(2))
    (found,) = reasons.reasons(known(episodes=[hot]))
    assert found.why == "Temperature in North barn above 38 °C"
    assert found.quantity is not None
    assert (found.quantity.value, found.quantity.unit, found.quantity.at) == (39.5, "°C", ago(2))


def test_reasons_stand_worst_and_newest_first_and_acknowledged_ones_after_their_equals() -> None:
    found = reasons.reasons(
        known(
            reading("d9", age_min=30, barn_id="b-2"),
            episodes=[
                episode("a", opened_at=ago(5)),
                episode("b", opened_at=ago(90)),
                episode("c", severity="critical", opened_at=ago(1)),
                episode("d", opened_at=ago(300), is_acknowledged=True),
                episode("e", severity="security", opened_at=ago(10)),
            ],
        )
    )
    assert causes(found) == ["c", "e", "a", "b", "d", "device:d9:silent"]
    assert [reason.rank for reason in found[:2]] == [Rank.CRITICAL, Rank.CRITICAL]


def test_silent_device_and_the_alert_about_it_are_one_reason() -> None:
    (found,) = reasons.reasons(
        known(
            reading("d1", age_min=45),
            episodes=[episode(is_absence=True, opened_at=ago(40), message="no reading")],
        )
    )
    assert (found.why, found.signs) == ("No reading", 2)
    assert found.since == ago(45)
    assert found.href == "/telemetry/d1/temperature"


def test_acknowledged_problem_does_not_hide_a_new_one_of_the_same_cause() -> None:
    known_of = episode(
        "a", device_id="d1", is_absence=True, opened_at=ago(600), is_acknowledged=True
    )
    new = episode("b", device_id="d2", is_absence=True, opened_at=ago(5), severity="critical")
    late = [reading("d1", age_min=600), reading("d2", age_min=20)]
    (found,) = reasons.reasons(known(*late, episodes=[known_of, new]))
    assert (found.rank, found.is_acknowledged, found.since) == (Rank.CRITICAL, False, ago(5))
    (both,) = reasons.reasons(known(*late, episodes=[known_of, replace(new, is_acknowledged=True)]))
    assert (both.is_acknowledged, both.since) == (True, ago(600))


def batch(**fields: Any) -> Batch:
    given: dict[str, Any] = {
        "batch_id": "batch-1", "farm_id": "f-1", "farm_name": "Hill", "barn_id": "b-1",
        "barn_name": "North barn", "timezone": "UTC", "species": "chicken", "breed": None,
        "sex": "mixed", "placed_count": 5000, "placed_on": date(2026, 2, 17), "closed_on": None,
        "target_weight_kg": None, "target_on": None, "today": NOW.date(), "age_days": 21,
        "is_age_known": True, "head_count": 4800.0, "dead": 200.0, "culled": 0.0,
        "weighed_count": 50, "outlier_count": 0, "safe_to_sell_from": None,
    }  # fmt: skip
    return Batch(**(given | fields))


def figure(kpi_type: str, value: float, expected: float) -> Figure:
    return Figure(
        batch_id="batch-1", kpi_type=kpi_type, kpi_date=NOW.date(), value=value, unit="kg",
        source_event_count=9, expected_value=expected, difference=value - expected,
    )  # fmt: skip


def test_what_the_page_of_batches_calls_a_problem_is_a_reason_here_too() -> None:
    behind = {"weight_mean": figure("weight_mean", 0.8, 1.0)}
    dying = {"mortality_pct": figure("mortality_pct", 4.0, 2.0)}
    ill = batch(figures={**behind, **dying}, safe_to_sell_from=date(2026, 3, 15), open_alerts=1)
    found = reasons.reasons(known(batches=[ill]))
    assert [(reason.where, reason.why) for reason in found] == [
        ("North barn", "Behind its standard"),
        ("North barn", "High mortality"),
        ("North barn", "Not to be sold before 15 Mar"),
    ]
    view = today.view(COMPANY, known(batches=[ill]), registered=[barn()])
    assert view.sentence == "The only barn needs attention"
    assert reasons.reasons(known(batches=[batch()])) == []


def test_batch_that_is_behind_and_the_alert_about_it_are_one_reason() -> None:
    alert = episode(
        "rule:default.weight.behind|batch:batch-1", signal="kpi.weight_mean", batch_id="batch-1",
        message="mean weight too low",
    )  # fmt: skip
    behind = batch(figures={"weight_mean": figure("weight_mean", 0.8, 1.0)})
    (found,) = reasons.reasons(known(batches=[behind], episodes=[alert]))
    assert (found.cause, found.signs) == ("batch:batch-1:behind", 2)


def test_silent_edge_explains_the_silent_sensors_of_its_farms() -> None:
    late = [reading("d1", age_min=20), reading("d2", age_min=20, barn_id="b-2")]
    absent = episode(is_absence=True)
    silent = edge(received_at=ago(20), waiting=900, dead_letters=4)
    (found,) = reasons.reasons(known(*late, edges=[silent], episodes=[absent]))
    assert (found.cause, found.rank) == ("edge:edge-1:silent", Rank.CRITICAL)
    assert found.places == {("f-1", "b-1"), ("f-1", "b-2")}
    assert found.href == "/delivery/edges/edge-1"


def test_silent_edge_explains_nothing_where_another_edge_reports_for_the_farm() -> None:
    edges = [edge(received_at=ago(20)), edge(edge_cluster_id="edge-2")]
    found = reasons.reasons(known(reading("d1", age_min=20), edges=edges))
    assert causes(found) == ["edge:edge-1:silent", "device:d1:silent"]


def test_several_silent_devices_of_a_barn_are_one_reason() -> None:
    late = [reading(f"d{number}", age_min=20) for number in range(1, 6)]
    (found,) = reasons.reasons(known(*late, reading("d9")))
    assert found.where == "North barn"
    assert found.why == "5 devices are late: d1, d2, d3, …"


@pytest.mark.parametrize(
    ("late", "current", "why"),
    [
        (["temperature"], ["humidity"], "No new reading of Temperature"),
        (["temperature", "humidity"], ["co2"], "No new reading of Humidity, Temperature"),
        (["temperature", "humidity"], [], "The device sends nothing"),
        (["silo.weight"], [], "No new reading of Silo"),
    ],
)
def test_late_device_says_in_plain_words_what_is_missing(
    late: list[str], current: list[str], why: str
) -> None:
    readings = [reading("d1", metric, age_min=20) for metric in late]
    (found,) = reasons.reasons(known(*readings, *(reading("d1", metric) for metric in current)))
    assert (found.where, found.why) == ("North barn · d1", why)


def test_edge_whose_events_are_stuck_is_a_reason_once() -> None:
    stuck = edge(oldest_s=7200.0, dead_letters=2, quarantine=1)
    about = {"edge_cluster_id": "edge-1", "farm_id": None, "barn_id": None, "device_id": None}
    alert = episode("rule:backlog|edge:edge-1", signal="edge.oldest_s", **about)
    found = reasons.reasons(known(edges=[stuck], episodes=[alert]))
    assert causes(found) == [
        "edge:edge-1:backlog", "edge:edge-1:dead-letters", "edge:edge-1:quarantine",
    ]  # fmt: skip
    assert found[0].signs == 2
    assert all(not reason.places for reason in found)


def test_site_with_overdue_images_and_its_cameras_alerts_are_one_reason() -> None:
    alerts = [
        episode(f"camera:missed_wakes|{SITE}", signal=None, site_id=SITE, device_id=None,
                farm_id=None, barn_id=None, message="3 wakes missed"),
        episode("camera:low_battery|x", signal=None, site_id=SITE, device_id="x", farm_id=None,
                barn_id=None, message="battery low"),
    ]  # fmt: skip
    since = {SITE: ago(180)}
    found = reasons.reasons(known(sites=[site(overdue=3)], sites_since=since, episodes=alerts))
    assert causes(found) == ["camera:low_battery|x", f"site:{SITE}"]
    assert (found[1].since, found[1].where) == (ago(180), "East field")
    assert found[1].places == {("site", str(SITE))}


def test_clock_that_runs_ahead_is_a_reason_with_how_far() -> None:
    (found,) = reasons.reasons(known(reading("d1", age_min=-300)))
    assert found.why == "The clock of the device runs 5 h ahead"


@pytest.mark.parametrize(
    ("barns", "sites", "unwell", "elsewhere", "expected"),
    [
        (0, 0, 0, 0, "No barn and no site yet"),
        (1, 0, 0, 0, "The only barn is on track"),
        (4, 0, 0, 0, "All 4 barns on track"),
        (0, 1, 0, 0, "The only site is on track"),
        (0, 12, 0, 0, "All 12 sites on track"),
        (4, 3, 0, 0, "All 4 barns and 3 sites on track"),
        (1, 1, 0, 0, "All 2 barns and sites on track"),
        (0, 12, 2, 0, "2 of 12 sites need attention"),
        (0, 12, 1, 0, "1 of 12 sites needs attention"),
        (4, 0, 2, 0, "2 of 4 barns need attention"),
        (1, 0, 1, 0, "The only barn needs attention"),
        (0, 1, 1, 0, "The only site needs attention"),
        (4, 3, 2, 0, "2 of 7 barns and sites need attention"),
        (4, 3, 0, 1, "All 4 barns and 3 sites on track; 1 problem on the way of the data"),
        (4, 0, 1, 2, "1 of 4 barns needs attention; 2 problems on the way of the data"),
    ],
)
def test_sentence_says_how_many_places_need_attention(
    barns: int, sites: int, unwell: int, elsewhere: int, expected: str
) -> None:
    said = today.sentence(barns=barns, sites=sites, unwell=unwell, elsewhere=elsewhere)
    assert said == expected


def test_counts_in_title_and_sentence_are_those_of_the_list() -> None:
    late = [reading(f"d{number}", age_min=20, barn_id=f"b-{number}") for number in range(1, 10)]
    view = today.view(COMPANY, known(*late, reading("d0", barn_id="b-0"), sites=[site(overdue=1)]))
    assert view.title == f"({len(view.reasons)}) Today" == "(10) Today"
    assert (len(view.shown), len(view.others)) == (7, 3)
    assert (*view.shown, *view.others) == view.reasons
    assert view.sentence == "10 of 11 barns and sites need attention"
    assert sum(card.needs_attention for card in view.barns) == 9
    assert [card.needs_attention for card in view.barns[-2:]] == [True, False]


def barn(**fields: Any) -> RegisteredBarn:
    given: dict[str, Any] = {
        "farm_id": "f-1", "barn_id": "b-1", "name": "North barn", "farm_name": "Hill",
        "today": date(2026, 3, 10), "batch_id": "batch-1", "age_days": 21, "head_count": 4800.0,
        "weight_dates": [date(2026, 3, 3), date(2026, 3, 10)], "weights_kg": [0.45, 0.90],
    }  # fmt: skip
    return RegisteredBarn(**(given | fields))


def test_card_of_a_barn_has_its_batch_weight_and_devices() -> None:
    rows = [reading("d1"), reading("d1", "humidity", age_min=20), reading("d2", age_min=20)]
    view = today.view(COMPANY, known(*rows), registered=[barn(), barn(barn_id="b-9", name="Empty")])
    card, empty = view.barns
    assert (card.name, card.devices, card.online) == ("North barn", 2, 1)
    assert card.batch_href == "/batches/batch-1"
    assert card.weight is not None
    assert (card.weight.kg, card.weight.gained, card.weight.days) == (0.9, "+450", 7)
    assert card.weight.is_today
    assert (empty.devices, empty.last_contact_at, empty.href) == (0, None, "")


def test_weight_of_another_day_says_of_which() -> None:
    old = barn(weight_dates=[date(2026, 3, 8)], weights_kg=[0.8])
    (card,) = today.view(COMPANY, known(), registered=[old]).barns
    assert card.weight is not None
    assert (card.weight.is_today, card.weight.day_text) == (False, "8 Mar")
    assert card.weight.gained_kg is None


def test_card_of_a_site_counts_what_is_due_so_far() -> None:
    (card,) = today.view(COMPANY, known(sites=[site(overdue=3)])).sites
    assert (card.received, card.due, card.later) == (7, 10, 0)


def test_pipeline_says_what_the_cloud_knows_and_what_it_does_not() -> None:
    rows = [reading("d1"), reading("d2", age_min=20)]
    edges = [edge(), edge(edge_cluster_id="edge-2", received_at=None, waiting=None, oldest_s=None)]
    view = today.view(COMPANY, known(*rows, edges=edges), arrived=Arrived(events=1200))
    texts = {part.key: (part.tone, part.text) for part in view.pipeline}
    assert texts == {
        "devices": ("warn", "1 of 2 online"),
        "edges": ("good", "1 of 2 report"),
        "outbox": ("good", "3 events wait"),
        "cloud": ("good", "1,200 events in a day"),
        "consumers": ("muted", "queues not known here; no dead letters"),
    }
    nothing = {part.key: part.text for part in today.view(COMPANY, known()).pipeline}
    assert nothing["outbox"] == "not known"


def test_bad_part_of_the_pipeline_leads_to_delivery() -> None:
    letters = Arrived(dead_letters=2, oldest_dead_letter_at=ago(90))
    stuck = today.view(COMPANY, known(edges=[edge(oldest_s=7200.0)]), arrived=letters).pipeline
    bad = [(part.key, part.text, part.href) for part in stuck if part.tone == "bad"]
    assert bad == [
        ("outbox", "3 events wait", "/delivery"),
        ("consumers", "2 dead letters", "/delivery/dead-letters"),
    ]


def test_pipeline_does_not_call_a_silent_edge_well() -> None:
    silent = known(reading("d1"), edges=[edge(received_at=ago(7), oldest_s=60.0)])
    parts = {part.key: part for part in today.view(COMPANY, silent).pipeline}
    assert (parts["outbox"].tone, parts["outbox"].oldest_at) == ("warn", ago(8))
    assert parts["cloud"].tone == "warn"


def test_first_steps_are_ticked_by_what_is_there() -> None:
    nothing = Progress(
        has_farm=False, has_barn=False, has_edge=False, heard_at=None, has_device=False,
        has_reading=False,
    )  # fmt: skip
    assert not any(step.is_done for step in first_steps.steps(nothing, "tenant-a", now=NOW))
    half = replace(nothing, has_farm=True, has_barn=True, has_edge=True, heard_at=ago(30))
    steps = first_steps.steps(half, "tenant-a", now=NOW)
    assert [step.key for step in steps if step.is_done] == ["farm", "edge"]
    view = today.view(COMPANY, known(), steps=steps)
    assert view.sentence == "2 of 5 steps to the first reading are done"
    assert any("--tenant tenant-a" in command for step in steps for command in step.commands)
