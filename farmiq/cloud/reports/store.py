"""Subscriptions and reports in PostgreSQL: one function for each statement."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from farmiq.cloud import episodes
from farmiq.cloud.reports import wording
from farmiq.cloud.reports.files import File, Subject
from farmiq.cloud.reports.periods import Kind, Period
from farmiq.plumbing import db, ids
from farmiq.ui import i18n

MAX_SUBSCRIPTIONS = 500


class TooManyError(Exception):
    """A company has as many of these as it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    tenant_id: str
    subscription_id: UUID
    farm_id: str
    batch_id: str | None
    period: Kind
    address: str
    language: str
    user_id: UUID | None
    created_at: datetime
    created_by: str
    farm: str
    timezone: str
    # The first day of the newest period that a report was made of, but for those of a clock that
    # was ahead.
    made_of: date | None

    @property
    def subject(self) -> Subject:
        return Subject(self.farm_id, self.batch_id)


_SUBSCRIPTION = """
  select s.tenant_id, s.subscription_id, s.farm_id, s.batch_id, s.period, s.address, s.language,
    s.user_id, s.created_at, s.created_by, f.name as farm, f.timezone,
    (select max(r.first_day) from reports r
     where r.tenant_id = s.tenant_id and r.subscription_id = s.subscription_id
       and r.first_day <= fn_now()::date) as made_of
  from report_subscriptions s join farms f using (tenant_id, farm_id)
"""


async def subscriptions(tx: db.Connection, tenant_id: str | None = None) -> list[Subscription]:
    """Of one company, or of all."""
    return await db.fetch_as(
        tx,
        Subscription,
        f"""
        {_SUBSCRIPTION} where %(tenant)s::text is null or s.tenant_id = %(tenant)s
        order by s.tenant_id, f.name, s.batch_id nulls first, s.period desc, s.address
        """,
        {"tenant": tenant_id},
    )


async def subscription(
    tx: db.Connection, tenant_id: str, subscription_id: UUID
) -> Subscription | None:
    rows = await db.fetch_as(
        tx,
        Subscription,
        f"{_SUBSCRIPTION} where s.tenant_id = %s and s.subscription_id = %s",
        (tenant_id, subscription_id),
    )
    return rows[0] if rows else None


async def subscribe(
    tx: db.Connection,
    tenant_id: str,
    subject: Subject,
    kind: Kind,
    *,
    address: str,
    language: str,
    user_id: UUID | None,
    by: str,
) -> UUID | None:
    """As the service. None: this address has this report already. Raises TooManyError."""
    subscription_id = ids.new()
    cursor = await tx.execute(
        """
        insert into report_subscriptions (tenant_id, subscription_id, farm_id, batch_id, period,
          address, language, user_id, created_at, created_by)
        values (%s, %s, %s, %s, %s, %s, %s, %s, fn_now(), %s) on conflict do nothing
        """,
        (
            tenant_id, subscription_id, subject.farm_id, subject.batch_id, kind, address, language,
            user_id, by,
        ),
    )  # fmt: skip
    if not cursor.rowcount:
        return None
    # The lock makes two who add at once count one after the other.
    await tx.execute("select pg_advisory_xact_lock(hashtext(%s))", (f"reports {tenant_id}",))
    count: int = await db.fetch_value(
        tx, "select count(*) from report_subscriptions where tenant_id = %s", tenant_id
    )
    if count > MAX_SUBSCRIPTIONS:
        raise TooManyError(f"a company has at most {MAX_SUBSCRIPTIONS} of them")
    detail = {
        "farm_id": subject.farm_id, "batch_id": subject.batch_id, "period": kind,
        "address": address,
    }  # fmt: skip
    await episodes.audit(
        tx, tenant_id, actor=by, action="add_report", key=str(subscription_id), detail=detail
    )
    return subscription_id


async def unsubscribe(tx: db.Connection, tenant_id: str, subscription_id: UUID, *, by: str) -> bool:
    """As the service. Whether there was such a subscription."""
    cursor = await tx.execute(
        "delete from report_subscriptions where tenant_id = %s and subscription_id = %s",
        (tenant_id, subscription_id),
    )
    if cursor.rowcount:
        await episodes.audit(
            tx, tenant_id, actor=by, action="remove_report", key=str(subscription_id)
        )
    return cursor.rowcount > 0


async def add_report(
    tx: db.Connection,
    tenant_id: str,
    subject: Subject,
    period: Period,
    *,
    file: File | None,
    address: str,
    language: str,
    subscription_id: UUID | None,
    by: str,
) -> UUID | None:
    """Store a report together with its mail; without a file only that there was none to make.

    None: the report of this subscription and period is there already, and nothing is sent.
    """
    report_id, message_id = ids.new(), ids.new() if file else None
    cursor = await tx.execute(
        """
        insert into reports (tenant_id, report_id, subscription_id, farm_id, batch_id, period,
          first_day, address, language, file_name, file, message_id, created_at, created_by)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, fn_now(), %s)
        on conflict on constraint reports_once do nothing
        """,
        (
            tenant_id, report_id, subscription_id, subject.farm_id, subject.batch_id, period.kind,
            period.first, address, language, file.name if file else "",
            file.content if file else None, message_id, by,
        ),
    )  # fmt: skip
    if not cursor.rowcount:
        return None
    if file is not None and message_id is not None:
        await _add_message(
            tx, tenant_id, message_id, period, file, address=address, language=language
        )
    return report_id


async def _add_message(
    tx: db.Connection,
    tenant_id: str,
    message_id: UUID,
    period: Period,
    file: File,
    *,
    address: str,
    language: str,
) -> None:
    """Over the company's own channel for mails, or the mail server of the platform."""
    with i18n.use(language):
        subject, text = wording.mail(period, subject=file.title, headline=file.headline)
    await tx.execute(
        """
        insert into alert_messages (tenant_id, message_id, step, channel_id, address, severity,
          subject, body, content, created_at, send_after, next_attempt_at)
        select %s, %s, 'report', coalesce((
            select min(c.channel_id) from alert_channels c
            where c.tenant_id = %s and c.kind = 'email' and c.is_enabled), ''),
          %s, 'info', %s, %s, %s, fn_now(), fn_now(), fn_now()
        """,
        (
            tenant_id, message_id, tenant_id, address, _one_line(subject), text,
            Jsonb({"step": "report", "severity": "info", "message": subject}),
        ),
    )  # fmt: skip


def _one_line(text: str) -> str:
    """Names come from people: no line break of theirs becomes one of a header."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


@dataclass(frozen=True, slots=True, kw_only=True)
class SentReport:
    """`state` is that of its mail; None: it has none, or it is too old to be known."""

    report_id: UUID
    tenant_id: str
    farm_id: str
    batch_id: str | None
    period: Kind
    first_day: date
    address: str
    created_at: datetime
    file_name: str
    size: int | None
    state: str | None
    error: str | None
    sent_at: datetime | None


async def reports(tx: db.Connection, tenant_id: str | None, *, limit: int) -> list[SentReport]:
    """What was made, newest first."""
    return await db.fetch_as(
        tx,
        SentReport,
        """
        select r.report_id, r.tenant_id, r.farm_id, r.batch_id, r.period, r.first_day, r.address,
          r.created_at, r.file_name, length(r.file) as size, m.state, m.error,
          case when m.state = 'sent' then m.ended_at end as sent_at
        from reports r left join alert_messages m using (tenant_id, message_id)
        where (%(tenant)s::text is null or r.tenant_id = %(tenant)s) and r.message_id is not null
        order by r.created_at desc, r.report_id desc limit %(limit)s
        """,
        {"tenant": tenant_id, "limit": limit},
    )


async def file(tx: db.Connection, tenant_id: str, report_id: UUID) -> tuple[str, bytes] | None:
    rows: list[tuple[Any, ...]] = await db.fetch_all(
        tx,
        """
        select file_name, file from reports
        where tenant_id = %s and report_id = %s and file is not null
        """,
        tenant_id,
        report_id,
    )
    return (rows[0][0], rows[0][1]) if rows else None


async def now(tx: db.Connection) -> datetime:
    at: datetime = await db.fetch_value(tx, "select fn_now()")
    return at
