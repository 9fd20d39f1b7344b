"""Cameras that flood their broker: their logins are paused there for a while.

The broker has one order for all: one camera that sends faster than we take makes all others wait.
Nothing is dropped. What the broker has acknowledged is taken, and who speaks QoS 1 sends the rest
later.
"""

from dataclasses import dataclass

import prometheus_client

from farmiq.cloud.camera import claims
from farmiq.cloud.camera.gateway import logins
from farmiq.plumbing import db, flood, log
from farmiq.plumbing.flood import Flow, Pause

PAUSES = prometheus_client.Counter(
    "farmiq_camera_pauses_total", "Times that a camera's login was paused because it flooded"
)
SHARED = prometheus_client.Counter(
    "farmiq_camera_floods_not_paused_total", "Times that a login flooded and could not be paused"
)

# One open per camera, whatever the day.
_TELL = f"""
select fn_raise_alert(company_id => d.company_id, alert_type => 'device_flooding',
  alert_date => fn_now()::date, message => %(message)s, device_id => d.device_id,
  site_id => d.site_id)
from devices d where d.mac = %(mac)s and {claims.IN_CHARGE} and not exists (
  select from device_alerts a where a.device_id = d.device_id and a.resolved_at is null
    and a.alert_type = 'device_flooding')
"""  # noqa: S608 - the text is ours
_CALM = """
update device_alerts a set resolved_at = fn_now()
where a.alert_type = 'device_flooding' and a.resolved_at is null
  and a.created_at < (select fn_now()) - %(calm)s * interval '1 second' and not exists (
    select from camera_logins l where l.device_id = a.device_id
      and l.paused_until >= (select fn_now()) - %(calm)s * interval '1 second')
"""


@dataclass(frozen=True)
class Pauser:
    """`writes_users`: whether we say who may connect."""

    pool: db.Pool
    writes_users: bool

    async def hold_back(self, user: str, flow: Flow) -> float:
        """Pause this login if that can be done; how long it is before it is counted again."""
        async with db.transaction(self.pool) as tx:
            return await self._hold_back(tx, user, flow)

    async def _hold_back(self, tx: db.Connection, user: str, flow: Flow) -> float:
        found = await logins.last_pause(tx, user) if self.writes_users else None
        if found is None:
            # A login that many cameras share is paused for none of them.
            SHARED.inc()
            log.get("cloud-camera-gateway").warning("camera.flood", name=user, reason="not paused")
            await _tell(tx, user, flow, None)
            return flood.LONGEST_PAUSE_S
        now, before = found
        pause = flood.following(before, now=now)
        if not await logins.pause(tx, user, pause):
            return flood.FIRST_PAUSE_S
        PAUSES.inc()
        await _tell(tx, user, flow, pause)
        return (pause.until_at - now).total_seconds()


async def _tell(tx: db.Connection, mac: str, flow: Flow, pause: Pause | None) -> None:
    await tx.execute(_TELL, {"mac": mac, "message": flood.told(flow, pause)})


async def calm(pool: db.Pool) -> dict[str, object]:
    """Nobody need look any more at whoever has been calm for a while."""
    async with db.transaction(pool) as tx:
        return {"calm": (await tx.execute(_CALM, {"calm": flood.CALM_S})).rowcount}
