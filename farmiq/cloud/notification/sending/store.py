"""SQL of messages: made, claimed, sent or put off."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from farmiq.cloud import episodes
from farmiq.cloud.notification import rules
from farmiq.cloud.notification.rules import Planned
from farmiq.cloud.notification.sending import channels
from farmiq.cloud.notification.sending.channels import Channel, ChannelSettings, Secrets
from farmiq.cloud.notification.words import Facts, Words
from farmiq.plumbing import db, ids
from farmiq.plumbing.sealing import Sealer, SealError


async def now(tx: db.Connection) -> datetime:
    at: datetime = await db.fetch_value(tx, "select fn_now()")
    return at


async def add_messages(
    tx: db.Connection, facts: Facts, words: Words, planned: Sequence[Planned]
) -> int:
    """Add the messages of a step; those that are there already stay as they are.

    Of an episode that became worse a second time, the message of the first is replaced.
    """
    if not planned:
        return 0
    cursor = await tx.execute(
        """
        insert into alert_messages as m (tenant_id, message_id, episode_id, step, contact_id,
          channel_id, address, severity, subject, body, content, created_at, send_after,
          next_attempt_at)
        select %s, n.message_id, %s, %s, n.contact_id, n.channel_id, n.address, %s, %s, %s, %s,
          fn_now(), n.send_after, n.send_after
        from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::timestamptz[])
          as n(message_id, contact_id, channel_id, address, send_after)
        on conflict on constraint alert_messages_step_key do update set
          message_id = excluded.message_id, address = excluded.address,
          severity = excluded.severity, subject = excluded.subject, body = excluded.body,
          content = excluded.content, created_at = excluded.created_at, state = 'pending',
          send_after = excluded.send_after, next_attempt_at = excluded.next_attempt_at,
          claimed_until = null, attempts = 0, ended_at = null, error = null
          where m.step = 'worsened' and m.severity <> excluded.severity
        """,
        (
            facts.tenant_id, facts.episode_id, facts.step, facts.severity, words.subject,
            words.text, Jsonb(words.content), [ids.new() for _ in planned],
            *db.columns(planned, "contact_id", "channel_id", "address", "send_after"),
        ),
    )  # fmt: skip
    return cursor.rowcount


async def tests_of_last_hour(tx: db.Connection, tenant_id: str) -> int:
    count: int = await db.fetch_value(
        tx,
        """
        select count(*) from alert_messages where tenant_id = %s and step = 'test'
          and created_at between fn_now() - interval '1 hour' and fn_now() + interval '1 hour'
        """,
        tenant_id,
    )
    return count


async def add_test_message(
    tx: db.Connection,
    tenant_id: str,
    words: Words,
    *,
    channel_id: str,
    contact_id: str | None,
    address: str,
    by: str,
) -> UUID:
    message_id = ids.new()
    await tx.execute(
        """
        insert into alert_messages (tenant_id, message_id, step, contact_id, channel_id, address,
          severity, subject, body, content, created_at, send_after, next_attempt_at)
        values (%s, %s, 'test', %s, %s, %s, 'info', %s, %s, %s, fn_now(), fn_now(), fn_now())
        """,
        (
            tenant_id, message_id, contact_id, channel_id, address, words.subject, words.text,
            Jsonb(words.content),
        ),
    )  # fmt: skip
    detail = {"message_id": str(message_id)}
    await episodes.audit(
        tx, tenant_id, actor=by, action="test_channel", key=channel_id, detail=detail
    )
    return message_id


async def drop(
    tx: db.Connection, tenant_id: str, message_ids: Collection[UUID], *, reason: str
) -> None:
    """Messages that nobody needs any more: something happened before their quiet hours ended."""
    await tx.execute(
        """
        update alert_messages set state = 'dropped', ended_at = fn_now(), error = %s
        where tenant_id = %s and message_id = any(%s) and state = 'pending'
        """,
        (reason, tenant_id, list(message_ids)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A message that is ours to send, and its channel as it is now."""

    tenant_id: str
    message_id: UUID
    episode_id: UUID | None
    step: str
    contact_id: str | None
    channel_id: str
    address: str
    severity: str
    subject: str
    body: str
    content: dict[str, Any]
    created_at: datetime
    attempts: int
    age_s: float
    kind: channels.Kind | None
    is_enabled: bool | None
    settings: dict[str, Any] | None
    secrets: bytes | None
    # Whether it is a channel of mail with a server of its own.
    has_own_server: bool | None
    # The PDF of a report.
    file_name: str | None = None
    file: bytes | None = field(default=None, repr=False)

    def channel(self, sealer: Sealer | None) -> Channel | None:
        """The channel with its secrets; None if it was removed. Raises SealError."""
        if self.kind is None:
            return None
        secrets = Secrets()
        if self.secrets is not None:
            secrets = opened(sealer, self.secrets, self.tenant_id, self.channel_id)
        settings = msgspec.convert(self.settings, ChannelSettings)
        return Channel(self.channel_id, self.kind, settings, secrets)


def bound_to(tenant_id: str, channel_id: str) -> str:
    """What the secrets of a channel are sealed for."""
    return f"alert channel {tenant_id}/{channel_id}"


def opened(sealer: Sealer | None, sealed: bytes, tenant_id: str, channel_id: str) -> Secrets:
    """The secrets of a channel. Raises SealError."""
    if sealer is None:
        raise SealError("no key: FARMIQ_SECRETS_KEY_FILE is not set")
    raw = sealer.open(sealed, bound_to=bound_to(tenant_id, channel_id))
    return msgspec.json.decode(raw, type=Secrets)


@dataclass(frozen=True, slots=True)
class Limits:
    """Messages in flight at once: of a channel, of one that fails, of a company; and its mails."""

    per_channel: int
    per_failing_channel: int
    per_tenant: int
    mails_per_hour: int


# Tenant, channel, how many of its messages are in flight, whether the last one failed.
Used = tuple[str, str, int, bool]
# Tenant, message.
Due = tuple[str, UUID]
# A mail over the mail server of the platform that was not counted yet (alert_channels is c).
# A report goes over it if its company has no channel for mails.
_COUNTS = """
  (m.attempts = 0 and case when c.kind is null then m.step = 'report'
    else c.kind = 'email' and not 'smtp_url' = any(c.secret_names) end)
"""
_HOUR = "date_trunc('hour', fn_now(), 'UTC')"
# What is urgent is sent first, and while a company has had less than twice its mails of an hour.
_URGENT = "(m.severity in ('critical', 'security'))"
_SHARE = f"case when {_URGENT} then 2 else 1 end"


async def due(
    tx: db.Connection,
    used: Sequence[Used],
    *,
    sending: list[UUID],
    limits: Limits,
    limit: int,
) -> list[Due]:
    """(tenant, message) of messages to send now: companies in turn, then their channels.

    What is in flight counts, so who has least comes first. A channel that fails comes after those
    that work. On a channel the urgent ones go first. A message waits for an earlier one of its
    episode to the same contact on the same channel.
    """
    rows = await db.fetch_dicts(
        tx,
        f"""
        with used as (
          select * from unnest(%(tenants)s::text[], %(channels)s::text[], %(in_flight)s::int[],
            %(failing)s::bool[]) as u(tenant_id, channel_id, in_flight, is_failing)
        ), waiting as (
          select m.tenant_id, m.message_id, m.next_attempt_at,
            coalesce(u.is_failing, false) as is_failing,
            coalesce(u.in_flight, 0) + row_number() over (
              partition by m.tenant_id, m.channel_id
              order by {_URGENT} desc, m.next_attempt_at, m.message_id) as place,
            coalesce({_COUNTS}, false) as counts,
            coalesce(n.used, 0) + row_number() over (
              partition by m.tenant_id, coalesce({_COUNTS}, false)
              order by {_URGENT} desc, m.next_attempt_at, m.message_id) as mails,
            {_SHARE} * %(mails_per_hour)s as mails_allowed
          from alert_messages m
          left join alert_channels c using (tenant_id, channel_id)
          left join used u using (tenant_id, channel_id)
          left join alert_mail_counts n on n.tenant_id = m.tenant_id and n.hour = {_HOUR}
          where m.state = 'pending' and m.next_attempt_at <= fn_now()
            and (m.claimed_until is null or m.claimed_until <= fn_now())
            and m.message_id <> all(%(sending)s::uuid[])
            and coalesce(u.in_flight, 0) < case when u.is_failing
              then %(per_failing_channel)s else %(per_channel)s end
            and not exists (
              select from alert_messages o where o.tenant_id = m.tenant_id
                and o.episode_id = m.episode_id and o.contact_id = m.contact_id
                and o.channel_id = m.channel_id and o.state = 'pending'
                and o.message_id < m.message_id)
        ), ranked as (
          select w.tenant_id, w.message_id, w.next_attempt_at,
            coalesce(t.in_flight, 0) + row_number() over (
              partition by w.tenant_id
              order by w.place, w.is_failing, w.next_attempt_at, w.message_id) as turn
          from waiting w
          left join (select tenant_id, sum(in_flight) as in_flight from used group by tenant_id) t
            using (tenant_id)
          where w.place <= case when w.is_failing
              then %(per_failing_channel)s else %(per_channel)s end
            and (not w.counts or w.mails <= w.mails_allowed)
        )
        select tenant_id, message_id from ranked where turn <= %(per_tenant)s
        order by turn, next_attempt_at, message_id limit %(limit)s
        """,  # noqa: S608 - our own words
        {
            "tenants": [item[0] for item in used],
            "channels": [item[1] for item in used],
            "in_flight": [item[2] for item in used],
            "failing": [item[3] for item in used],
            "sending": sending,
            "per_channel": limits.per_channel,
            "per_failing_channel": limits.per_failing_channel,
            "per_tenant": limits.per_tenant,
            "mails_per_hour": limits.mails_per_hour,
            "limit": limit,
        },
    )
    return [(row["tenant_id"], row["message_id"]) for row in rows]


async def hold_mails(tx: db.Connection, *, per_hour: int) -> None:
    """Put off the mails of companies that have had theirs of this hour from the platform."""
    await tx.execute(
        f"""
        update alert_messages h set next_attempt_at = late.ends_at, error =
          'it waits: the company has had its ' || late.allowed
            || ' mails of this hour over the mail server of the platform'
        from (
          select m.tenant_id, m.message_id, n.hour + interval '1 hour' as ends_at,
            {_SHARE} * %(per_hour)s::int as allowed
          from alert_mail_counts n
          join alert_messages m using (tenant_id)
          left join alert_channels c using (tenant_id, channel_id)
          where n.hour = {_HOUR} and n.used >= {_SHARE} * %(per_hour)s and m.state = 'pending'
            and m.next_attempt_at <= fn_now() and {_COUNTS}
          for update of m skip locked
        ) late where h.tenant_id = late.tenant_id and h.message_id = late.message_id
        """,  # noqa: S608 - our own words
        {"per_hour": per_hour},
    )


async def count_mails(tx: db.Connection, claimed: Sequence[Claimed]) -> None:
    """Count the mails over the mail server of the platform; one that is repeated counts once."""
    mails = Counter(
        message.tenant_id
        for message in claimed
        if message.kind == "email" and message.attempts == 1 and not message.has_own_server
    )
    if not mails:
        return
    # In the order of their ids: two instances that count at once wait for each other.
    tenants = sorted(mails)
    await tx.execute(
        f"""
        insert into alert_mail_counts as n (tenant_id, hour, used)
        select tenant_id, {_HOUR}, used from unnest(%s::text[], %s::int[]) as u(tenant_id, used)
        on conflict on constraint alert_mail_counts_pkey do update set hour = excluded.hour,
          used = excluded.used + case when n.hour = excluded.hour then n.used else 0 end
        """,  # noqa: S608 - our own words
        (tenants, [mails[tenant_id] for tenant_id in tenants]),
    )


async def claim(tx: db.Connection, due: Sequence[Due], *, for_s: float) -> list[Claimed]:
    """Those of these messages that nobody else has claimed meanwhile."""
    return await db.fetch_as(
        tx,
        Claimed,
        """
        with mine as (
          update alert_messages m set claimed_until = fn_now() + %s * interval '1 second',
            attempts = m.attempts + 1
          from unnest(%s::text[], %s::uuid[]) as n(tenant_id, message_id)
          where m.tenant_id = n.tenant_id and m.message_id = n.message_id and m.state = 'pending'
            and (m.claimed_until is null or m.claimed_until <= fn_now())
          returning m.*
        )
        select m.tenant_id, m.message_id, m.episode_id, m.step, m.contact_id, m.channel_id,
          m.address, m.severity, m.subject, m.body, m.content, m.created_at, m.attempts,
          extract(epoch from fn_now() - m.send_after)::float8 as age_s,
          coalesce(c.kind, case when m.step = 'report' then 'email' end) as kind,
          coalesce(c.is_enabled, m.step = 'report') as is_enabled,
          coalesce(c.settings, '{}') as settings, c.secrets,
          'smtp_url' = any(c.secret_names) as has_own_server, r.file_name, r.file
        from mine m
        left join alert_channels c using (tenant_id, channel_id)
        left join reports r on r.tenant_id = m.tenant_id and r.message_id = m.message_id
        """,
        (for_s, [item[0] for item in due], [item[1] for item in due]),
    )


async def is_over(tx: db.Connection, message: Claimed) -> bool:
    """Whether a message of quiet hours is about an episode that is over by now."""
    over: bool = await db.fetch_value(
        tx,
        """
        select exists (
          select from alert_messages m join alert_episodes e using (tenant_id, episode_id)
          where m.tenant_id = %s and m.message_id = %s and m.send_after > m.created_at
            and m.step in ('opened', 'worsened', 'escalated')
            and e.state in ('resolved', 'withdrawn'))
        """,
        message.tenant_id,
        message.message_id,
    )
    return over


async def finish(
    tx: db.Connection, message: Claimed, *, state: str, error: str | None = None
) -> None:
    """Note what became of a message. Who never heard of an episode hears no more of it."""
    await tx.execute(
        """
        update alert_messages set state = %s, error = %s, ended_at = fn_now(), claimed_until = null
        where tenant_id = %s and message_id = %s
        """,
        (state, error, message.tenant_id, message.message_id),
    )
    if state != "sent" and message.step in rules.NOTIFYING:
        await tx.execute(
            """
            update alert_messages m set state = 'dropped', ended_at = fn_now(),
              error = 'the message before it was not sent'
            where m.tenant_id = %s and m.episode_id = %s and m.contact_id = %s
              and m.channel_id = %s and m.state = 'pending' and m.message_id > %s
              and m.step in ('acknowledged', 'resolved') and not exists (
                select from alert_messages o where o.tenant_id = m.tenant_id
                  and o.episode_id = m.episode_id and o.contact_id = m.contact_id
                  and o.channel_id = m.channel_id
                  and o.step in ('opened', 'worsened', 'escalated')
                  and o.state in ('pending', 'sent'))
            """,
            (
                message.tenant_id, message.episode_id, message.contact_id, message.channel_id,
                message.message_id,
            ),
        )  # fmt: skip


async def put_off(tx: db.Connection, message: Claimed, *, delay_s: float, error: str) -> None:
    await tx.execute(
        """
        update alert_messages set next_attempt_at = fn_now() + %s * interval '1 second',
          claimed_until = null, error = %s
        where tenant_id = %s and message_id = %s and state = 'pending'
        """,
        (delay_s, error, message.tenant_id, message.message_id),
    )


async def reset_far_future(tx: db.Connection, *, claim_s: float, route_s: float) -> int:
    """Messages and steps that were claimed or put off while the clock was ahead are due now.

    Nothing is put off for more than an hour but by quiet hours, which a clock that is right plans.
    """
    messages = await tx.execute(
        """
        update alert_messages set next_attempt_at = least(next_attempt_at, fn_now()),
          claimed_until = null
        where state = 'pending' and (claimed_until > fn_now() + 2 * %s * interval '1 second'
          or (next_attempt_at > fn_now() + interval '2 hours'
            and (next_attempt_at <> send_after or created_at > fn_now() + interval '1 hour')))
        """,
        (claim_s,),
    )
    steps = await tx.execute(
        """
        update alert_steps set route_after = null
        where routed_at is null and route_after > fn_now() + 2 * %s * interval '1 second'
        """,
        (route_s,),
    )
    return messages.rowcount + steps.rowcount


async def behind_s(tx: db.Connection) -> float:
    """How long the message waits that is due for the longest."""
    waits: float = await db.fetch_value(
        tx,
        """
        select coalesce(extract(epoch from fn_now() - min(send_after)), 0)::float8
        from alert_messages where state = 'pending' and send_after <= fn_now()
        """,
    )
    return waits
