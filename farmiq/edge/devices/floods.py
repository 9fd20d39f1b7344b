"""Devices that flood the broker: their logins are paused there for a while.

The broker has one order for all: whoever sends faster than we take makes the others wait. Nothing
is dropped. What the broker has acknowledged is taken, and who speaks QoS 1 sends the rest later.
"""

from dataclasses import dataclass

import prometheus_client

from farmiq.edge import alerts
from farmiq.edge.devices import store
from farmiq.edge.devices.entry import Device
from farmiq.plumbing import db, flood
from farmiq.plumbing.flood import Flow, Pause

KIND = "device.flood"

PAUSES = prometheus_client.Counter(
    "farmiq_devices_pauses_total", "Times that a device's login was paused because it flooded"
)


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
        device = await store.with_login(tx, user)
        if device is None or not self.writes_users:
            who = user if device is None else _subject(device)
            await alerts.raise_(tx, _alert(who, flow, None))
            return flood.MAX_PAUSE_S
        now, before = await store.last_pause(tx, device.key)
        pause = flood.following(before, now=now)
        if not await store.pause(tx, device.key, pause):
            return flood.FIRST_PAUSE_S
        PAUSES.inc()
        await alerts.raise_(tx, _alert(_subject(device), flow, pause))
        return (pause.until_at - now).total_seconds()


def _alert(subject: str, flow: Flow, pause: Pause | None) -> alerts.Alert:
    names = f"DEVICE_{flow.what.upper()}"
    return alerts.Alert(
        KIND,
        subject,
        "warning",
        f"{flood.describe(flow, pause)}. Mend the device, or raise {names}_PER_SECOND or "
        f"{names}_BURST if it is right to",
    )


async def calm(pool: db.Pool) -> dict[str, object]:
    """Nobody need look any more at whoever has been calm for a while.

    A pause longer than any was set by a clock that has been set back since: it is over.
    """
    async with db.transaction(pool) as tx:
        await tx.execute(
            """
            update device_pauses set until_at = fn_now()
            where until_at > (select fn_now()) + %s * interval '1 second'
            """,
            (2 * flood.MAX_PAUSE_S,),
        )
        return {"calm": await alerts.close_unseen(tx, kind=KIND, seconds=flood.CALM_S)}


def _subject(device: Device) -> str:
    return f"{device.tenant_id}/{device.farm_id}/{device.barn_id}/{device.device_id}"
