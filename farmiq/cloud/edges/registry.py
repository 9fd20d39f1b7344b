"""The registry's SQL: invite, enrol, rotate, revoke, list, heartbeats. Actions are audited."""

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from psycopg.rows import class_row, dict_row

from farmiq.messages.ids import Id, Instant
from farmiq.messages.kinds import Count
from farmiq.plumbing import db, ids, tokens

# No letters that look like others (0 O, 1 I L), none that is hard to say apart.
CODE_LETTERS = "ABCDEFGHJKMNPQRSTVWXYZ23456789"
CODE_LENGTH = 25
_GROUP = 5
_Word = Annotated[str, Meta(max_length=64)]


class NotAllowedError(Exception):
    """The code, the key or the tenant is not valid for this; the text says why."""


class KnownKeyError(Exception):
    """The key is registered already; the text says what to do."""


class EdgeHeartbeat(msgspec.Struct, kw_only=True):
    """How one tenant's delivery and the edge's machine are.

    Outside of the outbox: if it does not get through, nobody sends it again. `open_alerts` counts
    those that this tenant was told of; older edges send no totals.
    """

    tenant_id: Id
    sent_at: Instant
    versions: Annotated[dict[_Word, _Word], Meta(max_length=16)]
    waiting: Count
    oldest_s: Annotated[float, Meta(ge=0, le=1e12)]
    dlq: Count
    disk_percent: Annotated[float, Meta(ge=0, le=100)]
    open_alerts: Count | None = None
    quarantine: Count | None = None
    losses: Count | None = None
    farms: Annotated[list[Id], Meta(max_length=200)] | None = None


@dataclass(frozen=True, slots=True)
class Registration:
    """An edge as it was registered."""

    edge_cluster_id: str
    tenants: tuple[str, ...]
    key_id: str
    old_key_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class RegisteredKey:
    """A key of an edge for one tenant. `good`: it was valid when it was read."""

    tenant_id: str
    edge_cluster_id: str
    public_x: str
    good: bool
    revoked: bool
    replaced_by: str | None


async def invite(
    tx: db.Connection, edge_cluster_id: str, tenants: Sequence[str], *, lasts: timedelta, actor: str
) -> tuple[str, datetime]:
    """Returns a code and when it expires. Raises NotAllowedError for an unknown tenant."""
    await _must_be_companies(tx, tenants)
    letters = "".join(secrets.choice(CODE_LETTERS) for _ in range(CODE_LENGTH))
    rows = await db.fetch_all(
        tx,
        """
        insert into edge_invites (code_hash, tenant_id, edge_cluster_id, made_by, made_at,
          expires_at)
        select %s, tenant_id, %s, %s, fn_now(), fn_now() + %s from unnest(%s::text[]) t(tenant_id)
        returning expires_at
        """,
        _digest(letters),
        edge_cluster_id,
        actor,
        lasts,
        sorted(set(tenants)),
    )
    await _audit(tx, "invite", actor, edge_cluster_id, sorted(set(tenants)))
    return _written(letters), rows[0][0]


async def enroll(tx: db.Connection, typed_code: str, public: tokens.PublicKey) -> Registration:
    """Register a key by its invitation. Raises NotAllowedError or KnownKeyError.

    The same key with the same code gets the same answer: the first one may have been lost.
    """
    invited = await _use_code(tx, typed_code, public.key_id)
    if invited is None:
        return await _repeat_answer(tx, typed_code, public.key_id)
    edge_cluster_id, tenants = invited
    await _insert_key(tx, public, edge_cluster_id, tenants)
    await _audit(tx, "enroll", f"edge:{edge_cluster_id}", edge_cluster_id, tenants, public.key_id)
    return Registration(edge_cluster_id, tuple(tenants), public.key_id)


async def rotate(
    tx: db.Connection, old_key_id: str, public: tokens.PublicKey, *, overlap: timedelta
) -> Registration:
    """Register the next key for the tenants of the old one, which stays valid for `overlap`.

    Repeating it with the same new key changes nothing; a key is replaced only once.
    Raises NotAllowedError or KnownKeyError.
    """
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, edge_cluster_id, replaced_by from edge_keys
        where key_id = %s and revoked_at is null
          and (valid_until is null or valid_until > fn_now())
        order by tenant_id for update
        """,
        old_key_id,
    )
    if not rows:
        raise NotAllowedError("this key is not good any more")
    if public.key_id == old_key_id:
        raise KnownKeyError("this is the key that signed the request: send another")
    if replaced_by := next((row[2] for row in rows if row[2] not in (None, public.key_id)), None):
        raise KnownKeyError(
            f"this key was replaced by {replaced_by} already; if nobody of yours did that, end "
            "this edge's keys (farmiq edge revoke) and enrol it again"
        )
    edge_cluster_id, tenants = rows[0][1], [row[0] for row in rows]
    if not await _is_of(tx, public.key_id, edge_cluster_id, tenants):
        await _insert_key(tx, public, edge_cluster_id, tenants)
        await _audit(
            tx, "rotate", f"edge:{edge_cluster_id}", edge_cluster_id, tenants, public.key_id
        )
    until: datetime = await db.fetch_value(
        tx,
        """
        with ended as (
          update edge_keys set valid_until = least(valid_until, fn_now() + %s), replaced_by = %s
          where key_id = %s and revoked_at is null returning valid_until
        )
        select max(valid_until) from ended
        """,
        overlap,
        public.key_id,
        old_key_id,
    )
    return Registration(edge_cluster_id, tuple(tenants), public.key_id, until)


async def add_tenants(
    tx: db.Connection,
    edge_cluster_id: str,
    tenants: Sequence[str],
    *,
    key_id: str | None,
    actor: str,
) -> list[tuple[str, str]]:
    """Register the valid keys of an edge for more tenants; returns the new (key, tenant) pairs.

    Raises NotAllowedError if there is no such key, or if the keys have different tenants: then one
    key has to be named.
    """
    await _must_be_companies(tx, tenants)
    rows = await db.fetch_all(
        tx,
        """
        select key_id, array_agg(tenant_id order by tenant_id) from edge_keys
        where edge_cluster_id = %s and (%s::text is null or key_id = %s) and revoked_at is null
          and (valid_until is null or valid_until > fn_now())
        group by key_id
        """,
        edge_cluster_id,
        key_id,
        key_id,
    )
    if not rows:
        raise NotAllowedError(
            f"{edge_cluster_id!r} has no such good key: enrol it (farmiq edge invite)"
        )
    if len({tuple(row[1]) for row in rows}) > 1:
        raise NotAllowedError(
            f"the keys of {edge_cluster_id!r} speak for different tenants: say which with --key "
            f"(farmiq edge show {edge_cluster_id})"
        )
    added = await db.fetch_all(
        tx,
        """
        insert into edge_keys as k (key_id, tenant_id, edge_cluster_id, public_x, enrolled_at,
          valid_until, replaced_by)
        select distinct o.key_id, t.tenant_id, o.edge_cluster_id, o.public_x, fn_now(),
          o.valid_until, o.replaced_by
        from edge_keys o, unnest(%s::text[]) t(tenant_id)
        where o.key_id = any(%s) and o.revoked_at is null
        on conflict on constraint edge_keys_pkey do update
          set revoked_at = null, valid_until = excluded.valid_until
          where k.revoked_at is not null
        returning key_id, tenant_id
        """,
        sorted(set(tenants)),
        [row[0] for row in rows],
    )
    for key, tenant in sorted(added):
        await _audit(tx, "grant", actor, edge_cluster_id, [tenant], key)
    return sorted((row[0], row[1]) for row in added)


async def revoke(
    tx: db.Connection,
    edge_cluster_id: str,
    *,
    tenant_id: str | None,
    key_id: str | None,
    actor: str,
) -> list[tuple[str, str]]:
    """End keys of an edge, and its open invitations if no key is named; returns (key, tenant)."""
    rows = await db.fetch_all(
        tx,
        """
        update edge_keys set revoked_at = fn_now()
        where edge_cluster_id = %s and revoked_at is null
          and (%s::text is null or tenant_id = %s) and (%s::text is null or key_id = %s)
        returning key_id, tenant_id
        """,
        edge_cluster_id,
        tenant_id,
        tenant_id,
        key_id,
        key_id,
    )
    if key_id is None:
        await tx.execute(
            "update edge_invites set expires_at = least(expires_at, fn_now()) "
            "where edge_cluster_id = %s and used_at is null "
            "and (%s::text is null or tenant_id = %s)",
            (edge_cluster_id, tenant_id, tenant_id),
        )
    for key, tenant in rows:
        await _audit(tx, "revoke", actor, edge_cluster_id, [tenant], key)
    return sorted((row[0], row[1]) for row in rows)


async def registrations(connection: db.Connection, key_id: str) -> list[RegisteredKey]:
    """The registrations of a key, also those that are not valid any more."""
    async with connection.cursor(row_factory=class_row(RegisteredKey)) as cursor:
        await cursor.execute(
            """
            select tenant_id, edge_cluster_id, public_x, replaced_by,
              revoked_at is not null as revoked,
              revoked_at is null and (valid_until is null or valid_until > fn_now()) as good
            from edge_keys where key_id = %s
            """,
            (key_id,),
        )
        return await cursor.fetchall()


async def valid_keys(connection: db.Connection) -> list[dict[str, str]]:
    """The public keys that are valid now, as in a JWKS."""
    rows = await db.fetch_all(
        connection,
        """
        select distinct key_id, public_x from edge_keys
        where revoked_at is null and (valid_until is null or valid_until > fn_now())
        order by key_id
        """,
    )
    return [tokens.PublicKey(x).as_jwk() for _, x in rows]


# A heartbeat comes every minute (SYNC_HEARTBEAT_SECONDS); three in a row are missing.
SILENT_AFTER = timedelta(minutes=3)
STATES = ("never heard", "heard", "silent")


async def list_edges(
    connection: db.Connection, *, edge_cluster_id: str | None = None
) -> list[dict[str, Any]]:
    """Edges by tenant, with their keys and last heartbeats, as far as the caller may see them."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            """
            select tenant_id, edge_cluster_id, k.keys,
              case when h.tenant_id is null then 'never heard'
                when h.received_at < fn_now() - %(silent)s then 'silent' else 'heard' end as state,
              case when h.tenant_id is not null then
                to_jsonb(h) - 'tenant_id' - 'edge_cluster_id' || jsonb_build_object(
                  'alerts_missing', fn_edge_alerts_missing(h.tenant_id, h.edge_cluster_id))
              end as heartbeat
            from (
              select tenant_id, edge_cluster_id, jsonb_agg(jsonb_build_object(
                'key_id', key_id, 'enrolled_at', enrolled_at, 'valid_until', valid_until,
                'revoked_at', revoked_at, 'replaced_by', replaced_by,
                'good', revoked_at is null and (valid_until is null or valid_until > fn_now())
              ) order by enrolled_at, key_id) as keys
              from edge_keys group by 1, 2
            ) k
            full join edge_heartbeats h using (tenant_id, edge_cluster_id)
            where %(edge)s::text is null or edge_cluster_id = %(edge)s
            order by edge_cluster_id, tenant_id
            """,
            {"silent": SILENT_AFTER, "edge": edge_cluster_id},
        )
        rows = await cursor.fetchall()
    return [
        {
            **row,
            "keys": [_with_datetimes(key) for key in row["keys"] or []],
            "heartbeat": row["heartbeat"] and _with_datetimes(row["heartbeat"]),
        }
        for row in rows
    ]


def _with_datetimes(values: dict[str, Any]) -> dict[str, Any]:
    """JSON of the database has times as text in the session's zone: parse them."""
    return {
        name: datetime.fromisoformat(value) if value and name in _DATETIMES else value
        for name, value in values.items()
    }


_DATETIMES = {"enrolled_at", "valid_until", "revoked_at", "received_at", "sent_at"}


async def actions(connection: db.Connection, edge_cluster_id: str) -> list[dict[str, Any]]:
    """The audit log of an edge, newest first."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            "select at, actor, action, tenant_id, key_id from edge_actions "
            "where edge_cluster_id = %s order by at desc, action_id desc limit 100",
            (edge_cluster_id,),
        )
        return await cursor.fetchall()


async def _must_be_companies(tx: db.Connection, tenants: Sequence[str]) -> None:
    rows = await db.fetch_all(
        tx, "select tenant_id from companies where tenant_id = any(%s)", list(tenants)
    )
    if missing := sorted(set(tenants) - {row[0] for row in rows}):
        raise NotAllowedError(
            f"there is no company {missing[0]!r}; add it with `farmiq company add` first"
        )


async def _use_code(
    tx: db.Connection, typed_code: str, key_id: str
) -> tuple[str, list[str]] | None:
    """Use the code up; None if it was used before. Raises NotAllowedError if it is not valid."""
    rows = await db.fetch_all(
        tx,
        """
        update edge_invites set used_at = fn_now(), key_id = %s
        where code_hash = %s and used_at is null and expires_at > fn_now()
        returning edge_cluster_id, tenant_id
        """,
        key_id,
        _digest(typed_code),
    )
    if rows:
        return rows[0][0], sorted(row[1] for row in rows)
    used = await db.fetch_value(
        tx,
        "select bool_or(used_at is not null) from edge_invites where code_hash = %s",
        _digest(typed_code),
    )
    if used is None:
        raise NotAllowedError("nobody made this code: check it, or ask for another")
    if not used:
        raise NotAllowedError("this code is over: ask for another (farmiq edge invite)")
    return None


async def _repeat_answer(tx: db.Connection, typed_code: str, key_id: str) -> Registration:
    rows = await db.fetch_all(
        tx,
        "select edge_cluster_id, tenant_id from edge_invites "
        "where code_hash = %s and key_id = %s order by tenant_id",
        _digest(typed_code),
        key_id,
    )
    if not rows:
        raise NotAllowedError("this code was used already, by another key: ask for another")
    return Registration(rows[0][0], tuple(row[1] for row in rows), key_id)


async def _insert_key(
    tx: db.Connection, public: tokens.PublicKey, edge_cluster_id: str, tenants: Sequence[str]
) -> None:
    # Of two requests with the same key at once, the second waits and sees the first.
    await tx.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", (public.key_id,))
    if await registrations(tx, public.key_id):
        raise KnownKeyError(
            "this key is registered already: a key is enrolled once; make a new one for this edge"
        )
    await tx.execute(
        """
        insert into edge_keys (key_id, tenant_id, edge_cluster_id, public_x, enrolled_at)
        select %s, tenant_id, %s, %s, fn_now() from unnest(%s::text[]) t(tenant_id)
        """,
        (public.key_id, edge_cluster_id, public.text, list(tenants)),
    )


async def _is_of(
    tx: db.Connection, key_id: str, edge_cluster_id: str, tenants: Sequence[str]
) -> bool:
    """Whether the key is registered for this edge and valid for all of these tenants."""
    keys = await registrations(tx, key_id)
    good = {key.tenant_id for key in keys if key.good}
    return good >= set(tenants) and {key.edge_cluster_id for key in keys} == {edge_cluster_id}


async def _audit(  # noqa: PLR0917 - the columns, in their order
    tx: db.Connection,
    action: str,
    actor: str,
    edge_cluster_id: str,
    tenants: Sequence[str],
    key_id: str | None = None,
) -> None:
    await tx.execute(
        """
        insert into edge_actions (action_id, at, actor, action, tenant_id, edge_cluster_id, key_id)
        select e.action_id, fn_now(), %s, %s, e.tenant_id, %s, %s
        from unnest(%s::uuid[], %s::text[]) e(action_id, tenant_id)
        """,
        (actor, action, edge_cluster_id, key_id, [ids.new() for _ in tenants], list(tenants)),
    )


def _written(letters: str) -> str:
    """A code in groups, as it is printed."""
    return "-".join(letters[at : at + _GROUP] for at in range(0, len(letters), _GROUP))


def _digest(typed: str) -> bytes:
    """The same however the code was typed."""
    normal = "".join(typed.split()).replace("-", "").upper()
    return hashlib.sha256(normal.encode(errors="replace")).digest()


async def store_heartbeat(
    tx: db.Connection, edge_cluster_id: str, heartbeat: EdgeHeartbeat
) -> None:
    """Raises NotAllowedError for a tenant that is no company here (C-104)."""
    cursor = await tx.execute(
        """
        insert into edge_heartbeats as h (tenant_id, edge_cluster_id, received_at, sent_at,
          clock_offset_s, versions, waiting, oldest_s, dlq, disk_percent, open_alerts, quarantine,
          dead_letters, losses, farms)
        select tenant_id, %(edge)s, fn_now(), %(sent_at)s,
          extract(epoch from %(sent_at)s - fn_now()), %(versions)s, %(waiting)s, %(oldest_s)s,
          %(dlq)s, %(disk)s, %(open_alerts)s, %(quarantine)s, %(dlq)s, %(losses)s, %(farms)s
        from companies where tenant_id = %(tenant)s
        on conflict on constraint edge_heartbeats_pkey do update set
          received_at = excluded.received_at, sent_at = excluded.sent_at,
          clock_offset_s = excluded.clock_offset_s, versions = excluded.versions,
          waiting = excluded.waiting, oldest_s = excluded.oldest_s, dlq = excluded.dlq,
          disk_percent = excluded.disk_percent, open_alerts = excluded.open_alerts,
          quarantine = excluded.quarantine, dead_letters = excluded.dead_letters,
          losses = excluded.losses, farms = excluded.farms
        """,
        {
            "tenant": heartbeat.tenant_id,
            "edge": edge_cluster_id,
            "sent_at": heartbeat.sent_at,
            "versions": json.dumps(heartbeat.versions),
            "waiting": heartbeat.waiting,
            "oldest_s": heartbeat.oldest_s,
            "dlq": heartbeat.dlq,
            "disk": heartbeat.disk_percent,
            "open_alerts": heartbeat.open_alerts,
            "quarantine": heartbeat.quarantine,
            "losses": heartbeat.losses,
            "farms": heartbeat.farms,
        },
    )
    if not cursor.rowcount:
        raise NotAllowedError(f"tenant {heartbeat.tenant_id!r} is not registered here")
    await _add_to_hour(tx, edge_cluster_id, heartbeat)
    await tx.execute(
        "select pg_notify('delivery_changed', company_id::text) from companies "
        "where tenant_id = %s",
        (heartbeat.tenant_id,),
    )


async def _add_to_hour(tx: db.Connection, edge_cluster_id: str, heartbeat: EdgeHeartbeat) -> None:
    """Keep the worst of this hour: the heartbeat itself is replaced by the next."""
    await tx.execute(
        """
        insert into edge_hours as e (tenant_id, edge_cluster_id, hour, heartbeats, max_waiting,
          max_oldest_s, max_disk_percent, max_clock_offset_s)
        values (%(tenant)s, %(edge)s, date_trunc('hour', fn_now(), 'UTC'), 1, %(waiting)s,
          %(oldest_s)s, %(disk)s, extract(epoch from %(sent_at)s - fn_now()))
        on conflict on constraint edge_hours_pkey do update set
          heartbeats = e.heartbeats + 1,
          max_waiting = greatest(e.max_waiting, excluded.max_waiting),
          max_oldest_s = greatest(e.max_oldest_s, excluded.max_oldest_s),
          max_disk_percent = greatest(e.max_disk_percent, excluded.max_disk_percent),
          max_clock_offset_s = case
            when abs(excluded.max_clock_offset_s) > coalesce(abs(e.max_clock_offset_s), 0)
            then excluded.max_clock_offset_s else e.max_clock_offset_s end
        """,
        {
            "tenant": heartbeat.tenant_id,
            "edge": edge_cluster_id,
            "waiting": heartbeat.waiting,
            "oldest_s": heartbeat.oldest_s,
            "disk": heartbeat.disk_percent,
            "sent_at": heartbeat.sent_at,
        },
    )
