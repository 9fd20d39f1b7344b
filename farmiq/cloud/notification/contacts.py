"""Who is told: channels, contacts and settings of a company, for the API, commands and pages."""

from collections.abc import Mapping
from datetime import time
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UNSET, Meta, UnsetType
from psycopg.types.json import Jsonb

from farmiq.cloud import episodes
from farmiq.cloud.notification import words
from farmiq.cloud.notification.rules import Contact, QuietHours
from farmiq.cloud.notification.sending import channels, steps, store
from farmiq.cloud.notification.sending.channels import (
    Channel,
    ChannelSecrets,
    ChannelSettings,
    Secrets,
)
from farmiq.messages import ids
from farmiq.messages.edge import Severity
from farmiq.messages.kinds import Name
from farmiq.messages.wording import worded
from farmiq.plumbing import addresses, db, mail, outgoing, web_push, zones
from farmiq.plumbing.addresses import Allowed
from farmiq.plumbing.sealing import Sealer, SealError

MAX_CHANNELS = 100
MAX_CONTACTS = 500
MAX_TESTS_PER_HOUR = 60

Language = Literal["en", "de"]
_Clock = Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9](?![\s\S])")]
_Address = Annotated[str, Meta(max_length=channels.MAX_ADDRESS)]
_Severities = Annotated[list[Severity], Meta(min_length=1, max_length=4)]

_CHANNEL = """
  channel_id, kind, name, is_enabled as enabled, settings, secret_names, host, public_key,
  changed_at, changed_by
"""
_CONTACT = """
  contact_id, name, is_enabled as enabled, level, severities, farms, addresses, timezone,
  quiet_from, quiet_until, quiet_passed_by, language, changed_at, changed_by
"""


class TooManyError(Exception):
    """A company has as many of these as it may have."""


# --- what people give


class ChannelValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without `secrets` those that the channel has stay; else all of them are replaced."""

    kind: channels.Kind
    name: Name | None = None
    enabled: bool = True
    settings: ChannelSettings = ChannelSettings()
    secrets: ChannelSecrets | UnsetType = UNSET


class QuietHoursValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By the clocks of `timezone`; over midnight if `until` is earlier than `from`."""

    begin: _Clock = msgspec.field(name="from")
    until: _Clock
    timezone: Name
    passed_by: Annotated[list[Severity], Meta(max_length=4)] = msgspec.field(
        default_factory=lambda: ["critical", "security"]
    )


class ContactValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person. `addresses` has the address on each channel, by channel_id.

    Level 1 is told at once, level 2 if nobody acknowledges. Without `farms` they are told of all.
    """

    name: Name
    enabled: bool = True
    level: Annotated[int, Meta(ge=1, le=2)] = 1
    severities: _Severities = msgspec.field(
        default_factory=lambda: ["warning", "critical", "security"]
    )
    farms: Annotated[list[ids.Id], Meta(min_length=1, max_length=1000)] | None = None
    addresses: Annotated[dict[ids.Id, _Address], Meta(max_length=20)]
    quiet_hours: QuietHoursValues | None = None
    # Of the messages to them.
    language: Language = "en"


class TrialValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """To a contact, or to an address; a webhook needs neither."""

    contact_id: ids.Id | None = None
    address: _Address | None = None


class SettingsValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Minutes without an acknowledgement until contacts of level 2 are told; null: never."""

    escalate_after_min: Annotated[int, Meta(ge=1, le=7 * 24 * 60)] | None


# --- changes


class InvalidError(Exception):
    """What was given is not valid: (field, reason) of each problem."""

    def __init__(self, *problems: tuple[str, str]) -> None:
        super().__init__("; ".join(f"{field}: {reason}" for field, reason in problems))
        self.problems = problems


async def private_problem(
    secrets: ChannelSecrets, allowed: Allowed, *, owner: str
) -> tuple[str, str] | None:
    """(field, reason) of an address that leads into a private network, as far as is known now.

    It is looked at again before each message: a name may lead elsewhere then.
    """
    try:
        if secrets.url is not None:
            parts = urlsplit(secrets.url)
            host, port = addresses.check(secrets.url), parts.port or 443
            target = await outgoing.resolve(host, port, allowed=allowed, owner=owner)
            if parts.scheme == "http" and not target.is_inside:
                return "secrets.url", "has to begin with https://"
        if secrets.smtp_url is not None:
            where = mail.server(secrets.smtp_url)
            await outgoing.resolve(where.host, where.port, allowed=allowed, owner=owner)
    except outgoing.ForbiddenHostError as error:
        return "secrets.url" if secrets.url else "secrets.smtp_url", str(error)
    except outgoing.NoAnswerError:
        if (secrets.url or "").startswith("http://"):
            return "secrets.url", "has to begin with https://"
        return None  # away for now
    except ValueError:
        return None  # said with all other problems
    return None


async def save_channel(
    tx: db.Connection,
    tenant_id: str,
    channel_id: str,
    values: ChannelValues,
    *,
    sealer: Sealer | None,
    by: str,
    merge_secrets: bool = False,
) -> bool:
    """Add or change a channel; True if it is new. `merge_secrets`: those that are not given stay.

    Raises InvalidError, SealError if secrets cannot be sealed, or TooManyError.
    """
    sealed = await sealed_secrets(tx, tenant_id, channel_id)
    known = Secrets()
    is_merged = merge_secrets or values.secrets is UNSET or values.kind == "web_push"
    if sealed is not None and is_merged:
        known = store.opened(sealer, sealed, tenant_id, channel_id)
    secrets = known
    if values.secrets is not UNSET:
        given = msgspec.structs.asdict(values.secrets)
        if merge_secrets:
            before = msgspec.structs.asdict(known)
            given = {name: before[name] if new is None else new for name, new in given.items()}
        secrets = Secrets(**given, vapid_key=known.vapid_key)
    if values.kind == "web_push" and secrets.vapid_key is None:
        secrets = msgspec.structs.replace(secrets, vapid_key=web_push.new_private_key())
    channel = Channel(channel_id, values.kind, values.settings, secrets)
    if problems := channels.problems(channel):
        raise InvalidError(*problems)
    return await _store_channel(
        tx,
        tenant_id,
        channel,
        name=values.name,
        is_enabled=values.enabled,
        sealed=_sealed(sealer, tenant_id, channel),
        host=_host(channel),
        public_key=web_push.public_key(secrets.vapid_key) if secrets.vapid_key else None,
        by=by,
    )


def _sealed(sealer: Sealer | None, tenant_id: str, channel: Channel) -> bytes | None:
    if channel.secrets == Secrets():
        return None
    if sealer is None:
        raise SealError(
            "secrets cannot be stored: whoever runs FarmIQ has to set FARMIQ_SECRETS_KEY_FILE"
        )
    raw = msgspec.json.encode(channel.secrets)
    return sealer.seal(raw, bound_to=store.bound_to(tenant_id, channel.channel_id))


def _host(channel: Channel) -> str | None:
    secrets = channel.secrets
    if secrets.smtp_url is not None:
        return mail.server(secrets.smtp_url).host
    return None if secrets.url is None else urlsplit(secrets.url).hostname


async def save_contact(
    tx: db.Connection,
    tenant_id: str,
    contact_id: str,
    values: ContactValues,
    *,
    by: str,
    owner: str | None = None,
) -> bool:
    """Add or change a contact; True if it is new. Raises InvalidError or TooManyError.

    It goes with the person whose e-mail is `owner`, or who had it before.
    """
    kinds = {row["channel_id"]: row["kind"] for row in await list_channels(tx, tenant_id)}
    problems = [
        (f"addresses.{channel_id}", reason)
        for channel_id, address in values.addresses.items()
        if (reason := _address_problem(kinds.get(channel_id), address))
    ]
    quiet = values.quiet_hours
    if quiet is not None and quiet.begin == quiet.until:
        problems.append(("quiet_hours", "begin and end at the same time"))
    if quiet is not None and quiet.timezone not in zones.names():
        problems.append(("quiet_hours.timezone", "is no time zone such as Asia/Bangkok"))
    if problems:
        raise InvalidError(*problems)
    row = {
        "name": values.name,
        "enabled": values.enabled,
        "level": values.level,
        "severities": sorted(set(values.severities)),
        "farms": sorted(set(values.farms)) if values.farms is not None else None,
        "addresses": values.addresses,
        "timezone": quiet.timezone if quiet else None,
        "quiet_from": time.fromisoformat(quiet.begin) if quiet else None,
        "quiet_until": time.fromisoformat(quiet.until) if quiet else None,
        "quiet_passed_by": sorted(set(quiet.passed_by)) if quiet else [],
        "language": values.language,
        "owner": owner,
    }
    return await _store_contact(tx, tenant_id, contact_id, row, by=by)


def _address_problem(kind: str | None, address: str) -> str | None:
    return "there is no such channel" if kind is None else channels.address_problem(kind, address)


async def send_test(
    tx: db.Connection, tenant_id: str, channel_id: str, values: TrialValues, *, by: str
) -> UUID:
    """Add a test message to those that wait. Raises InvalidError."""
    row = await find_channel(tx, tenant_id, channel_id)
    if row is None:
        raise InvalidError(("channel_id", "there is no such channel"))
    address, language = values.address, "en"
    if values.contact_id is not None:
        if address is not None:
            raise InvalidError(("address", "give an address or a contact, not both"))
        contact = await find_contact(tx, tenant_id, values.contact_id)
        address = None if contact is None else contact["addresses"].get(channel_id)
        if address is None:
            raise InvalidError(("contact_id", "there is no such contact on this channel"))
        language = contact["language"] if contact else language
    address = address or ""
    if reason := channels.address_problem(row["kind"], address):
        raise InvalidError(("address", reason))
    # Addresses are not proven to be the company's own.
    if await store.tests_of_last_hour(tx, tenant_id) >= MAX_TESTS_PER_HOUR:
        raise TooManyError(
            worded(
                "a company sends at most %(number)s test messages in an hour",
                number=MAX_TESTS_PER_HOUR,
            )
        )
    return await store.add_test_message(
        tx,
        tenant_id,
        words.trial(channel_id, by=by, language=language),
        channel_id=channel_id,
        contact_id=values.contact_id,
        address=address,
        by=by,
    )


# --- as people see them


def shown_channel(row: Mapping[str, Any]) -> dict[str, Any]:
    """A channel as people see it."""
    return {**{name: value for name, value in row.items() if name != "secret_names"},
            "secrets": row["secret_names"]}  # fmt: skip


def shown_contact(row: Mapping[str, Any]) -> dict[str, Any]:
    """A contact as people see it."""
    hidden = {"timezone", "quiet_from", "quiet_until", "quiet_passed_by"}
    quiet = None
    if row["quiet_from"] is not None:
        quiet = {
            "from": f"{row['quiet_from']:%H:%M}",
            "until": f"{row['quiet_until']:%H:%M}",
            "timezone": row["timezone"],
            "passed_by": row["quiet_passed_by"],
        }
    shown = {name: value for name, value in row.items() if name not in hidden}
    return {**shown, "quiet_hours": quiet}


# --- channels


async def list_channels(connection: db.Connection, tenant_id: str) -> list[dict[str, Any]]:
    return await db.fetch_dicts(
        connection,
        f"select {_CHANNEL} from alert_channels where tenant_id = %s order by channel_id",  # noqa: S608
        (tenant_id,),
    )


async def find_channel(
    connection: db.Connection, tenant_id: str, channel_id: str
) -> dict[str, Any] | None:
    rows = await db.fetch_dicts(
        connection,
        f"select {_CHANNEL} from alert_channels where tenant_id = %s and channel_id = %s",  # noqa: S608
        (tenant_id, channel_id),
    )
    return rows[0] if rows else None


async def sealed_secrets(tx: db.Connection, tenant_id: str, channel_id: str) -> bytes | None:
    """As the service: people may not read them. Locks the channel."""
    secrets: bytes | None = await db.fetch_value(
        tx,
        """
        select secrets from alert_channels where tenant_id = %s and channel_id = %s for update
        """,
        tenant_id,
        channel_id,
    )
    return secrets


async def _store_channel(
    tx: db.Connection,
    tenant_id: str,
    channel: Channel,
    *,
    name: str | None,
    is_enabled: bool,
    sealed: bytes | None,
    host: str | None,
    public_key: str | None,
    by: str,
) -> bool:
    """Add or change a channel; True if it is new. Raises TooManyError."""
    given = msgspec.structs.asdict(channel.secrets)
    settings = {
        field: value
        for field, value in msgspec.structs.asdict(channel.settings).items()
        if value is not None
    }
    names = sorted(field for field, value in given.items() if value is not None)
    is_new: bool = await db.fetch_value(
        tx,
        """
        insert into alert_channels (tenant_id, channel_id, kind, name, is_enabled, settings,
          secrets, secret_names, host, public_key, changed_at, changed_by)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, fn_now(), %s)
        on conflict on constraint alert_channels_pkey do update set kind = excluded.kind,
          name = excluded.name, is_enabled = excluded.is_enabled, settings = excluded.settings,
          secrets = excluded.secrets, secret_names = excluded.secret_names, host = excluded.host,
          public_key = excluded.public_key, changed_at = excluded.changed_at,
          changed_by = excluded.changed_by
        returning xmax = 0
        """,
        tenant_id, channel.channel_id, channel.kind, name, is_enabled, Jsonb(settings), sealed,
        names, host, public_key, by,
    )  # fmt: skip
    if is_new:
        await _check_number(tx, "alert_channels", tenant_id, MAX_CHANNELS)
    detail = {"kind": channel.kind, "enabled": is_enabled, "secrets": names}
    await episodes.audit(
        tx,
        tenant_id,
        actor=by,
        action="add_channel" if is_new else "change_channel",
        key=channel.channel_id,
        detail=detail,
    )
    return is_new


async def remove_channel(tx: db.Connection, tenant_id: str, channel_id: str, *, by: str) -> bool:
    cursor = await tx.execute(
        "delete from alert_channels where tenant_id = %s and channel_id = %s",
        (tenant_id, channel_id),
    )
    if cursor.rowcount:
        await episodes.audit(tx, tenant_id, actor=by, action="remove_channel", key=channel_id)
    return cursor.rowcount > 0


async def _check_number(tx: db.Connection, table: str, tenant_id: str, limit: int) -> None:
    # The lock makes two who add at once count one after the other.
    await tx.execute("select pg_advisory_xact_lock(hashtext(%s))", (f"{table} {tenant_id}",))
    query = f"select count(*) from {table} where tenant_id = %s"  # noqa: S608 - our own names
    if await db.fetch_value(tx, query.encode(), tenant_id) > limit:
        raise TooManyError(worded("a company has at most %(number)s of them", number=limit))


# --- contacts


async def list_contacts(connection: db.Connection, tenant_id: str) -> list[dict[str, Any]]:
    return await db.fetch_dicts(
        connection,
        f"select {_CONTACT} from alert_contacts where tenant_id = %s order by contact_id",  # noqa: S608
        (tenant_id,),
    )


async def find_contact(
    connection: db.Connection, tenant_id: str, contact_id: str
) -> dict[str, Any] | None:
    rows = await db.fetch_dicts(
        connection,
        f"select {_CONTACT} from alert_contacts where tenant_id = %s and contact_id = %s",  # noqa: S608
        (tenant_id, contact_id),
    )
    return rows[0] if rows else None


async def _store_contact(
    tx: db.Connection, tenant_id: str, contact_id: str, values: Mapping[str, Any], *, by: str
) -> bool:
    """Add or change a contact; True if it is new. Raises TooManyError."""
    is_new: bool = await db.fetch_value(
        tx,
        """
        insert into alert_contacts (tenant_id, contact_id, name, is_enabled, level, severities,
          farms, addresses, timezone, quiet_from, quiet_until, quiet_passed_by, language,
          changed_at, changed_by, user_id)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, fn_now(), %s,
          (select user_id from users where email = %s))
        on conflict on constraint alert_contacts_pkey do update set name = excluded.name,
          is_enabled = excluded.is_enabled, level = excluded.level,
          severities = excluded.severities, farms = excluded.farms,
          addresses = excluded.addresses, timezone = excluded.timezone,
          quiet_from = excluded.quiet_from, quiet_until = excluded.quiet_until,
          quiet_passed_by = excluded.quiet_passed_by, language = excluded.language,
          changed_at = excluded.changed_at, changed_by = excluded.changed_by,
          user_id = coalesce(excluded.user_id, alert_contacts.user_id)
        returning xmax = 0
        """,
        tenant_id, contact_id, values["name"], values["enabled"], values["level"],
        values["severities"], values["farms"], Jsonb(values["addresses"]), values["timezone"],
        values["quiet_from"], values["quiet_until"], values["quiet_passed_by"],
        values["language"], by, values["owner"],
    )  # fmt: skip
    if is_new:
        await _check_number(tx, "alert_contacts", tenant_id, MAX_CONTACTS)
    detail = {
        "name": values["name"], "enabled": values["enabled"], "level": values["level"],
        "severities": values["severities"], "farms": values["farms"],
        "channels": sorted(values["addresses"]),
    }  # fmt: skip
    await episodes.audit(
        tx,
        tenant_id,
        actor=by,
        action="add_contact" if is_new else "change_contact",
        key=contact_id,
        detail=detail,
    )
    return is_new


async def remove_contact(tx: db.Connection, tenant_id: str, contact_id: str, *, by: str) -> bool:
    cursor = await tx.execute(
        "delete from alert_contacts where tenant_id = %s and contact_id = %s",
        (tenant_id, contact_id),
    )
    if cursor.rowcount:
        await episodes.audit(tx, tenant_id, actor=by, action="remove_contact", key=contact_id)
    return cursor.rowcount > 0


async def contacts(tx: db.Connection, tenant_id: str) -> list[Contact]:
    """Those who may be told."""
    rows = await list_contacts(tx, tenant_id)
    return [_contact(row) for row in rows if row["enabled"]]


def _contact(row: Mapping[str, Any]) -> Contact:
    begin, end = row["quiet_from"], row["quiet_until"]
    passed_by = frozenset(row["quiet_passed_by"])
    return Contact(
        contact_id=row["contact_id"],
        label=label(row["name"], row["contact_id"]),
        level=row["level"],
        severities=frozenset(row["severities"]),
        farms=None if row["farms"] is None else frozenset(row["farms"]),
        quiet_hours=_quiet_hours(begin, end, row["timezone"], passed_by),
        addresses=row["addresses"],
        language=row["language"],
    )


def label(name: str, contact_id: str) -> str:
    """How a contact who acknowledged is named."""
    return f"{name} ({contact_id})"


def _quiet_hours(
    begin: time | None, end: time | None, zone: str | None, passed_by: frozenset[str]
) -> QuietHours | None:
    if begin is None or end is None or zone is None:
        return None
    return QuietHours(begin, end, ZoneInfo(zone), passed_by)


async def usable_channels(tx: db.Connection, tenant_id: str) -> set[str]:
    rows = await db.fetch_all(
        tx,
        "select channel_id from alert_channels where tenant_id = %s and is_enabled",
        tenant_id,
    )
    return {row[0] for row in rows}


# --- settings of a company


async def escalate_after_min(connection: db.Connection, tenant_id: str) -> int | None:
    rows = await db.fetch_all(
        connection,
        "select escalate_after_min from alert_settings where tenant_id = %s",
        tenant_id,
    )
    return rows[0][0] if rows else steps.ESCALATE_AFTER_MIN


async def save_settings(
    tx: db.Connection, tenant_id: str, *, escalate_after_min: int | None, by: str
) -> None:
    await tx.execute(
        """
        insert into alert_settings (tenant_id, escalate_after_min, changed_at, changed_by)
        values (%s, %s, fn_now(), %s)
        on conflict on constraint alert_settings_pkey do update set
          escalate_after_min = excluded.escalate_after_min, changed_at = excluded.changed_at,
          changed_by = excluded.changed_by
        """,
        (tenant_id, escalate_after_min, by),
    )
    await episodes.audit(
        tx,
        tenant_id,
        actor=by,
        action="change_settings",
        key="alert_settings",
        detail={"escalate_after_min": escalate_after_min},
    )
