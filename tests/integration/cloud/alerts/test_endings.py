"""Episodes end by hand and by themselves, each with its reason; one fact calls people once."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from farmiq.cloud import episodes
from farmiq.cloud.alerts.evaluating import book
from farmiq.plumbing import db, ids
from tests.integration.cloud.alerts.conftest import HOUR, MINUTE, Alerts, now
from tests.integration.cloud.alerts.test_evaluation import figure

HOT = "rule:hot|f/1/d"


async def end(alerts: Alerts, *, note: str | None = None) -> str | None:
    """End the open episode by hand."""
    ((episode_id,),) = alerts.owner(
        "select episode_id from alert_episodes where state in ('active', 'acknowledged')"
    )
    async with db.transaction(alerts.pool) as tx:
        return await episodes.end(tx, "t-001", episode_id, by="olga@x.farm", note=note)


def reasons(alerts: Alerts) -> list[tuple[Any, ...]]:
    return alerts.owner(
        "select cause, state, ended_reason from alert_episodes order by opened_at, cause"
    )


async def test_episode_ended_by_hand_stays_so_until_the_values_were_clear(alerts: Alerts) -> None:
    await alerts.rule()
    at = now() - 10 * MINUTE
    await alerts.send(alerts.reading(at, 40.0))
    await alerts.looks.page()
    assert await end(alerts, note="the sensor hangs over the heater") == "ended"
    ended = (HOT, "resolved", "person")
    assert alerts.steps() == [(HOT, "opened"), (HOT, "resolved")]
    # As bad as before, and late values too: a person has said that it is over.
    await alerts.send(alerts.reading(at + 5 * MINUTE, 41.0))
    await alerts.send(alerts.reading(at + 2 * MINUTE, 42.0))
    await alerts.looks.prune()
    await alerts.settle()
    assert reasons(alerts) == [ended]
    soon = now() + MINUTE / 30
    await alerts.send(alerts.reading(soon, 20.0), alerts.reading(soon + MINUTE / 60, 40.0))
    await alerts.settle()
    assert reasons(alerts) == [ended, (HOT, "active", None)]
    assert alerts.owner("select actor, action, detail ->> 'note' from alert_actions "
                        "where action = 'end'") == [
        ("olga@x.farm", "end", "the sensor hangs over the heater")
    ]  # fmt: skip


async def test_values_that_lag_open_another_episode_after_one_was_ended_by_hand(
    alerts: Alerts,
) -> None:
    await alerts.rule()
    at = now() - 30 * MINUTE
    await alerts.send(alerts.reading(at, 40.0))
    await end(alerts)
    await alerts.send(
        alerts.reading(at + 10 * MINUTE, 20.0), alerts.reading(at + 15 * MINUTE, 40.0)
    )
    await alerts.send(alerts.reading(now(), 41.0))
    await alerts.looks.page()
    assert reasons(alerts) == [(HOT, "resolved", "person"), (HOT, "active", None)]
    assert alerts.steps() == [(HOT, "opened")]
    # A late value does not take it back.
    await alerts.send(alerts.reading(at + 5 * MINUTE, 42.0))
    await alerts.settle()
    assert reasons(alerts) == [(HOT, "resolved", "person"), (HOT, "active", None)]


async def test_ending_what_is_over_or_unknown_changes_nothing(alerts: Alerts) -> None:
    await alerts.rule()
    await alerts.send(alerts.reading(now(), 40.0))
    await end(alerts)
    ((episode_id,),) = alerts.owner("select episode_id from alert_episodes")
    async with db.transaction(alerts.pool) as tx:
        assert await episodes.end(tx, "t-001", episode_id, by="x") == "already"
        assert await episodes.end(tx, "t-001", ids.new(), by="x") is None
        assert await episodes.end(tx, "t-002", episode_id, by="x") is None


async def test_edge_alert_ended_by_hand_is_not_missing_and_does_not_come_back(
    alerts: Alerts,
) -> None:
    alerts.beat()
    alerts.owner("update edge_heartbeats set open_alerts = 1, sent_at = now() + interval '1 hour'")
    alert_id, at = ids.new(), now()
    await alerts.take_edge(alerts.edge_alert("opened", alert_id, at))
    missing = "select fn_edge_alerts_missing('t-001', 'edge-01')"
    assert alerts.owner(missing) == [(0,)]
    await end(alerts)
    await alerts.take_edge(alerts.edge_alert("opened", alert_id, at))
    assert [row[1:] for row in reasons(alerts)] == [("resolved", "person")]
    assert alerts.owner(missing) == [(0,)]
    await alerts.take_edge(alerts.edge_alert("closed", alert_id, at + MINUTE))
    alerts.owner("update edge_heartbeats set open_alerts = 0")
    assert alerts.owner(missing) == [(0,)]


async def test_episode_of_a_moved_device_ends(alerts: Alerts) -> None:
    await alerts.rule()
    at = now() - 5 * MINUTE
    await alerts.send(alerts.reading(at, 40.0))
    await alerts.send(alerts.reading(at + MINUTE, 20.0, barn_id="2"))
    await alerts.looks.prune()
    assert reasons(alerts) == [(HOT, "resolved", "moved")]


async def test_episode_of_a_revoked_device_ends_and_its_silence_calls_nobody(
    alerts: Alerts,
) -> None:
    await alerts.rule("quiet", condition="absent", threshold=None, for_s=300)
    await alerts.send(alerts.reading(now() - 20 * MINUTE, 20.0))
    alerts.owner("update telemetry_latest set stored_at = occurred_at")
    await alerts.looks.look_for_silence()
    assert [row[1] for row in reasons(alerts)] == ["active"]
    alerts.owner(
        """
        insert into device_events (tenant_id, event_id, event_type, farm_id, barn_id, device_id,
          occurred_at, trace_id, payload)
        values ('t-001', %s, 'device.status', 'f', '1', 'd', now(), 't', '{"revoked": true}')
        """,
        ids.new(),
    )
    await alerts.looks.prune()
    await alerts.looks.look_for_silence()
    assert [row[1:] for row in reasons(alerts)] == [("resolved", "revoked")]


async def test_what_an_edge_found_ends_when_its_keys_are_revoked(alerts: Alerts) -> None:
    await alerts.rule()
    alerts.beat()
    at = now() - MINUTE
    await alerts.take_edge(
        alerts.edge_alert("opened", ids.new(), at),
        alerts.edge_alert("opened", ids.new(), at, code="rule.hot", subject="f/1/d"),
        alerts.edge_alert("opened", ids.new(), at, code="rule.hot", subject="f/1/e"),
    )
    # Another edge brings the values of one device.
    await alerts.send(alerts.reading(at, 40.0))
    await alerts.looks.page()
    await alerts.looks.prune()
    assert {row[1:] for row in reasons(alerts)} == {("active", None)}
    alerts.owner("update edge_keys set revoked_at = now()")
    await alerts.looks.prune()
    assert set(reasons(alerts)) == {
        ("edge:edge-01|broker.store|broker", "resolved", "edge"),
        ("rule:hot|f/1/e", "resolved", "edge"),
        (HOT, "active", None),
    }
    assert [step for _, step in alerts.steps()].count("resolved") == 2


async def test_episode_of_a_device_that_is_silent_for_a_month_ends(alerts: Alerts) -> None:
    await alerts.rule()
    await alerts.send(alerts.reading(now() - timedelta(days=31), 40.0))
    await alerts.looks.prune()
    assert reasons(alerts) == [(HOT, "resolved", "long")]


async def test_episode_of_a_closed_batch_ends(alerts: Alerts) -> None:
    await alerts.rule(
        signal="kpi.weight_mean", condition="below", baseline="standard", threshold=10
    )
    at = now()
    alerts.owner("insert into farms (tenant_id, farm_id, name, timezone) "
                 "values ('t-001', 'f', 'F', 'UTC')")  # fmt: skip
    alerts.owner("insert into barns (tenant_id, farm_id, barn_id, name) "
                 "values ('t-001', 'f', '1', 'B')")  # fmt: skip
    alerts.owner(
        """
        insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count,
          placed_on)
        values ('t-001', 'b', 'f', '1', 'parrot', 10, current_date - 3)
        """
    )
    await alerts.take(figure(alerts, at.date(), 0.8, 1.0, at))
    await alerts.looks.prune()
    assert [row[1:] for row in reasons(alerts)] == [("active", None)]
    alerts.owner("update batches set closed_on = current_date - 1")
    alerts.book.drop()
    await alerts.looks.prune()
    assert [row[1:] for row in reasons(alerts)] == [("resolved", "batch")]


def add_camera(alerts: Alerts) -> UUID:
    """A camera that somebody should look at."""
    camera = ids.new()
    alerts.owner(
        """
        with company as (select company_id from companies where tenant_id = 't-001'), d as (
          insert into devices (device_id, company_id, mac, device_name, last_seen_at,
            battery_voltage)
          select %s, company_id, 'AABBCCDDEEFF', 'c', now(), 3.1 from company)
        insert into device_alerts (alert_id, company_id, device_id, alert_type, alert_date, message,
          created_at)
        select gen_random_uuid(), company_id, %s, 'low_battery', current_date, 'low', now()
        from company
        """,
        camera, camera,
    )  # fmt: skip
    return camera


async def test_episodes_of_a_camera_that_is_switched_off_end(alerts: Alerts) -> None:
    camera = add_camera(alerts)
    await alerts.looks.take_camera_alerts()
    await alerts.looks.look_at_cameras()
    assert [row[1] for row in reasons(alerts)] == ["active", "active"]
    alerts.owner("update devices set is_active = false where device_id = %s", camera)
    for _ in range(2):
        await alerts.looks.take_camera_alerts()
        await alerts.looks.look_at_cameras()
        await alerts.looks.prune()
    assert [row[1:] for row in reasons(alerts)] == [("resolved", "camera")] * 2


async def test_camera_alert_ended_by_hand_is_resolved_with_it(alerts: Alerts) -> None:
    add_camera(alerts)
    await alerts.looks.take_camera_alerts()
    await end(alerts)
    await alerts.looks.take_camera_alerts()
    assert [row[1:] for row in reasons(alerts)] == [("resolved", "person")]
    assert alerts.owner("select count(*) from device_alerts where resolved_at is null") == [(0,)]


@pytest.mark.parametrize("edge_first", [True, False])
async def test_edge_alert_and_the_rule_on_the_same_total_call_once(
    alerts: Alerts, *, edge_first: bool
) -> None:
    await alerts.rule("default.edge.disk", signal="edge.disk_percent", threshold=88)
    alerts.beat()
    alerts.owner("update edge_heartbeats set disk_percent = 95")

    async def by_edge() -> None:
        await alerts.take_edge(
            alerts.edge_alert("opened", ids.new(), now(), code="edge.disk", subject="disk")
        )
        await alerts.looks.page()

    async def by_rule() -> None:
        await alerts.looks.look_at_edges()
        await alerts.looks.page()

    for look in (by_edge, by_rule) if edge_first else (by_rule, by_edge):
        await look()
    assert [step for _, step in alerts.steps()] == ["opened"]
    ((first,), (second,)) = alerts.owner(
        "select episode_id from alert_episodes where state = 'active' order by raised_at"
    )
    assert alerts.owner("select held_by from alert_episodes where episode_id = %s", second) == [
        (f"episode:{first}",)
    ]
    # Whichever is still there when the other one is over is told then.
    async with db.transaction(alerts.pool) as tx:
        await episodes.end(tx, "t-001", first, by="olga@x.farm")
    await alerts.looks.page()
    assert [step for _, step in alerts.steps()].count("opened") == 2


async def test_two_alerts_of_one_edge_about_different_devices_call_twice(alerts: Alerts) -> None:
    alerts.beat()
    for device in ("a", "b"):
        await alerts.take_edge(
            alerts.edge_alert(
                "opened", ids.new(), now(), code="device.not_registered", subject=device
            )
        )
    await alerts.looks.page()
    assert [step for _, step in alerts.steps()] == ["opened", "opened"]


async def test_slow_series_is_not_called_silent_with_every_value(alerts: Alerts) -> None:
    await alerts.rule("quiet", condition="absent", threshold=None, for_s=1800)
    at = now() - 8 * HOUR
    for number in range(9):
        await alerts.send(alerts.reading(at + number * 40 * MINUTE, 20.0))
    assert len(reasons(alerts)) == 2
    alerts.owner("update telemetry_latest set stored_at = occurred_at")
    # The last value is older than the rule says, and than the series itself is slow.
    await alerts.looks.look_for_silence()
    assert [row[1] for row in reasons(alerts)] == ["resolved", "resolved", "active"]


async def test_change_of_an_episode_notifies_pages_of_its_company(alerts: Alerts) -> None:
    ((company_id,),) = alerts.owner(
        "select company_id::text from companies where tenant_id = 't-001'"
    )
    await alerts.rule()
    with psycopg.connect(alerts.site.database.admin_url, autocommit=True) as connection:
        connection.execute("listen alerts_changed")

        def heard() -> list[str]:
            return [notice.payload for notice in connection.notifies(timeout=10, stop_after=1)]

        await alerts.send(alerts.reading(now() - MINUTE, 40.0))
        assert heard() == [company_id]
        await alerts.looks.page()
        assert heard() == [company_id]
        async with db.transaction(alerts.pool) as tx:
            (episode_id,) = alerts.owner("select episode_id from alert_episodes")[0]
            await episodes.acknowledge(tx, "t-001", episode_id, by="olga@x.farm")
        assert heard() == [company_id]
        await alerts.send(alerts.reading(now(), 20.0))
        assert heard() == [company_id]
    assert book.CHANGED != "alerts_changed"
