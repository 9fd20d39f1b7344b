"""Each rule that ships opens with what its service stored: totals of edges, cameras, figures."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.integration.cloud.alerts.conftest import MINUTE, Alerts, now
from tests.support.camera_days import Days


def opened(alerts: Alerts) -> list[tuple[str, str]]:
    """(rule, subject) of what is open."""
    rows = alerts.owner(
        "select rule_id, subject from alert_episodes where state = 'active' order by 1"
    )
    return [(row[0], row[1]) for row in rows]


@pytest.mark.parametrize(
    ("column", "value", "rule"),
    [
        ("oldest_s", 7200, "edge.backlog"),
        ("quarantine", 3, "edge.quarantine.grows"),
        ("dead_letters", 1, "edge.dead_letters"),
        ("losses", 40, "edge.losses"),
        ("disk_percent", 91, "edge.disk"),
        ("clock_offset_s", 120, "edge.clock.ahead"),
        ("clock_offset_s", -120, "edge.clock.behind"),
        ("open_alerts", 2, "edge.alerts_missing"),
    ],
)
async def test_total_that_an_edge_reports_opens_its_rule_and_ends_it(
    alerts: Alerts, column: str, value: float, rule: str
) -> None:
    for minutes, total in ((28, 0), (16, value), (8, value), (0, value)):
        alerts.beat(ago=minutes * MINUTE)
        totals = "dead_letters = 0, losses = 0, open_alerts = 0"
        alerts.owner(f"update edge_heartbeats set {totals}")  # noqa: S608
        alerts.owner(f"update edge_heartbeats set {column} = %s", total)  # noqa: S608
        await alerts.looks.look_at_edges()
    assert opened(alerts) == [(f"default.{rule}", "edge:edge-01")]
    if rule == "edge.losses":
        return  # What is lost is said for a day.
    alerts.owner(
        f"update edge_heartbeats set {column} = 0, received_at = received_at + interval '10 min'"  # noqa: S608
    )
    await alerts.looks.look_at_edges()
    alerts.owner("update edge_heartbeats set received_at = received_at + interval '6 minutes'")
    await alerts.looks.look_at_edges()
    assert opened(alerts) == []


async def test_what_waits_in_quarantine_for_an_hour_opens_a_rule_until_it_is_empty(
    alerts: Alerts,
) -> None:
    totals = [0, *[3] * 9, 0, 0]
    for index, total in enumerate(totals):
        alerts.beat(ago=(len(totals) - 1 - index) * 10 * MINUTE)
        alerts.owner("update edge_heartbeats set quarantine = %s", total)
        await alerts.looks.look_at_edges()
    assert alerts.owner(
        "select rule_id, round(extract(epoch from resolved_at - opened_at) / 60)::int "
        "from alert_episodes where signal = 'edge.quarantine' order by opened_at"
    ) == [("default.edge.quarantine.grows", 60), ("default.edge.quarantine", 40)]


async def test_site_whose_day_lacks_images_and_weak_camera_open_their_rules(
    alerts: Alerts,
) -> None:
    day = (now() - timedelta(days=1)).date()
    with psycopg.connect(alerts.site.database.admin_url) as connection:
        row = connection.execute(
            "select company_id from companies where tenant_id = 't-001'"
        ).fetchone()
        assert row is not None
        days = Days(connection, row[0])
        site = days.site(days.program("p"), "s", "UTC")
        camera = days.camera(site, "c")
        session = days.day(site, day, {camera: 4})
        for index in (1, 2, 3):
            days.wake(session, camera, index)
        for status in ("in_progress", "locked"):
            connection.execute(
                "update site_device_sessions set status = %s, "
                "locked_at = case when %s = 'locked' then now() end",
                (status, status),
            )
        connection.execute("update devices set battery_voltage = 3.2, last_seen_at = now()")
    await alerts.looks.look_at_cameras()
    assert opened(alerts) == [
        ("default.camera.battery", f"camera:{camera}"),
        ("default.camera.completeness", f"site:{site}"),
    ]
    ((worst,),) = alerts.owner(
        "select worst_value from alert_episodes where rule_id = 'default.camera.completeness'"
    )
    assert worst == 75


async def test_mortality_of_a_day_opens_the_rules_of_its_species_and_age(alerts: Alerts) -> None:
    alerts.owner(
        """
        with farm as (
          insert into farms (tenant_id, farm_id, name, timezone) values ('t-001', 'f', 'F', 'UTC')
        ), barn as (
          insert into barns (tenant_id, farm_id, barn_id, name) values ('t-001', 'f', '1', 'Barn')
        )
        insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count,
          placed_on, age_at_placing_days)
        values ('t-001', 'b', 'f', '1', 'broiler', 1000, %s, 0)
        """,
        (now() - timedelta(days=20)).date(),
    )

    def died(percent: float) -> Any:
        payload = {
            "kpi_date": now().date(), "kpi_type": "mortality_day_pct", "value": percent,
            "unit": "%", "source_event_count": 1, "batch_id": "b",
        }  # fmt: skip
        return alerts.event("kpi.daily.updated", now(), payload, device_id=None)

    await alerts.take(died(1.2))
    assert opened(alerts) == [
        ("default.mortality.poultry", "batch:b"),
        ("default.mortality.poultry.high", "batch:b"),
    ]
