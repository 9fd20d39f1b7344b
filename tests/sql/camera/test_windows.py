"""The window of a wake by what its day was opened with, and by the schedule alone: they agree."""

import random
from datetime import datetime, timedelta

import pytest

from tests.sql.camera.farm import Farm

COMPARE = """
select count(*) filter (where overage_reason is null), array_agg(at) filter (
  where (w.wake_window_index, w.overage_reason is not null) is distinct from
    (i.wake_index, i.is_overage))
from unnest(%(instants)s::timestamptz[]) at,
  fn_wake_window(session_id => %(session)s, device_id => %(device)s, at => at) w,
  fn_infer_wake_window_index(captured_at => at, cron_expression => %(cron)s,
    timezone => %(timezone)s) i
where (at at time zone %(timezone)s)::date = %(date)s
"""


@pytest.mark.req("DB2-06")
@pytest.mark.parametrize("cron", ["0 8,16 * * *", "30 2 * * *", "*/30 * * * *", "0 0,23 * * *"])
@pytest.mark.parametrize(
    ("timezone", "date"),
    [
        ("Asia/Bangkok", "2026-03-10"),
        ("Europe/Berlin", "2026-03-29"),
        ("Europe/Berlin", "2026-10-25"),
        ("Australia/Lord_Howe", "2026-04-05"),
        ("America/Santiago", "2026-09-06"),
    ],
)
def test_window_functions_agree_while_no_window_is_taken(
    farm: Farm, timezone: str, date: str, cron: str
) -> None:
    noon = datetime.fromisoformat(f"{date}T12:00:00Z")
    farm.at(noon)
    site = farm.site(timezone)
    device = farm.device(site, cron)
    chance = random.Random(f"{timezone} {date} {cron}")
    seconds = [chance.randrange(-90_000, 90_000) for _ in range(300)]
    on_the_dot = [900 * quarter for quarter in range(-100, 101)]
    within, differing = farm.owner.execute(
        COMPARE,
        {
            "session": farm.value("select fn_open_session(%s, %s)", site, date),
            "device": device,
            "instants": [noon + timedelta(seconds=s) for s in seconds + on_the_dot],
            "cron": cron,
            "timezone": timezone,
            "date": date,
        },
    ).fetchall()[0]
    assert differing is None
    assert within > 0
