"""Register cameras and make their logins, one by one or all of a CSV file.

A camera's secret is printed once and stored as a hash. It has 192 random bits, so a cheap hash is
enough: after a restart of the broker a whole fleet logs in within seconds.
"""

import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Annotated, Any
from uuid import UUID

import bcrypt
import msgspec
from msgspec import Meta
from psycopg.types.json import Jsonb

from farmiq import roster
from farmiq.cloud.camera import mac
from farmiq.plumbing import db, ids
from farmiq.roster import Problem, RosterError

_BCRYPT_COST = 4


class NoCameraError(Exception):
    """No camera in use has this MAC address, or it is not clear which one is meant."""


# --- one login


async def make_login(
    tx: db.Connection, mac: str, *, made_by: str, tenant_id: str | None = None, move: bool = False
) -> str:
    """Make a new secret for a camera; older logins under its address end, in all companies.

    Where several companies have registered the address, `tenant_id` says whose it is; `move` takes
    it from a company whose camera was heard. Raises NoCameraError.
    """
    device_id = await _choose(tx, mac, tenant_id, move=move)
    secret, secret_bcrypt = _new_secret()
    await _store_logins(tx, [device_id], [secret_bcrypt], made_by=made_by)
    return secret


async def _choose(tx: db.Connection, mac: str, tenant_id: str | None, *, move: bool) -> UUID:
    """Lock all registrations of an address and choose the one that gets the login."""
    rows = await db.fetch_all(
        tx,
        """
        select d.device_id, c.tenant_id, d.proven_at is not null
        from devices d join companies c on c.company_id = d.company_id
        where d.mac = %s and d.is_active order by d.device_id for update of d
        """,
        mac,
    )
    proven = next((row for row in rows if row[2]), None)
    wanted = [row for row in rows if tenant_id in (None, row[1])]
    if not wanted:
        whose = f" of {tenant_id}" if tenant_id else ""
        raise NoCameraError(f"no camera {mac}{whose} is registered and in use")
    if tenant_id is None and proven is None and len(wanted) > 1:
        names = ", ".join(sorted(row[1] for row in wanted))
        raise NoCameraError(
            f"{names} have registered {mac}: find out whose it is and say --company"
        )
    chosen = proven if tenant_id is None and proven is not None else wanted[0]
    if proven is not None and proven[0] != chosen[0]:
        if not move:
            raise NoCameraError(
                f"{mac} is heard as a camera of {proven[1]}: retire it there, or say --move"
            )
        await tx.execute("update devices set proven_at = null where device_id = %s", (proven[0],))
    device_id: UUID = chosen[0]
    return device_id


async def revoke_login(tx: db.Connection, mac: str) -> None:
    """The broker disconnects the camera when it reads the logins again. Raises NoCameraError."""
    cursor = await tx.execute(
        """
        update camera_logins l set revoked_at = coalesce(l.revoked_at, fn_now())
        from devices d where d.device_id = l.device_id and d.mac = %s and d.is_active
        """,
        (mac,),
    )
    if cursor.rowcount == 0:
        raise NoCameraError(f"camera {mac} has no login")


async def list_cameras(tx: db.Connection) -> list[dict[str, Any]]:
    return await db.fetch_dicts(
        tx,
        """
        select d.mac, d.device_name as name, d.dialect, c.name as company, d.last_seen_at,
          s.state, l.made_at, l.revoked_at,
          case when l.paused_until > fn_now() then l.paused_until end as paused_until,
          d.proven_at
        from devices d join companies c on c.company_id = d.company_id
        left join camera_states s on s.device_id = d.device_id
        left join camera_logins l on l.device_id = d.device_id
        where d.is_active order by c.name, d.device_name
        """,
    )


def _new_secret() -> tuple[str, str]:
    """(the secret, its hash); no spreadsheet takes its first character for a formula's."""
    secret = secrets.token_urlsafe(24)
    while not secret[0].isalnum():
        secret = secrets.token_urlsafe(24)
    return secret, bcrypt.hashpw(secret.encode(), bcrypt.gensalt(_BCRYPT_COST, b"2a")).decode()


async def _store_logins(
    tx: db.Connection, device_ids: Sequence[UUID], hashes: Sequence[str], *, made_by: str
) -> None:
    await tx.execute(
        """
        insert into camera_logins (device_id, company_id, secret_bcrypt, made_by, made_at)
        select d.device_id, d.company_id, n.secret_bcrypt, %s, fn_now()
        from unnest(%s::uuid[], %s::text[]) n(device_id, secret_bcrypt)
        join devices d on d.device_id = n.device_id
        on conflict on constraint camera_logins_pkey do update set
          secret_bcrypt = excluded.secret_bcrypt, made_by = excluded.made_by,
          made_at = excluded.made_at, revoked_at = null
        """,
        (made_by, list(device_ids), list(hashes)),
    )
    await tx.execute(
        """
        update camera_logins l set revoked_at = coalesce(l.revoked_at, fn_now())
        from devices d join devices n on n.mac = d.mac and n.device_id = any(%(ids)s)
        where d.device_id = l.device_id and l.device_id <> all(%(ids)s)
        """,
        {"ids": list(device_ids)},
    )


# --- a CSV file

_Text = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$",
    ),
]
_Metres = Annotated[float, Meta(ge=-1_000_000, le=1_000_000)]
# The columns of an import file; the first three are needed.
_TYPES: Mapping[str, Any] = {
    "tenant_id": _Text,
    "mac": Annotated[str, Meta(max_length=32)],
    "device_name": _Text,
    "site_name": _Text,
    "wake_schedule_cron": Annotated[str, Meta(min_length=9, max_length=200)],
    "dialect": Annotated[str, Meta(pattern="^(standard|esp32cam)$")],
    "slot_index": Annotated[int, Meta(ge=1, le=1_000_000)],
    "x_position": _Metres,
    "y_position": _Metres,
    "firmware": _Text,
}
_NEEDED = tuple(_TYPES)[:3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """`mac` is twelve hexadecimal digits in upper case; `line` is where it is in the file."""

    line: int
    tenant_id: str
    mac: str
    device_name: str
    site_name: str | None = None
    wake_schedule_cron: str | None = None
    dialect: str = "standard"
    slot_index: int | None = None
    x_position: float | None = None
    y_position: float | None = None
    firmware: str | None = None


def read(text: str) -> list[Camera]:
    """Raises RosterError with every problem."""
    rows, problems = roster.rows(text, columns=tuple(_TYPES), needed=_NEEDED, of="camera")
    cameras: list[Camera] = []
    first: dict[tuple[str, ...], int] = {}
    for line, cells in rows:
        values, reasons = _values(cells)
        if not reasons:
            camera = Camera(line=line, **values)
            cameras.append(camera)
            # One company registers an address, and a name, once.
            for field, value in (("mac", camera.mac), ("device_name", camera.device_name.lower())):
                before = first.setdefault((camera.tenant_id, field, value), line)
                reasons += [(field, f"stands in line {before} already")] if before != line else []
        problems += [Problem(line, field, reason) for field, reason in reasons]
    if problems:
        raise RosterError(problems)
    return cameras


def _values(cells: Mapping[str, str]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    values: dict[str, Any] = {}
    reasons = [(name, "is missing") for name in _NEEDED if not cells[name]]
    for name, cell in cells.items():
        if not cell:
            continue
        try:
            values[name] = msgspec.convert(cell, _TYPES[name], strict=False)
            if name == "mac":
                values[name] = mac.normal(cell)
        except msgspec.ValidationError as error:
            reasons.append((name, f"{cell[:40]!r} is not possible: {error}"))
        except ValueError as error:
            reasons.append((name, f"{cell[:40]!r} {error}"))
    return values, reasons


async def problems(tx: db.Connection, cameras: Sequence[Camera]) -> list[Problem]:
    """Why the database cannot take these cameras; also those heard as another company's."""
    rows = await db.fetch_all(
        tx,
        """
        with n as materialized (
          select * from jsonb_to_recordset(%s) n(line integer, tenant_id text, mac text,
            device_name text, site_name text, wake_schedule_cron text)
        ), crons as (
          select cron, fn_cron_problem(cron) as problem
          from (select distinct wake_schedule_cron from n) n(cron) where cron is not null
        )
        select n.line, 'tenant_id', format('there is no company %%L', n.tenant_id) from n
        where not exists (select from companies c where c.tenant_id = n.tenant_id)
        union all
        select n.line, 'site_name', format('%%s has no site %%L', n.tenant_id, n.site_name)
        from n join companies c on c.tenant_id = n.tenant_id
        where n.site_name is not null and not exists (
          select from sites s where s.company_id = c.company_id
            and lower(s.site_name) = lower(n.site_name))
        union all
        select n.line, 'wake_schedule_cron', k.problem
        from n join crons k on k.cron = n.wake_schedule_cron where k.problem is not null
        union all
        select n.line, case when d.company_id <> c.company_id or (d.mac = n.mac and d.is_active)
            then 'mac' else 'device_name' end,
          case when d.company_id <> c.company_id
            then format('is heard as a camera of %%s: retire it there first', o.tenant_id)
          when d.mac = n.mac and d.is_active
            then format('is registered already, as %%s', d.device_name)
          else 'is the name of another camera already' end
        from n join companies c on c.tenant_id = n.tenant_id
        join devices d on (d.mac = n.mac and d.is_active
            and (d.company_id = c.company_id or d.proven_at is not null))
          or (d.company_id = c.company_id and lower(d.device_name) = lower(n.device_name))
        join companies o on o.company_id = d.company_id
        """,
        Jsonb([asdict(camera) for camera in cameras]),
    )
    return [Problem(*row) for row in rows]


async def register(
    tx: db.Connection, cameras: Sequence[Camera], *, made_by: str
) -> list[tuple[Camera, str]]:
    """Register cameras without `problems`; returns the secret of each.

    Their first schedule counts from the next day that opens.
    """
    # bcrypt releases the interpreter's lock.
    with ThreadPoolExecutor() as threads:
        made = list(threads.map(lambda _: _new_secret(), cameras))
    device_ids = [ids.new() for _ in cameras]
    await tx.execute(
        """
        insert into devices (device_id, company_id, site_id, mac, device_name, dialect,
          wake_schedule_cron, slot_index, x_position, y_position, firmware)
        select n.device_id, c.company_id, s.site_id, n.mac, n.device_name, n.dialect,
          n.wake_schedule_cron, n.slot_index, n.x_position, n.y_position, n.firmware
        from jsonb_to_recordset(%s) n(device_id uuid, tenant_id text, mac text, device_name text,
          site_name text, dialect text, wake_schedule_cron text, slot_index integer,
          x_position float8, y_position float8, firmware text)
        join companies c on c.tenant_id = n.tenant_id
        left join sites s on s.company_id = c.company_id
          and lower(s.site_name) = lower(n.site_name)
        """,
        (
            Jsonb([
                {"device_id": str(device_id), **asdict(camera)}
                for device_id, camera in zip(device_ids, cameras, strict=True)
            ]),
        ),
    )  # fmt: skip
    await _store_logins(tx, device_ids, [hashed for _, hashed in made], made_by=made_by)
    return [(camera, secret) for camera, (secret, _) in zip(cameras, made, strict=True)]
