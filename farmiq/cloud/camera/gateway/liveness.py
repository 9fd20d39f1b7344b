"""How cameras are, from the wakes that were expected of them (peers 19).

A camera sleeps between its wakes, so silence means nothing until a wake is missed: late after one,
silent after more than two. Asked by a timer, or nobody would hear of one that says nothing.
"""

import prometheus_client

from farmiq.plumbing import db

# A wake may come so late and still count for its window (C-63).
TOLERANCE_S = 3600.0
MOST_MISSED = 2

STATES = prometheus_client.Gauge(
    "farmiq_cameras_by_state", "Cameras that are in use and expected to wake", ["state"]
)

_LOOK = """
with missed as (
  select d.device_id, d.company_id, d.site_id, d.device_name, count(w.expected_at) as wakes,
    min(w.expected_at) as first_at
  from devices d
  left join expected_wakes w on w.device_id = d.device_id
    and w.expected_at > coalesce(d.last_seen_at, d.created_at)
    and w.expected_at < (select fn_now()) - %(tolerance)s * interval '1 second'
  where d.is_active
  group by d.device_id
), judged as (
  select m.*, case when m.wakes = 0 then 'online' when m.wakes <= %(most)s then 'late'
    else 'silent' end as state
  from missed m
)
insert into camera_states as c (device_id, company_id, state, since, missed_wakes)
select j.device_id, j.company_id, j.state, coalesce(j.first_at, fn_now()), j.wakes
from judged j
order by j.device_id
on conflict on constraint camera_states_pkey do update set
  state = excluded.state, missed_wakes = excluded.missed_wakes,
  since = case when c.state = excluded.state then c.since
    when excluded.state = 'online' then fn_now() else excluded.since end
where (c.state, c.missed_wakes) is distinct from (excluded.state, excluded.missed_wakes)
"""
_TELL = """
select fn_raise_alert(company_id => c.company_id, alert_type => 'device_silent',
  alert_date => (c.since at time zone coalesce(s.timezone, 'UTC'))::date,
  message => format('%s has missed %s wakes since %s', d.device_name, c.missed_wakes,
    to_char(c.since at time zone 'UTC', 'YYYY-MM-DD HH24:MI"Z"')),
  device_id => c.device_id, site_id => d.site_id)
from camera_states c
join devices d on d.device_id = c.device_id and d.is_active
left join sites s on s.site_id = d.site_id
where c.state = 'silent'
"""
_RESOLVE = """
update device_alerts a set resolved_at = fn_now()
from camera_states c join devices d on d.device_id = c.device_id
where a.device_id = c.device_id and a.alert_type = 'device_silent' and a.resolved_at is null
  and (c.state = 'online' or not d.is_active)
"""


async def look_round(pool: db.Pool) -> dict[str, object]:
    async with db.transaction(pool) as tx:
        changed = await tx.execute(_LOOK, {"tolerance": TOLERANCE_S, "most": MOST_MISSED})
        raised = await db.fetch_all(tx, _TELL)
        resolved = await tx.execute(_RESOLVE)
        counted = await db.fetch_all(
            tx,
            "select c.state, count(*) from camera_states c join devices d using (device_id) "
            "where d.is_active group by 1",
        )
    found = {row[0]: row[1] for row in counted}
    for state in ("online", "late", "silent"):
        STATES.labels(state=state).set(found.get(state, 0))
    return {
        "changes": changed.rowcount,
        "alerts": sum(bool(row[0]) for row in raised),
        "resolved": resolved.rowcount,
    }
