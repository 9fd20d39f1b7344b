"""Who is called and who is not: parents, maintenance, acknowledgement, alerts of others."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from farmiq.cloud import episodes
from farmiq.cloud.alerts import looks
from farmiq.cloud.alerts.evaluating import advance
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, ids
from tests.integration.cloud.alerts.conftest import HOUR, MINUTE, Alerts, now

HOT = "rule:hot|f/1/d"
SILENT = "rule:default.edge.silent|edge:edge-01"
ABSENT = "rule:quiet|f/1/d"


async def quiet_device(alerts: Alerts, *, ago: timedelta) -> None:
    """A device of which nothing came for so long, with a rule that says so."""
    await alerts.rule("quiet", condition="absent", threshold=None, for_s=300)
    await alerts.send(alerts.reading(now() - ago, 20.0))
    alerts.owner("update telemetry_latest set stored_at = occurred_at")


async def test_silent_device_opens_an_absence_and_the_next_value_ends_it(alerts: Alerts) -> None:
    await quiet_device(alerts, ago=10 * MINUTE)
    for _ in range(3):
        await alerts.looks.look_for_silence()
        await alerts.looks.page()
    assert [row[:2] for row in alerts.episodes()] == [(ABSENT, "active")]
    assert alerts.steps() == [(ABSENT, "opened")]
    await alerts.send(alerts.reading(now(), 20.0))
    assert alerts.steps() == [(ABSENT, "opened"), (ABSENT, "resolved")]


async def test_short_absence_of_one_company_is_not_looked_for_in_another(alerts: Alerts) -> None:
    await alerts.rule("quiet", condition="absent", threshold=None, for_s=HOUR.seconds)
    await alerts.rule("quiet", tenant_id="t-002", condition="absent", threshold=None, for_s=1)
    await alerts.store(alerts.reading(now() - 10 * MINUTE, 20.0))
    alerts.owner("update telemetry_latest set stored_at = occurred_at")
    await alerts.looks.look_for_silence()
    assert alerts.owner("select subject from alert_states where signal = 'telemetry.heat'") == []


async def test_device_whose_old_values_still_come_is_not_silent(alerts: Alerts) -> None:
    await alerts.rule("quiet", condition="absent", threshold=None, for_s=300)
    await alerts.send(alerts.reading(now() - 20 * HOUR, 20.0))
    await alerts.looks.look_for_silence()
    assert alerts.episodes() == []


async def test_value_from_before_the_absence_began_withdraws_it(alerts: Alerts) -> None:
    await quiet_device(alerts, ago=20 * MINUTE)
    await alerts.looks.look_for_silence()
    assert [row[1] for row in alerts.episodes()] == ["active"]
    await alerts.send(alerts.reading(now() - 18 * MINUTE, 20.0))
    assert alerts.episodes() == []


async def test_silent_edge_holds_its_devices_until_it_is_back(alerts: Alerts) -> None:
    alerts.beat(ago=HOUR)
    await quiet_device(alerts, ago=HOUR)
    await alerts.looks.look_at_edges()
    await alerts.looks.look_for_silence()
    for _ in range(2):
        await alerts.looks.page()
    assert {row[0] for row in alerts.episodes()} == {SILENT, ABSENT}
    assert alerts.steps() == [(SILENT, "opened")]
    ((held_by,),) = alerts.owner("select held_by from alert_episodes where rule_id = 'quiet'")
    assert held_by.startswith("episode:")
    # It is back, but still has to send what it has: the device has two minutes.
    alerts.beat()
    await alerts.looks.look_at_edges()
    await alerts.looks.page()
    assert alerts.steps() == [(SILENT, "opened"), (SILENT, "resolved")]
    alerts.owner("update alert_episodes set resolved_at = now() - interval '3 minutes', "
                 "opened_at = opened_at - interval '1 hour' where state = 'resolved'")  # fmt: skip
    await alerts.looks.look_for_silence()
    await alerts.looks.page()
    assert alerts.steps()[2:] == [(ABSENT, "opened")]


async def test_edge_that_is_about_to_be_silent_holds_its_devices(alerts: Alerts) -> None:
    alerts.beat(ago=6 * MINUTE)
    await quiet_device(alerts, ago=6 * MINUTE)
    await alerts.looks.look_at_edges()
    await alerts.looks.look_for_silence()
    await alerts.looks.page()
    assert [row[0] for row in alerts.episodes()] == [ABSENT]
    assert alerts.steps() == []


async def held_by_silent_edge(alerts: Alerts) -> None:
    """A silent edge of which people know, and a device of its farm that is held."""
    alerts.beat(ago=HOUR)
    await quiet_device(alerts, ago=HOUR)
    await alerts.looks.look_at_edges()
    await alerts.looks.look_for_silence()
    await alerts.looks.page()
    assert alerts.steps() == [(SILENT, "opened")]


async def test_edge_without_a_key_is_ended_and_holds_nothing(alerts: Alerts) -> None:
    await held_by_silent_edge(alerts)
    alerts.owner("update edge_keys set revoked_at = now()")
    await alerts.looks.look_at_edges()
    await alerts.looks.prune()
    assert {row[:2] for row in alerts.episodes()} == {(SILENT, "resolved"), (ABSENT, "active")}
    await alerts.looks.page()
    assert alerts.steps() == [(SILENT, "opened"), (SILENT, "resolved"), (ABSENT, "opened")]


async def test_farm_that_another_edge_reports_on_is_not_held(alerts: Alerts) -> None:
    await held_by_silent_edge(alerts)
    alerts.beat(edge_id="edge-02", farms=["other"])
    await alerts.looks.page()
    assert alerts.steps() == [(SILENT, "opened")]
    alerts.beat(edge_id="edge-03")
    await alerts.looks.page()
    assert alerts.steps() == [(SILENT, "opened"), (ABSENT, "opened")]


async def test_edges_are_not_silent_right_after_the_cloud_was_away(alerts: Alerts) -> None:
    alerts.beat(ago=HOUR)
    nothing_seen: Any = None
    alerts.looks.watch = nothing_seen
    for _ in range(2):
        await alerts.looks.look_at_edges()
    assert alerts.episodes() == []
    watch = alerts.looks.watch
    assert watch is not None
    alerts.looks.watch = replace(watch, since=watch.since - advance.MAX_QUIET)
    await alerts.looks.look_at_edges()
    assert [row[:2] for row in alerts.episodes()] == [(SILENT, "active")]


async def test_totals_of_an_edge_open_after_their_time(alerts: Alerts) -> None:
    await alerts.rule("held", signal="edge.quarantine", threshold=0)
    alerts.beat()
    await alerts.looks.look_at_edges()
    assert alerts.episodes() == []
    alerts.owner("update edge_heartbeats set quarantine = 3")
    alerts.beat()
    await alerts.looks.look_at_edges()
    await alerts.looks.page()
    grows = "rule:default.edge.quarantine.grows|edge:edge-01"
    assert sorted(alerts.steps()) == [(grows, "opened"), ("rule:held|edge:edge-01", "opened")]


async def test_maintenance_window_holds_and_calls_when_it_is_over(alerts: Alerts) -> None:
    await alerts.rule()
    alerts.owner(
        "insert into alert_windows (tenant_id, window_id, begin_at, end_at, reason, made_by, "
        "barn_id) values ('t-001', gen_random_uuid(), now() - interval '1 hour', "
        "now() + interval '1 hour', 'washing', 'x', '1')"
    )
    await alerts.send(alerts.reading(now(), 40.0), alerts.reading(now(), 40.0, barn_id="2"))
    await alerts.looks.page()
    assert alerts.steps() == [("rule:hot|f/2/d", "opened")]
    alerts.owner("update alert_windows set end_at = now() - interval '1 second'")
    await alerts.looks.page()
    assert alerts.steps()[1:] == [(HOT, "opened")]
    assert alerts.owner("select held_by from alert_episodes where held_by is not null") == []


async def test_acknowledged_episode_stays_one_and_ends_with_a_step(alerts: Alerts) -> None:
    await alerts.rule()
    await alerts.send(alerts.reading(now() - MINUTE, 40.0))
    await alerts.looks.page()
    ((episode_id,),) = alerts.owner("select episode_id from alert_episodes")
    async with db.transaction(alerts.pool) as tx:
        assert await episodes.acknowledge(tx, "t-001", episode_id, by="ann") == "acknowledged"
        assert await episodes.acknowledge(tx, "t-001", episode_id, by="bob") == "already"
        assert await episodes.acknowledge(tx, "t-002", episode_id, by="eve") is None
    await alerts.send(alerts.reading(now() - MINUTE / 2, 41.0))
    await alerts.looks.page()
    assert [row[1] for row in alerts.episodes()] == ["acknowledged"]
    await alerts.send(alerts.reading(now(), 20.0))
    assert [step for _, step in alerts.steps()] == ["opened", "acknowledged", "resolved"]
    async with db.transaction(alerts.pool) as tx:
        assert await episodes.acknowledge(tx, "t-001", episode_id, by="ann") == "ended"
    assert alerts.owner("select actor, action from alert_actions where action = 'acknowledge'") == [
        ("ann", "acknowledge")
    ]


# --- alerts of edges


async def test_edge_alert_in_any_order_and_repeated_is_one_episode(alerts: Alerts) -> None:
    alert_id, at = ids.new(), now() - MINUTE
    opened = alerts.edge_alert("opened", alert_id, at)
    closed = alerts.event("edge.alert.closed", now(), alert_payload(opened), device_id=None)
    await alerts.take_edge(closed)
    await alerts.take_edge(opened, opened)
    await alerts.take_edge(closed)
    assert [row[1] for row in alerts.episodes()] == ["resolved"]
    await alerts.looks.page()
    assert alerts.steps() == []


def alert_payload(event: BusEvent) -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(event.payload)
    return found


async def test_edge_alert_pages_and_its_end_is_told(alerts: Alerts) -> None:
    alert_id, at = ids.new(), now()
    opened = alerts.edge_alert("opened", alert_id, at)
    await alerts.take_edge(opened, opened)
    await alerts.looks.page()
    worse = alerts.edge_alert("opened", alert_id, at, severity="critical")
    await alerts.take_edge(worse)
    assert alerts.owner("select severity, source from alert_episodes") == [("critical", "edge")]
    await alerts.take_edge(alerts.event("edge.alert.closed", now(), alert_payload(opened)))
    cause = "edge:edge-01|broker.store|broker"
    assert alerts.steps() == [(cause, "opened"), (cause, "worsened"), (cause, "resolved")]


async def test_edge_alert_that_is_worse_before_people_were_told_is_told_once(
    alerts: Alerts,
) -> None:
    alert_id, at = ids.new(), now()
    await alerts.take_edge(alerts.edge_alert("opened", alert_id, at))
    await alerts.take_edge(alerts.edge_alert("opened", alert_id, at, severity="critical"))
    await alerts.looks.page()
    await alerts.take_edge(alerts.edge_alert("opened", alert_id, at, severity="warning"))
    assert [step for _, step in alerts.steps()] == ["opened"]


async def test_older_alert_of_an_edge_that_comes_late_is_history(alerts: Alerts) -> None:
    older, newer = now() - HOUR, now() - MINUTE
    late = alerts.edge_alert("opened", ids.new(), older)
    open_one = alerts.edge_alert("opened", ids.new(), newer)
    await alerts.take_edge(open_one)
    await alerts.take_edge(late)
    await alerts.take_edge(late, open_one)
    assert [row[1:] for row in alerts.episodes()] == [
        ("resolved", older, newer),
        ("active", newer, None),
    ]


async def test_two_alerts_of_one_cause_that_come_together_are_the_newer_one(
    alerts: Alerts,
) -> None:
    older, newer = now() - HOUR, now() - MINUTE
    await alerts.take_edge(
        alerts.edge_alert("opened", ids.new(), newer), alerts.edge_alert("opened", ids.new(), older)
    )
    assert [row[1:] for row in alerts.episodes()] == [
        ("resolved", older, newer),
        ("active", newer, None),
    ]


async def test_next_alert_of_an_edge_ends_the_one_before(alerts: Alerts) -> None:
    await alerts.take_edge(alerts.edge_alert("opened", ids.new(), now() - HOUR))
    await alerts.take_edge(alerts.edge_alert("opened", ids.new(), now()))
    assert [row[1] for row in alerts.episodes()] == ["resolved", "active"]


async def test_old_edge_alert_pages_once_the_edge_has_sent_everything(alerts: Alerts) -> None:
    await alerts.take_edge(alerts.edge_alert("opened", ids.new(), now() - 2 * HOUR))
    await alerts.looks.refresh_edge_alerts()
    await alerts.looks.page()
    assert alerts.steps() == []
    alerts.beat()
    await alerts.looks.refresh_edge_alerts()
    await alerts.looks.page()
    assert [step for _, step in alerts.steps()] == ["opened"]


async def test_rule_evaluated_by_edge_and_cloud_is_one_episode(alerts: Alerts) -> None:
    await alerts.rule()
    at = now() - MINUTE
    alert = alerts.edge_alert("opened", ids.new(), at, code="rule.hot", subject="f/1/d")
    await alerts.take_edge(alert)
    await alerts.send(alerts.reading(at, 40.0))
    await alerts.looks.page()
    assert [row[:2] for row in alerts.episodes()] == [(HOT, "active")]
    # Somebody silences the siren: the values are as bad as before.
    await alerts.take_edge(alerts.event("edge.alert.closed", now(), alert_payload(alert)))
    assert [row[:2] for row in alerts.episodes()] == [(HOT, "active")]
    await alerts.send(alerts.reading(now(), 20.0))
    assert [row[:2] for row in alerts.episodes()] == [(HOT, "resolved")]
    assert alerts.steps() == [(HOT, "opened"), (HOT, "resolved")]


async def test_alert_that_the_edge_found_first_says_what_its_rule_looks_at(
    alerts: Alerts,
) -> None:
    await alerts.rule("quiet", condition="absent", threshold=None, for_s=300)
    at = now() - MINUTE
    shipped, own, unknown = "default.ventilation.stopped", "quiet", "gone"
    for rule_id in (shipped, own, unknown):
        alert = alerts.edge_alert(
            "opened", ids.new(), at, code=f"rule.{rule_id}", subject="f/1/d",
            farm_id=None, barn_id=None, device_id=None,
        )  # fmt: skip
        await alerts.take_edge(alert)
    found = "select rule_id, signal, barn_id, device_id, state from alert_episodes order by rule_id"
    expected = [
        (shipped, "telemetry.ventilation", "1", "d", "active"),
        (unknown, None, None, None, "active"),
        (own, "telemetry.heat", "1", "d", "active"),
    ]
    assert alerts.owner(found) == expected
    # The edge alone says when it is over as long as no values came here.
    await alerts.looks.prune()
    assert alerts.owner(found) == expected


@pytest.mark.parametrize("is_called", [False, True])
async def test_alert_that_opened_and_closed_before_its_readings_came_is_one_episode(
    alerts: Alerts, *, is_called: bool
) -> None:
    """A short outage: the edge tells of its alert first, then come the readings that made it."""
    await alerts.rule()
    at = now() - 5 * MINUTE
    alert = alerts.edge_alert("opened", ids.new(), at, code="rule.hot", subject="f/1/d")
    closed = alerts.event("edge.alert.closed", at + MINUTE, alert_payload(alert))
    await alerts.take_edge(alert)
    if is_called:
        await alerts.looks.page()
    await alerts.take_edge(closed)
    await alerts.send(
        alerts.reading(at - MINUTE / 30, 40.0), alerts.reading(at + MINUTE - MINUTE / 30, 20.0)
    )
    await alerts.take_edge(alert, closed)
    await alerts.looks.page()
    begin, end = at - MINUTE / 30, at + MINUTE - MINUTE / 30
    assert [row[1:] for row in alerts.episodes()] == [("resolved", begin, end)]
    assert alerts.owner("select first_value, last_value from alert_episodes") == [(40.0, 20.0)]
    assert alerts.steps() == ([(HOT, "opened"), (HOT, "resolved")] if is_called else [])


async def test_values_that_come_after_the_alert_of_the_edge_fill_it_in(alerts: Alerts) -> None:
    await alerts.rule()
    at = now() - MINUTE
    alert = alerts.edge_alert("opened", ids.new(), at, code="rule.hot", subject="f/1/d")
    await alerts.take_edge(alert)
    alerts.owner("update alert_episodes set signal = null")  # as versions before stored it
    await alerts.send(alerts.reading(at, 40.0), alerts.reading(at + MINUTE / 2, 41.0))
    assert alerts.owner(
        "select signal, first_value, worst_value, last_value, last_at from alert_episodes"
    ) == [("telemetry.heat", 40.0, 41.0, 41.0, at + MINUTE / 2)]


async def test_alerts_of_cameras_become_episodes_and_end_with_them(alerts: Alerts) -> None:
    site = ids.new()
    alerts.owner(
        """
        with company as (select company_id from companies where tenant_id = 't-001'), p as (
          insert into pilot_programs (program_id, company_id, program_name, program_type)
          select %s, company_id, 'p', 'control' from company), s as (
          insert into sites (site_id, company_id, program_id, site_name, timezone)
          select %s, company_id, %s, 's', 'UTC' from company)
        insert into device_alerts (alert_id, company_id, site_id, alert_type, alert_date, message,
          created_at)
        select gen_random_uuid(), company_id, %s, 'missed_wakes', current_date - d, 'missed',
          now() - make_interval(days => d)
        from company, generate_series(0, 1) d
        """,
        site, site, site, site,
    )  # fmt: skip
    for _ in range(2):
        await alerts.looks.take_camera_alerts()
        await alerts.looks.page()
    cause = f"camera:missed_wakes|{site}"
    assert [row[:2] for row in alerts.episodes()] == [(cause, "active")]
    alerts.owner("update device_alerts set resolved_at = now() where alert_date = current_date")
    await alerts.looks.take_camera_alerts()
    assert [row[1] for row in alerts.episodes()] == ["active"]
    alerts.owner("update device_alerts set resolved_at = now()")
    await alerts.looks.take_camera_alerts()
    assert alerts.steps() == [(cause, "opened"), (cause, "resolved")]


async def test_feed_and_cameras_are_looked_at_by_the_clock(alerts: Alerts) -> None:
    await alerts.rule("feed", signal="feed.days_left", condition="below", threshold=2)
    for days_ago, kind, payload in (
        (3, "feed.lot.received", {"feed_lot_id": "l", "quantity_kg": 100.0}),
        (1, "feed.intake.recorded", {"source": "MANUAL", "quantity_kg": 60.0}),
    ):
        event = alerts.event(kind, now() - timedelta(days=days_ago), payload)
        alerts.owner(
            """
            insert into feed_events (tenant_id, event_id, event_type, farm_id, barn_id, occurred_at,
              trace_id, payload) values ('t-001', %s, %s, 'f', '1', %s, 't', %s::jsonb)
            """,
            event.event_id, kind, event.occurred_at, bytes(event.payload).decode(),
        )  # fmt: skip
    await alerts.looks.look_at_feed()
    await alerts.looks.look_at_cameras()
    await alerts.looks.page()
    assert ("rule:feed|barn:f/1", "opened") in alerts.steps()


async def test_looks_of_the_clock_find_what_they_look_for_by_an_index(alerts: Alerts) -> None:
    alerts.owner(
        """
        insert into telemetry_latest (tenant_id, device_id, metric_type, farm_id, barn_id, event_id,
          metric_value, unit, occurred_at, reading_count)
        select 't-001', 'd-' || n / 100, 'metric-' || n % 100, 'f', '1',
          gen_random_uuid(), 1, 'x', now(), 1
        from generate_series(1, 10000) n
        """
    )
    site = ids.new()
    alerts.owner(
        """
        with company as (select company_id from companies where tenant_id = 't-001'), p as (
          insert into pilot_programs (program_id, company_id, program_name, program_type)
          select %s, company_id, 'p', 'control' from company), s as (
          insert into sites (site_id, company_id, program_id, site_name, timezone)
          select %s, company_id, %s, 's', 'UTC' from company)
        insert into device_alerts (alert_id, company_id, site_id, alert_type, alert_date, message,
          created_at, resolved_at)
        select gen_random_uuid(), company_id, %s, 'missed_wakes', '2020-01-01'::date + n, 'missed',
          now(), now()
        from company, generate_series(1, 3000) n
        """,
        site, site, site, site,
    )  # fmt: skip
    alerts.owner("analyze telemetry_latest, device_alerts")
    silent = alerts.owner(
        f"explain {looks.SILENT_SERIES}", ["t-001"], ["metric-1"], [600], looks.MAX_SILENT_DAYS
    )
    over = alerts.owner(f"explain {looks.CAMERA_ALERTS_OVER}")
    assert any("telemetry_latest_metric_idx" in line for (line,) in silent), silent
    assert any("device_alerts_about_idx" in line for (line,) in over)
