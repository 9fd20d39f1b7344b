"""Steps and messages in PostgreSQL: one function for each statement."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from farmiq.cloud import episodes
from farmiq.cloud.notification import rules
from farmiq.cloud.notification.rules import Earlier, Planned
from farmiq.cloud.notification.sending import channels
from farmiq.cloud.notification.sending.channels import Channel, ChannelSettings, Secrets
from farmiq.cloud.notification.words import Facts, Words
from farmiq.farm.alerts import rules as alert_rules
from farmiq.farm.alerts.defaults import DEFAULTS
from farmiq.plumbing import db, ids
from farmiq.plumbing.sealing import Sealer, SealError

ESCALATE_AFTER_MIN = 15

_SHIPPED = {rule.rule_id: rule for rule in DEFAULTS}

_MESSAGE = """
  message_id, episode_id, step, contact_id, channel_id, address, severity, subject, body, state,
  created_at, send_after, next_attempt_at, attempts, ended_at, error
"""


# --- steps


async def now(tx: db.Connection) -> datetime:
    at: datetime = await db.fetch_value(tx, "select fn_now()")
    return at


async def escalate(tx: db.Connection, *, limit: int) -> int:
    """Add the step `escalated` of episodes that nobody has acknowledged for too long."""
    cursor = await tx.execute(
        """
        insert into alert_steps (tenant_id, episode_id, step, created_at)
        select e.tenant_id, e.episode_id, 'escalated', fn_now()
        from alert_episodes e left join alert_settings s using (tenant_id)
        where e.state = 'active' and e.held_by is null and e.paged_at <= fn_now()
            - case when s.tenant_id is null then %s else s.escalate_after_min end
              * interval '1 minute'
          and not exists (
            select from alert_steps k where k.tenant_id = e.tenant_id
              and k.episode_id = e.episode_id and k.step = 'escalated')
        order by e.paged_at limit %s
        on conflict on constraint alert_steps_pkey do nothing
        """,
        (ESCALATE_AFTER_MIN, limit),
    )
    return cursor.rowcount


@dataclass(frozen=True, slots=True)
class PendingStep:
    """A step that nobody was told of yet, and what a message about it needs."""

    step: rules.Step
    facts: Facts


async def take_steps(tx: db.Connection, *, limit: int) -> list[PendingStep]:
    """Lock steps that are to be routed, at most one of an episode, in their order.

    A step waits for the one before it, also if another instance has that one at this moment.
    """
    rows = await db.fetch_dicts(
        tx,
        """
        select s.tenant_id, s.episode_id, s.step, s.created_at, e.source, e.severity, e.message,
          e.state, e.signal, e.rule_id, r.rule, e.farm_id, f.name as farm,
          e.barn_id, b.name as barn, e.device_id, e.edge_cluster_id, e.batch_id,
          coalesce(f.timezone, c.timezone) as timezone, e.opened_at, e.resolved_at, e.first_value,
          e.worst_value, e.last_value, e.acknowledged_by, e.note,
          case when a.tenant_id is null then %(default_min)s else a.escalate_after_min end
            as minutes_unanswered
        from alert_steps s
        join alert_episodes e using (tenant_id, episode_id)
        join companies c using (tenant_id)
        left join alert_settings a using (tenant_id)
        left join farms f on f.tenant_id = e.tenant_id and f.farm_id = e.farm_id
        left join barns b on b.tenant_id = e.tenant_id and b.farm_id = e.farm_id
          and b.barn_id = e.barn_id
        left join alert_rules r on r.tenant_id = e.tenant_id and r.rule_id = e.rule_id
        where s.routed_at is null and (s.route_after is null or s.route_after <= fn_now())
          and not exists (
          select from alert_steps o where o.tenant_id = s.tenant_id
            and o.episode_id = s.episode_id and o.routed_at is null
            and (o.created_at, array_position(%(order)s::text[], o.step))
              < (s.created_at, array_position(%(order)s::text[], s.step)))
        order by s.created_at limit %(limit)s
        for update of s skip locked
        """,
        {
            "default_min": ESCALATE_AFTER_MIN,
            "order": ["opened", "worsened", "escalated", "acknowledged", "resolved"],
            "limit": limit,
        },
    )
    return [_pending_step(row) for row in rows]


def _pending_step(row: dict[str, Any]) -> PendingStep:
    created_at, rule_id, own = (row.pop(name) for name in ("created_at", "rule_id", "rule"))
    rule = _SHIPPED.get(rule_id) if own is None else alert_rules.read(own)
    step = rules.Step(
        step=row["step"],
        created_at=created_at,
        severity=row["severity"],
        farm_id=row["farm_id"],
        state=row["state"],
        acknowledged_by=row["acknowledged_by"],
    )
    return PendingStep(step, Facts(**row, rule=rule))


async def routed(tx: db.Connection, tenant_id: str, episode_id: UUID, step: str) -> None:
    await tx.execute(
        """
        update alert_steps set routed_at = fn_now()
        where tenant_id = %s and episode_id = %s and step = %s
        """,
        (tenant_id, episode_id, step),
    )


async def put_off_step(tx: db.Connection, facts: Facts, *, delay_s: float) -> None:
    await tx.execute(
        """
        update alert_steps set route_after = fn_now() + %s * interval '1 second'
        where tenant_id = %s and episode_id = %s and step = %s
        """,
        (delay_s, facts.tenant_id, facts.episode_id, facts.step),
    )


async def earlier_messages(tx: db.Connection, tenant_id: str, episode_id: UUID) -> list[Earlier]:
    """The messages of an episode so far. Locks them: none is sent while a plan is made."""
    rows = await db.fetch_dicts(
        tx,
        """
        select message_id, contact_id, channel_id, step, severity, state, send_after
        from alert_messages
        where tenant_id = %s and episode_id = %s order by message_id for update
        """,
        (tenant_id, episode_id),
    )
    return [Earlier(**row) for row in rows]


# --- messages


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
          and created_at > fn_now() - interval '1 hour'
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
    that work. A message waits for an earlier one of its episode to the same contact on the same
    channel.
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
              order by m.next_attempt_at, m.message_id) as place,
            coalesce({_COUNTS}, false) as counts,
            coalesce(n.used, 0) + row_number() over (
              partition by m.tenant_id, coalesce({_COUNTS}, false)
              order by m.next_attempt_at, m.message_id) as mails
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
            and (not w.counts or w.mails <= %(mails_per_hour)s)
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
          'it waits: the company has had its ' || %(per_hour)s::int
            || ' mails of this hour over the mail server of the platform'
        from (
          select m.tenant_id, m.message_id, n.hour + interval '1 hour' as ends_at
          from alert_mail_counts n
          join alert_messages m using (tenant_id)
          left join alert_channels c using (tenant_id, channel_id)
          where n.hour = {_HOUR} and n.used >= %(per_hour)s and m.state = 'pending'
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
    """Whether a message of quiet hours is about an episode that is over, whoever noticed."""
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


async def page(
    connection: db.Connection, tenant_id: str, wanted: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Messages, newest first."""
    return await db.fetch_dicts(
        connection,
        f"""
        select {_MESSAGE} from alert_messages
        where tenant_id = %(tenant_id)s
          and (%(episode)s::uuid is null or episode_id = %(episode)s)
          and (%(contact)s::text is null or contact_id = %(contact)s)
          and (%(channel)s::text is null or channel_id = %(channel)s)
          and (%(state)s::text is null or state = %(state)s)
          and (%(step)s::text is null or step = %(step)s)
          and (%(begin)s::timestamptz is null or created_at >= %(begin)s)
          and (%(end)s::timestamptz is null or created_at < %(end)s)
          and (%(after_at)s::timestamptz is null
            or (created_at, message_id) < (%(after_at)s, %(after_id)s::uuid))
        order by created_at desc, message_id desc limit %(limit)s
        """,  # noqa: S608 - our own columns
        {**wanted, "tenant_id": tenant_id},
    )


async def find_message(
    connection: db.Connection, tenant_id: str, message_id: UUID
) -> dict[str, Any] | None:
    rows = await db.fetch_dicts(
        connection,
        f"select {_MESSAGE} from alert_messages where tenant_id = %s and message_id = %s",  # noqa: S608
        (tenant_id, message_id),
    )
    return rows[0] if rows else None


@dataclass(frozen=True, slots=True)
class AckView:
    """What the page that acknowledges shows."""

    message: str
    severity: str
    state: str
    opened_at: datetime
    timezone: str
    farm: str | None
    barn: str | None
    acknowledged_by: str | None


async def ack_view(tx: db.Connection, tenant_id: str, episode_id: UUID) -> AckView | None:
    rows = await db.fetch_as(
        tx,
        AckView,
        """
        select e.message, e.severity, e.state, e.opened_at,
          coalesce(f.timezone, c.timezone) as timezone, coalesce(f.name, e.farm_id) as farm,
          coalesce(b.name, e.barn_id) as barn, e.acknowledged_by
        from alert_episodes e join companies c using (tenant_id)
        left join farms f on f.tenant_id = e.tenant_id and f.farm_id = e.farm_id
        left join barns b on b.tenant_id = e.tenant_id and b.farm_id = e.farm_id
          and b.barn_id = e.barn_id
        where e.tenant_id = %s and e.episode_id = %s
        """,
        (tenant_id, episode_id),
    )
    return rows[0] if rows else None
