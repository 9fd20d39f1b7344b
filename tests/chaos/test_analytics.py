"""SIGKILL of analytics and of the services it reads from, at any moment: no figure is lost."""

import random
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from farmiq.plumbing.bus import amqp
from tests.integration.cloud.analytics.conftest import Analytics, analytics, at
from tests.integration.cloud.analytics.test_service import (
    as_announced_of,
    not_doubled,
    publish,
    publisher,
    started,
)
from tests.integration.cloud.conftest import cloud, work_vhost
from tests.support.until import until

__all__ = ["analytics", "cloud", "publisher", "started", "work_vhost"]  # fixtures

pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.timeout(240)]

VICTIMS = tuple(f"cloud-{name}-service" for name in ("analytics", "feed", "barn", "weighvision"))
KILLS = 6
MARKS = "select 1 from analytics_dirty_days union all select 2 from analytics_pending"


def _fed(farm: Analytics, least: int) -> bool:
    ((count,),) = farm.owner("select count(*) from feed_events")
    return bool(count >= least)


async def test_kill_of_analytics_and_its_sources_at_any_moment_loses_no_figure(
    analytics: Analytics,
    publisher: amqp.Publisher,
    started: Callable[..., subprocess.Popen[Any]],
) -> None:
    farm = analytics
    farm.farm(barns=("1", "2"))
    farm.batch("b")
    farm.batch("c", barn_id="2")
    running = {name: started(name) for name in VICTIMS}
    for day in range(KILLS):
        events = []
        for hour in range(1, 9):
            for barn_id in ("1", "2"):
                events += farm.weighing(
                    at(day, hour), 0.1 + day * 0.05 + hour / 1000, barn_id=barn_id
                )
                events.append(farm.intake(at(day, hour), 10.0, barn_id=barn_id))
                events.append(farm.record(at(day, hour), "mortality", 1, barn_id=barn_id))
        random.shuffle(events)
        await publish(publisher, *events, *events[:20])
        # Sooner or later: while events are taken, or while figures of them are computed.
        await until(partial(_fed, farm, random.randint(1, 16 * (day + 1))), within_s=60)
        for name in ("cloud-analytics-service", random.choice(VICTIMS[1:])):
            running[name].kill()
            running[name].wait()
            running[name] = started(name)
    whole = {("b", 8 * 10.0): KILLS, ("c", 8 * 10.0): KILLS}

    def fed() -> bool:
        rows = farm.owner(
            "select batch_id, value, count(*) from kpi_daily where kpi_type = 'intake_kg' "
            "group by 1, 2"
        )
        return {(row[0], row[1]): row[2] for row in rows} == whole

    await until(fed, within_s=120)
    sessions = "select count(*) from weight_sessions where status = 'finalized'"
    await until(lambda: farm.owner(sessions) == [(16 * KILLS,)], within_s=60)
    await until(lambda: farm.owner("select count(*) from barn_events") == [(16 * KILLS,)])
    await until(lambda: not farm.owner(MARKS), within_s=60)
    stored = farm.rows()
    told = {(row[3], str(row[4]), row[5]): row[6] for row in stored}
    await until(lambda: as_announced_of(farm) == told, within_s=60)
    assert not_doubled(farm)
    heads = {(row[3], row[6]) for row in stored if row[5] == "head_count"}
    assert heads == {(b, 1000.0 - 8 * (day + 1)) for b in "bc" for day in range(KILLS)}
