"""The SQL of devices: the registry, pauses, states and commands."""

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from psycopg import sql

from farmiq.edge.devices.credentials import Secret
from farmiq.edge.devices.device import Device, Login
from farmiq.edge.devices.rules import CommandOutcome, CommandState, Liveness
from farmiq.messages.device import DeviceStatus
from farmiq.plumbing import db
from farmiq.plumbing.broker.flood import Pause

Key = tuple[str, str]
_DEVICE = ", ".join(Device.__dataclass_fields__)
_LIVENESS = ", ".join(f"s.{name}" for name in Liveness.__dataclass_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """A device that was revoked, or registered again."""

    device: Device
    revoked: bool
    last_seen_at: datetime


_SHOWN = """
    select d.tenant_id, d.farm_id, d.barn_id, d.device_id, d.station_id, d.kind, d.firmware,
      d.place, d.zone, d.wants_receipts, d.derive_intake, d.heartbeat_s, d.broker_user,
      d.created_at, d.rotated_at, d.revoked_at,
      case when d.revoked_at is not null then 'revoked' else coalesce(s.state, 'never seen') end
        as state,
      case when d.revoked_at is not null then d.revoked_at else s.since end as since,
      s.last_seen_at, s.said_state, s.said_at, s.firmware_version, s.ip, s.signal_strength,
      s.health, s.uptime_s, s.buffer_depth, s.battery_v,
      case when p.until_at > fn_now() then p.until_at end as paused_until
    from devices d
    left join device_state s on s.tenant_id = d.tenant_id and s.device_id = d.device_id
    left join device_pauses p on p.tenant_id = d.tenant_id and p.device_id = d.device_id
"""


# --- the registry


async def version(tx: db.Connection) -> int:
    number: int = await db.fetch_value(tx, "select version from devices_version")
    return number


async def add(tx: db.Connection, device: Device, secret: Secret) -> bool:
    """Register a device, or a revoked one again; False if it is registered."""
    cursor = await tx.execute(
        """
        insert into devices as d (tenant_id, farm_id, barn_id, device_id, station_id, kind,
          firmware, place, zone, wants_receipts, derive_intake, heartbeat_s, broker_user,
          secret_bcrypt, secret_pbkdf2, token_sha256, created_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, fn_now())
        on conflict on constraint devices_pkey do update set
          farm_id = excluded.farm_id, barn_id = excluded.barn_id,
          station_id = excluded.station_id, kind = excluded.kind, firmware = excluded.firmware,
          place = excluded.place, zone = excluded.zone,
          wants_receipts = excluded.wants_receipts, derive_intake = excluded.derive_intake,
          heartbeat_s = excluded.heartbeat_s, secret_bcrypt = excluded.secret_bcrypt,
          secret_pbkdf2 = excluded.secret_pbkdf2, token_sha256 = excluded.token_sha256,
          rotated_at = fn_now(), revoked_at = null
        where d.revoked_at is not null
        """,
        (
            *astuple(device),
            device.broker_user,
            secret.bcrypt,
            secret.pbkdf2,
            secret.token_sha256,
        ),
    )
    return cursor.rowcount > 0


async def revoke(tx: db.Connection, key: Key) -> bool:
    cursor = await tx.execute(
        "update devices set revoked_at = fn_now() "
        "where tenant_id = %s and device_id = %s and revoked_at is null",
        key,
    )
    return cursor.rowcount > 0


async def new_revocations(tx: db.Connection, *, limit: int) -> list[Revocation]:
    """Devices revoked or registered again since the last event about that to the cloud.

    They are marked as sent: the caller appends the events in this transaction.
    """
    # Select first: an update of no row would count as a change of the registry.
    rows = await db.fetch_all(
        tx,
        """
        select d.tenant_id, d.device_id from devices d
        where d.revocation_told <> (d.revoked_at is not null)
        order by 1, 2 limit %s for update skip locked
        """,
        limit,
    )
    if not rows:
        return []
    changed = await db.fetch_dicts(
        tx,
        """
        update devices d set revocation_told = (d.revoked_at is not null)
        from unnest(%s::text[], %s::text[]) as k(tenant_id, device_id)
          left join device_state s using (tenant_id, device_id)
        where k.tenant_id = d.tenant_id and k.device_id = d.device_id
        returning d.tenant_id, d.farm_id, d.barn_id, d.device_id,
          d.revoked_at is not null as revoked,
          coalesce(s.last_seen_at, d.revoked_at, d.created_at) as last_seen_at
        """,
        _columns([(row[0], row[1]) for row in rows]),
    )
    return [
        Revocation(
            revoked=row.pop("revoked"), last_seen_at=row.pop("last_seen_at"), device=Device(**row)
        )
        for row in changed
    ]


async def rotate(tx: db.Connection, key: Key, secret: Secret) -> Device | None:
    """Store another secret; None if there is no such device, or it is revoked."""
    rows = await db.fetch_as(
        tx,
        Device,
        f"""
        update devices set secret_bcrypt = %s, secret_pbkdf2 = %s, token_sha256 = %s,
          rotated_at = fn_now()
        where tenant_id = %s and device_id = %s and revoked_at is null
        returning {_DEVICE}
        """,  # noqa: S608 - our own words
        (secret.bcrypt, secret.pbkdf2, secret.token_sha256, *key),
    )
    return rows[0] if rows else None


async def logins(tx: db.Connection, *, paused: bool = True) -> list[Login]:
    """Who may connect to the broker; without `paused` only who may now."""
    rows = await db.fetch_dicts(
        tx,
        f"""
        select {_DEVICE}, secret_bcrypt, secret_pbkdf2
        from devices d where revoked_at is null and (%s or not exists (
          select from device_pauses p where p.tenant_id = d.tenant_id
            and p.device_id = d.device_id and p.until_at > fn_now()))
        order by tenant_id, device_id
        """,  # noqa: S608 - our own words
        (paused,),
    )
    return [
        Login(
            secret_bcrypt=row.pop("secret_bcrypt"),
            secret_pbkdf2=row.pop("secret_pbkdf2"),
            device=Device(**row),
        )
        for row in rows
    ]


async def with_login(tx: db.Connection, broker_user: str) -> Device | None:
    """The device that has this login at the broker, unless it is revoked."""
    rows = await db.fetch_as(
        tx,
        Device,
        f"select {_DEVICE} from devices where broker_user = %s and revoked_at is null",  # noqa: S608
        (broker_user,),
    )
    return rows[0] if rows else None


async def stations(tx: db.Connection, requested: Sequence[tuple[str, ...]]) -> dict[Any, str]:
    """Stations of these that have a device: (tenant, farm, barn, station) → device."""
    rows = await db.fetch_all(
        tx,
        """
        select d.tenant_id, d.farm_id, d.barn_id, d.station_id, d.device_id
        from devices d
        join unnest(%s::text[], %s::text[], %s::text[], %s::text[])
          as w(tenant_id, farm_id, barn_id, station_id)
          on (w.tenant_id, w.farm_id, w.barn_id, w.station_id)
            = (d.tenant_id, d.farm_id, d.barn_id, d.station_id)
        where d.revoked_at is null
        """,
        *([station[column] for station in requested] for column in range(4)),
    )
    return {row[:4]: row[4] for row in rows}


async def registered(tx: db.Connection, keys: Sequence[Key]) -> set[Key]:
    """Which of these devices are registered and not revoked."""
    rows = await db.fetch_all(
        tx,
        """
        select d.tenant_id, d.device_id from devices d
        join unnest(%s::text[], %s::text[]) as k(tenant_id, device_id)
          on k.tenant_id = d.tenant_id and k.device_id = d.device_id
        where d.revoked_at is null
        """,
        *_columns(keys),
    )
    return {(row[0], row[1]) for row in rows}


async def page(
    tx: db.Connection,
    *,
    after: Key,
    limit: int,
    tenant_id: str | None = None,
    barn_id: str | None = None,
    state: str | None = None,
) -> list[dict[str, Any]]:
    """Devices with their state, by name, behind `after`."""
    return await db.fetch_dicts(
        tx,
        sql.SQL(_SHOWN)
        + sql.SQL("""
            where (d.tenant_id, d.device_id) > (%s, %s)
              and (%s::text is null or d.tenant_id = %s)
              and (%s::text is null or d.barn_id = %s)
              and (%s::text is null or %s = case when d.revoked_at is not null then 'revoked'
                else coalesce(s.state, 'never seen') end)
            order by d.tenant_id, d.device_id limit %s
        """),
        (*after, tenant_id, tenant_id, barn_id, barn_id, state, state, limit),
    )


async def show(tx: db.Connection, key: Key) -> dict[str, Any] | None:
    rows = await db.fetch_dicts(
        tx, sql.SQL(_SHOWN) + sql.SQL("where d.tenant_id = %s and d.device_id = %s"), key
    )
    return rows[0] if rows else None


# --- pauses


async def paused_logins(tx: db.Connection, *, late_s: float = 0.0) -> list[str]:
    """Logins that are paused now, or were until so many seconds ago."""
    rows = await db.fetch_all(
        tx,
        """
        select d.broker_user from device_pauses p
        join devices d on d.tenant_id = p.tenant_id and d.device_id = p.device_id
        where p.until_at > (select fn_now()) - %s * interval '1 second' order by 1
        """,
        late_s,
    )
    return [user for (user,) in rows]


async def last_pause(tx: db.Connection, key: Key) -> tuple[datetime, Pause | None]:
    """(now, the device's last pause, which may be over)."""
    rows = await db.fetch_all(
        tx,
        "select until_at, in_a_row from device_pauses where tenant_id = %s and device_id = %s",
        *key,
    )
    now: datetime = await db.fetch_value(tx, "select fn_now()")
    return now, Pause(*rows[0]) if rows else None


async def pause(tx: db.Connection, key: Key, pause: Pause) -> bool:
    """False if somebody else has paused the device meanwhile."""
    cursor = await tx.execute(
        """
        insert into device_pauses as p (tenant_id, device_id, until_at, in_a_row)
        values (%s, %s, %s, %s)
        on conflict on constraint device_pauses_pkey do update set
          until_at = excluded.until_at, in_a_row = excluded.in_a_row
        where p.until_at <= fn_now()
        """,
        (*key, pause.until_at, pause.in_a_row),
    )
    return cursor.rowcount > 0


# --- states


async def seen(tx: db.Connection, keys: Sequence[Key]) -> None:
    """Messages of these came just now; a device without a state is online."""
    await tx.execute(
        """
        insert into device_state (tenant_id, device_id, state, since, last_seen_at)
        select k.tenant_id, k.device_id, 'online', clock.now, clock.now
        from unnest(%s::text[], %s::text[]) as k(tenant_id, device_id),
          (select fn_now() as now) clock
        on conflict on constraint device_state_pkey do update
          set last_seen_at = excluded.last_seen_at
        """,
        _columns(keys),
    )


async def liveness_of(
    tx: db.Connection, keys: Sequence[Key]
) -> tuple[datetime, dict[Key, Liveness]]:
    """(now, states), locked in one order until the end of the transaction."""
    rows = await db.fetch_dicts(
        tx,
        f"""
        select s.tenant_id, s.device_id, {_LIVENESS} from device_state s
        join unnest(%s::text[], %s::text[]) as k(tenant_id, device_id)
          on k.tenant_id = s.tenant_id and k.device_id = s.device_id
        order by 1, 2 for update of s
        """,  # noqa: S608 - our own words
        _columns(keys),
    )
    now: datetime = await db.fetch_value(tx, "select fn_now()")
    return now, {(row.pop("tenant_id"), row.pop("device_id")): Liveness(**row) for row in rows}


async def all_liveness(tx: db.Connection) -> tuple[datetime, list[tuple[Device, Liveness]]]:
    """(now, every registered device that has a state)."""
    names = ("tenant_id", "farm_id", "barn_id", "device_id", "heartbeat_s")
    rows = await db.fetch_dicts(
        tx,
        f"""
        select {", ".join(f"d.{name}" for name in names)}, {_LIVENESS}
        from device_state s
        join devices d on d.tenant_id = s.tenant_id and d.device_id = s.device_id
        where d.revoked_at is null
        """,  # noqa: S608 - our own words
    )
    now: datetime = await db.fetch_value(tx, "select fn_now()")
    return now, [
        (Device(**{name: row.pop(name) for name in names}), Liveness(**row)) for row in rows
    ]


async def lock_free(tx: db.Connection, keys: Sequence[Key]) -> set[Key]:
    """Lock those of these devices that are not locked; never waits."""
    if not keys:
        return set()
    rows = await db.fetch_all(
        tx,
        """
        select s.tenant_id, s.device_id from device_state s
        join unnest(%s::text[], %s::text[]) as k(tenant_id, device_id)
          on k.tenant_id = s.tenant_id and k.device_id = s.device_id
        for update of s skip locked
        """,
        *_columns(keys),
    )
    return {(row[0], row[1]) for row in rows}


async def store_status(tx: db.Connection, key: Key, after: Liveness, status: DeviceStatus) -> None:
    """Store the state of a device after a status, and the fields of the status."""
    health = status.health
    encoded_health = json.dumps(msgspec.to_builtins(health)) if health else None
    await tx.execute(
        """
        insert into device_state (tenant_id, device_id, state, since, last_seen_at, told_state,
          said_state, said_at, status_event_id, firmware_version, ip, signal_strength, health,
          uptime_s, buffer_depth, battery_v)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
        on conflict on constraint device_state_pkey do update set
          state = excluded.state, since = excluded.since, last_seen_at = excluded.last_seen_at,
          told_state = excluded.told_state, said_state = excluded.said_state,
          said_at = excluded.said_at, status_event_id = excluded.status_event_id,
          firmware_version = coalesce(excluded.firmware_version, device_state.firmware_version),
          ip = coalesce(excluded.ip, device_state.ip),
          signal_strength = coalesce(excluded.signal_strength, device_state.signal_strength),
          health = coalesce(excluded.health, device_state.health),
          uptime_s = coalesce(excluded.uptime_s, device_state.uptime_s),
          buffer_depth = coalesce(excluded.buffer_depth, device_state.buffer_depth),
          battery_v = coalesce(excluded.battery_v, device_state.battery_v)
        """,
        (
            *key, after.state, after.since, after.last_seen_at, after.told_state, after.said_state,
            after.said_at, after.status_event_id, _or_none(status.firmware_version),
            _or_none(status.ip), _or_none(status.signal_strength), encoded_health,
            _or_none(status.uptime_s), _or_none(status.buffer_depth), _or_none(status.battery_v),
        ),
    )  # fmt: skip


async def store_silence(tx: db.Connection, key: Key, before: Liveness, after: Liveness) -> bool:
    """Store the state of a device after silence; False if a message came meanwhile."""
    cursor = await tx.execute(
        """
        update device_state set state = %s, since = %s, told_state = %s
        where tenant_id = %s and device_id = %s and state = %s and last_seen_at = %s
          and said_at is not distinct from %s
        """,
        (
            after.state, after.since, after.told_state, *key, before.state, before.last_seen_at,
            before.said_at,
        ),
    )  # fmt: skip
    return cursor.rowcount > 0


async def all_stations(tx: db.Connection) -> list[Key]:
    """Weigh stations that are not revoked."""
    rows = await db.fetch_all(
        tx,
        "select tenant_id, device_id from devices "
        "where station_id is not null and revoked_at is null order by 1, 2",
    )
    return [(tenant_id, device_id) for tenant_id, device_id in rows]


# --- commands


async def queue_command(
    tx: db.Connection,
    key: Key,
    *,
    command_id: UUID,
    name: str,
    args: dict[str, Any],
    ttl_s: int,
    created_by: str,
) -> None:
    await tx.execute(
        """
        insert into device_commands (command_id, tenant_id, device_id, name, args, created_by,
          created_at, expires_at)
        select %s, %s, %s, %s, %s, %s, now, now + make_interval(secs => %s)
        from (select fn_now() as now) clock
        """,
        (command_id, *key, name, json.dumps(args), created_by, ttl_s),
    )


async def command_to_send(tx: db.Connection, *, again_s: float) -> dict[str, Any] | None:
    """The oldest command that was not tried yet or has no answer; marks it as tried now."""
    rows = await db.fetch_dicts(
        tx,
        """
        update device_commands c set tried_at = fn_now()
        from devices d
        where d.tenant_id = c.tenant_id and d.device_id = c.device_id and c.command_id = (
          select o.command_id from device_commands o
          join devices r on r.tenant_id = o.tenant_id and r.device_id = o.device_id
          where o.state in ('queued', 'sent') and o.expires_at > (select fn_now())
            and r.revoked_at is null
            and coalesce(o.tried_at, o.sent_at, '-infinity')
              <= (select fn_now()) - make_interval(secs => %s)
          order by o.created_at limit 1
          for update of o skip locked)
        returning c.command_id, c.tenant_id, d.farm_id, d.barn_id, c.device_id, c.name, c.args,
          c.created_at, c.expires_at
        """,
        (again_s,),
    )
    return rows[0] if rows else None


async def clear_try(tx: db.Connection, command_id: UUID) -> None:
    """The broker did not accept it: the next round tries again."""
    await tx.execute(
        "update device_commands set tried_at = null where command_id = %s", (command_id,)
    )


async def mark_sent(tx: db.Connection, command_id: UUID) -> None:
    """The broker has it; an answer that came meanwhile stays."""
    await tx.execute(
        "update device_commands set sent_at = fn_now(), sent_count = sent_count + 1, "
        "state = case when state = 'queued' then 'sent' else state end where command_id = %s",
        (command_id,),
    )


async def expire_commands(tx: db.Connection) -> int:
    cursor = await tx.execute(
        "update device_commands set state = 'expired', ended_at = fn_now() "
        "where state in ('queued', 'sent', 'delivered') and expires_at <= (select fn_now())"
    )
    return cursor.rowcount


async def command_state(tx: db.Connection, command_id: UUID, key: Key) -> CommandState | None:
    """The state of a command of this device, locked until the end of the transaction."""
    state: CommandState | None = await db.fetch_value(
        tx,
        "select state from device_commands "
        "where command_id = %s and tenant_id = %s and device_id = %s for update",
        command_id,
        *key,
    )
    return state


async def store_answer(
    tx: db.Connection, command_id: UUID, *, outcome: CommandOutcome, message: str | None
) -> None:
    await tx.execute(
        """
        update device_commands set state = %s, message = coalesce(%s, message),
          delivered_at = coalesce(delivered_at, fn_now()),
          ended_at = case when %s = 'delivered' then ended_at else fn_now() end
        where command_id = %s
        """,
        (outcome, message, outcome, command_id),
    )


async def command(tx: db.Connection, command_id: UUID) -> dict[str, Any] | None:
    rows = await db.fetch_dicts(
        tx,
        "select command_id, tenant_id, device_id, name, args, state, message, created_by, "
        "created_at, expires_at, sent_at, sent_count, delivered_at, ended_at "
        "from device_commands where command_id = %s",
        (command_id,),
    )
    return rows[0] if rows else None


async def commands_of(tx: db.Connection, key: Key, *, limit: int) -> list[dict[str, Any]]:
    return await db.fetch_dicts(
        tx,
        "select command_id, name, state, message, created_by, created_at, expires_at, sent_at, "
        "sent_count, delivered_at, ended_at from device_commands "
        "where tenant_id = %s and device_id = %s order by created_at desc limit %s",
        (*key, limit),
    )


def _columns(keys: Sequence[Key]) -> tuple[list[str], list[str]]:
    return [tenant_id for tenant_id, _ in keys], [device_id for _, device_id in keys]


def _or_none(value: Any) -> Any:
    return None if value is msgspec.UNSET else value
