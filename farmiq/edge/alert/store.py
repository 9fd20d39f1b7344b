"""Local alerts' SQL: how far series were read, what is open, sirens and mails."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from farmiq.edge.alert.rules import LocalAlert, Reading, RuleState, Series
from farmiq.farm.alerts.evaluation import Sample
from farmiq.plumbing import db

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Tracked:
    """A series with how far it was read, by the time of readings and by that of their arrival.

    `heard_at` is when something of it came last, however old.
    """

    series: Series
    read_to: datetime
    ingested_to: datetime
    is_new: bool
    heard_at: datetime


async def begin(tx: db.Connection) -> datetime | None:
    """What time it is; None while another process evaluates."""
    rows = await db.fetch_all(
        tx, "select pg_try_advisory_xact_lock(hashtext('edge-alert-rules')), fn_now()"
    )
    is_ours, now = rows[0]
    return now if is_ours else None


async def context_tags(tx: db.Connection) -> dict[str, str | None]:
    """Each tenant that has devices, with the tag of its copy of the cloud's master data."""
    rows = await db.fetch_all(
        tx,
        """
        select d.tenant_id, c.etag
        from (select distinct tenant_id from devices where revoked_at is null) d
          left join cloud_contexts c using (tenant_id)
        """,
    )
    return dict(rows)


async def context(tx: db.Connection, tenant_id: str) -> Any:
    return await db.fetch_value(
        tx, "select content from cloud_contexts where tenant_id = %s", tenant_id
    )


async def tracked(
    tx: db.Connection, metrics: Collection[str], *, read_from: datetime
) -> list[Tracked]:
    """Every series of these metrics whose device is registered, as it was left."""
    rows = await db.fetch_all(
        tx,
        """
        select l.tenant_id, l.device_id, l.metric_type, coalesce(s.farm_id, l.farm_id),
          coalesce(s.barn_id, l.barn_id), s.read_to, s.ingested_to,
          case when s.tenant_id is null then l.newest_at else s.last_at end,
          case when s.tenant_id is null then l.metric_value else s.last_value end, s.states,
          greatest(l.ingested_at, s.ingested_to)
        from telemetry_latest l
          join devices d on d.tenant_id = l.tenant_id and d.device_id = l.device_id
            and d.revoked_at is null
          left join alert_series s on s.tenant_id = l.tenant_id and s.device_id = l.device_id
            and s.metric_type = l.metric_type
        where l.metric_type = any(%s)
        """,
        list(metrics),
    )
    return [_tracked(row, read_from) for row in rows]


def _tracked(row: Sequence[Any], read_from: datetime) -> Tracked:
    tenant_id, device_id, metric_type, farm_id, barn_id, read_to, ingested_to, *rest = row
    last_at, last_value, states, heard_at = rest
    is_new = read_to is None
    # A series that is new to us begins with its newest reading only if that is not read anyway.
    has_last = last_at is not None and not (is_new and last_at > read_from)
    return Tracked(
        Series(
            tenant_id,
            device_id,
            metric_type,
            farm_id,
            barn_id,
            Sample(last_at, last_value) if has_last else None,
            msgspec.convert(states or {}, dict[str, RuleState]),
        ),
        max(read_to or read_from, read_from),
        ingested_to or read_from,
        is_new,
        heard_at,
    )


async def readings(
    tx: db.Connection, series_list: Collection[Tracked], *, limit: int
) -> Mapping[Key, Sequence[Reading]]:
    """The next readings of each series, in the order of their time; at most `limit` of each."""
    rows = await db.fetch_all(
        tx,
        """
        select s.tenant_id, s.device_id, s.metric_type, r.*
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[])
            as s(tenant_id, device_id, metric_type, read_to, ingested_to)
          cross join lateral (
            select r.farm_id, r.barn_id, r.occurred_at, r.ingested_at, r.metric_value, r.unit
            from telemetry_raw r
            where r.tenant_id = s.tenant_id and r.device_id = s.device_id
              and r.metric_type = s.metric_type and r.occurred_at > s.read_to
              and r.ingested_at > s.ingested_to and not r.clock_suspect
            order by r.occurred_at, r.id limit %s) r
        """,
        *db.columns([item.series for item in series_list], "tenant_id", "device_id", "metric_type"),
        *db.columns(series_list, "read_to", "ingested_to"),
        limit,
    )
    new: dict[Key, list[Reading]] = defaultdict(list)
    for tenant_id, device_id, metric_type, *reading in rows:
        new[tenant_id, device_id, metric_type].append(Reading(*reading))
    return new


async def save(tx: db.Connection, changed: Collection[Tracked]) -> None:
    """Store how far series were read, with the states of their rules."""
    series = [item.series for item in changed]
    await tx.execute(
        """
        insert into alert_series (tenant_id, device_id, metric_type, farm_id, barn_id, read_to,
          ingested_to, last_at, last_value, states)
        select * from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
          %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::float8[], %s::jsonb[])
        on conflict on constraint alert_series_pkey do update set farm_id = excluded.farm_id,
          barn_id = excluded.barn_id, read_to = excluded.read_to,
          ingested_to = excluded.ingested_to, last_at = excluded.last_at,
          last_value = excluded.last_value, states = excluded.states
        """,
        (
            *db.columns(series, "tenant_id", "device_id", "metric_type", "farm_id", "barn_id"),
            *db.columns(changed, "read_to", "ingested_to"),
            [item.last.at if item.last else None for item in series],
            [item.last.value if item.last else None for item in series],
            [Jsonb(msgspec.to_builtins(item.states)) for item in series],
        ),
    )


async def remove_gone(tx: db.Connection, metrics: Collection[str]) -> list[Series]:
    """Remove series of devices that were revoked, or of metrics that no rule looks at."""
    rows = await db.fetch_all(
        tx,
        """
        delete from alert_series s where s.metric_type <> all(%s) or not exists (
          select from devices d where d.tenant_id = s.tenant_id and d.device_id = s.device_id
            and d.revoked_at is null)
        returning s.tenant_id, s.device_id, s.metric_type, s.farm_id, s.barn_id, s.states
        """,
        list(metrics),
    )
    return [
        Series(*row[:5], states=msgspec.convert(row[5], dict[str, RuleState]))  # type: ignore[misc]
        for row in rows
    ]


# --- what is open ---


async def add_local_alert(
    tx: db.Connection, series: Series, *, kind: str, subject: str, severity: str, message: str,
    opened_at: datetime,
) -> None:  # fmt: skip
    await tx.execute(
        """
        insert into local_alerts (kind, subject, tenant_id, farm_id, barn_id, severity, message,
          opened_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s)
        on conflict on constraint local_alerts_pkey do nothing
        """,
        (
            kind, subject, series.tenant_id, series.farm_id, series.barn_id, severity, message,
            opened_at,
        ),
    )  # fmt: skip


async def remove_local_alert(tx: db.Connection, *, kind: str, subject: str) -> str | None:
    """The message of the alert that was open, if people were mailed about it."""
    message: str | None = await db.fetch_value(
        tx,
        "delete from local_alerts where kind = %s and subject = %s "
        "returning case when mailed_at is not null then message end",
        kind,
        subject,
    )
    return message


async def local_alerts(tx: db.Connection) -> list[LocalAlert]:
    return await db.fetch_as(
        tx,
        LocalAlert,
        """
        select kind, subject, tenant_id, farm_id, barn_id, severity, message, opened_at,
          in_maintenance, silenced_at is not null as is_silenced
        from local_alerts order by kind, subject
        """,
    )


async def change_local_alert(tx: db.Connection, alert: LocalAlert) -> None:
    """What is silenced and was not before was so in the cloud; nothing sounds again by this."""
    await tx.execute(
        """
        update local_alerts set severity = %s, in_maintenance = %s,
          silenced_at = coalesce(silenced_at, case when %s then fn_now() end),
          silenced_by = coalesce(silenced_by, case when %s then 'cloud' end)
        where kind = %s and subject = %s
        """,
        (
            alert.severity, alert.in_maintenance, alert.is_silenced, alert.is_silenced, alert.kind,
            alert.subject,
        ),
    )  # fmt: skip


# Nobody has silenced or closed it, and no maintenance holds it.
_CALLS = """
  local_alerts l
    join alerts a on a.kind = l.kind and a.subject = l.subject and a.closed_at is null
  where l.silenced_at is null and not l.in_maintenance and l.severity = any(%s)
"""


async def note_mailed(tx: db.Connection, severities: Collection[str]) -> list[LocalAlert]:
    """What people are to be mailed about, once each."""
    return await db.fetch_as(
        tx,
        LocalAlert,
        f"""
        update local_alerts m set mailed_at = fn_now()
        where (m.kind, m.subject) in (
          select l.kind, l.subject from {_CALLS} and l.mailed_at is null)
        returning kind, subject, tenant_id, farm_id, barn_id, severity, message, opened_at,
          in_maintenance, silenced_at is not null as is_silenced
        """.encode(),  # noqa: S608 - of this file
        (list(severities),),
    )


async def silence(tx: db.Connection, *, by: str) -> list[dict[str, Any]]:
    """Silence the siren for all that is open now; return what that was."""
    return await db.fetch_dicts(
        tx,
        "update local_alerts set silenced_at = fn_now(), silenced_by = %s "
        "where silenced_at is null returning kind, subject, severity, message, opened_at",
        (by,),
    )


# --- sirens ---


async def sounding(tx: db.Connection, severities: Collection[str]) -> list[dict[str, Any]]:
    """What calls people, in the order in which it opened."""
    return await db.fetch_dicts(
        tx,
        f"""
        select l.kind, l.subject, l.tenant_id, l.farm_id, l.barn_id, l.severity, l.message,
          l.opened_at
        from {_CALLS}
        order by l.opened_at, l.kind, l.subject
        """.encode(),  # noqa: S608 - of this file
        (list(severities),),
    )


async def sirens(tx: db.Connection, *, repeat_s: float) -> dict[str, bool]:
    """The sirens that may be on, and whether each has to be driven again."""
    rows = await db.fetch_all(
        tx,
        """
        select output, driven_at is null
          or driven_at not between fn_now() - %s * interval '1 second' and fn_now()
        from alert_sirens where is_on
        """,
        repeat_s,
    )
    return dict(rows)


async def note_siren_on(tx: db.Connection, output: str) -> None:
    await tx.execute(
        """
        insert into alert_sirens (output, is_on) values (%s, true)
        on conflict on constraint alert_sirens_pkey do update set is_on = true, driven_at = null
        """,
        (output,),
    )


async def note_siren_driven(tx: db.Connection, output: str, *, is_on: bool) -> None:
    await tx.execute(
        "update alert_sirens set is_on = %s, driven_at = fn_now() where output = %s",
        (is_on, output),
    )


# --- mails ---


@dataclass(frozen=True, slots=True)
class Mail:
    mail_id: UUID
    receiver: str | None
    headline: str
    body: str
    attempts: int


async def add_mail(
    tx: db.Connection, mail_id: UUID, *, receiver: str, kind: str, subject: str, headline: str,
    body: str,
) -> None:  # fmt: skip
    await tx.execute(
        "insert into alert_mails (mail_id, receiver, kind, subject, headline, body, created_at, "
        "next_at) values (%s, %s, %s, %s, %s, %s, fn_now(), fn_now())",
        (mail_id, receiver, kind, subject, headline, body),
    )


async def next_mail(tx: db.Connection) -> Mail | None:
    """The oldest mail that is due, locked: another process takes another. New ones go first."""
    rows = await db.fetch_as(
        tx,
        Mail,
        """
        select mail_id, receiver, headline, body, attempts from alert_mails
        where sent_at is null and given_up_at is null
          and (next_at <= fn_now() or next_at > fn_now() + interval '1 hour')
        order by attempts, created_at, mail_id limit 1 for update skip locked
        """,
    )
    return rows[0] if rows else None


async def mail_sent(tx: db.Connection, mail_id: UUID) -> None:
    await tx.execute(
        "update alert_mails set sent_at = fn_now(), attempts = attempts + 1, error = null "
        "where mail_id = %s",
        (mail_id,),
    )


async def mail_failed(
    tx: db.Connection, mail_id: UUID, *, error: str, is_permanent: bool, wait_s: float,
    give_up_hours: float,
) -> bool:  # fmt: skip
    """Note a failure; True if it was the last attempt."""
    given_up: bool = await db.fetch_value(
        tx,
        """
        update alert_mails set attempts = attempts + 1, error = %s,
          next_at = fn_now() + %s * interval '1 second',
          given_up_at = case when %s or created_at < fn_now() - %s * interval '1 hour'
            then fn_now() end
        where mail_id = %s returning given_up_at is not null
        """,
        error,
        wait_s,
        is_permanent,
        give_up_hours,
        mail_id,
    )
    return given_up
