"""`farmiq alert channel`, `contact`, `messages` and `key`: how alerts of the cloud reach people."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from uuid import UUID

    from farmiq.plumbing import db
    from farmiq.plumbing.sealing import Sealer

T = TypeVar("T")
Tenant = Annotated[str, typer.Option(help="The company's tenant_id.")]
ChannelId = Annotated[str, typer.Argument(help="channel_id, such as mail.")]
ContactId = Annotated[str, typer.Argument(help="contact_id, such as ann.")]
Body = Annotated[
    str, typer.Argument(help="A JSON file as the API takes it; - reads standard input.")
]
# A test message is sent at once or not at all.
WAIT_S = 60.0

channel = terminal.Group(
    "How messages leave: mail, webhooks, ntfy, Telegram, short messages, web push. Needs "
    "FARMIQ_CLOUD_DB_URL or a running demo; docs/operate/notifications.md has examples."
)
contact = terminal.Group(
    "Who is told of alerts. Needs FARMIQ_CLOUD_DB_URL or a running demo; "
    "docs/operate/notifications.md has examples."
)


# --- channels


@channel.command("ls")
def channel_ls(*, tenant: Tenant) -> None:
    """List the channels. Secrets are never shown, only which ones there are."""
    from farmiq.cloud.notification import contacts

    rows = terminal.in_transaction(lambda tx: contacts.list_channels(tx, tenant), terminal.CLOUD)
    terminal.print_list(
        [contacts.shown_channel(row) for row in rows],
        lambda row: (
            row["channel_id"],
            row["kind"],
            row["host"] or "",
            "" if row["enabled"] else "switched off",
        ),
        empty=f"`farmiq alert channel set CHANNEL FILE --tenant {tenant}` adds one",
    )


@channel.command("set", value_error=2)
def channel_set(channel_id: ChannelId, file: Body, *, tenant: Tenant) -> None:
    """Add or change a channel. Secrets come from the file: no command line shows them.

    A file without `secrets` leaves those that the channel has.
    """
    from msgspec import UNSET

    from farmiq.cloud.notification import contacts
    from farmiq.plumbing.addresses import Allowed

    values = _read(file, contacts.ChannelValues)
    terminal.check_id(channel_id)
    settings = _settings()
    sealer = _sealer(settings)

    async def save(tx: "db.Connection") -> dict[str, Any]:
        if values.secrets is not UNSET:
            allowed = Allowed.read(settings.alert_private_hosts)
            if problem := await contacts.private_problem(values.secrets, allowed, owner=tenant):
                raise contacts.InvalidError(problem)
        await contacts.save_channel(
            tx, tenant, channel_id, values, sealer=sealer, by=terminal.actor()
        )
        row = await contacts.find_channel(tx, tenant, channel_id)
        assert row is not None  # noqa: S101 - it was saved just now
        return contacts.shown_channel(row)

    row = _in_transaction(save)
    terminal.print_result(row, *terminal.fields(row))


@channel.command("rm")
def channel_rm(channel_id: ChannelId, *, tenant: Tenant) -> None:
    """Remove a channel; messages that wait for it fail."""
    from farmiq.cloud.notification import contacts

    if not terminal.in_transaction(
        lambda tx: contacts.remove_channel(tx, tenant, channel_id, by=terminal.actor()),
        terminal.CLOUD,
    ):
        terminal.fail(f"tenant {tenant} has no channel {channel_id}")
    terminal.print_result({"removed": channel_id}, f"removed {channel_id}")


@channel.command("test")
def channel_test(
    channel_id: ChannelId,
    *,
    tenant: Tenant,
    to: Annotated[
        str | None, typer.Option(help="An address: of mail, a telephone number, a chat …")
    ] = None,
    to_contact: Annotated[
        str | None, typer.Option("--contact", help="A contact, at its address there.")
    ] = None,
) -> int:
    """Send a test message and say what became of it. Exit code 1: it was not sent.

    The service sends it, so cloud-notification-service has to run.
    """
    import time

    from farmiq.cloud.notification import contacts
    from farmiq.cloud.notification.sending import queries

    values = contacts.TrialValues(address=to, contact_id=to_contact)

    async def add(tx: "db.Connection") -> "UUID":
        return await contacts.send_test(tx, tenant, channel_id, values, by=terminal.actor())

    message_id = _in_transaction(add)
    ends_at = time.monotonic() + WAIT_S
    while True:
        row = terminal.in_transaction(
            lambda tx: queries.find_message(tx, tenant, message_id), terminal.CLOUD
        )
        if row is None or row["state"] != "pending" or time.monotonic() > ends_at:
            break
        time.sleep(0.2)
    state = row["state"] if row else "removed"
    waits = "nobody sent it so far: does cloud-notification-service run?"
    reason = (row["error"] if row else None) or (waits if state == "pending" else "")
    terminal.print_result(
        {"message_id": str(message_id), "state": state, "error": reason or None},
        f"{state}  {reason}".rstrip(),
    )
    return 0 if state == "sent" else 1


# --- contacts


@contact.command("ls")
def contact_ls(*, tenant: Tenant) -> None:
    """List the contacts."""
    from farmiq.cloud.notification import contacts

    rows = terminal.in_transaction(lambda tx: contacts.list_contacts(tx, tenant), terminal.CLOUD)
    terminal.print_list(
        [contacts.shown_contact(row) for row in rows],
        lambda row: (
            row["contact_id"],
            row["name"],
            f"level {row['level']}",
            ", ".join(row["severities"]),
            ", ".join(row["addresses"]),
            "" if row["enabled"] else "switched off",
        ),
        empty=f"`farmiq alert contact set CONTACT FILE --tenant {tenant}` adds one",
    )


@contact.command("set", value_error=2)
def contact_set(contact_id: ContactId, file: Body, *, tenant: Tenant) -> None:
    """Add or change a contact."""
    from farmiq.cloud.notification import contacts

    values = _read(file, contacts.ContactValues)
    terminal.check_id(contact_id)

    async def save(tx: "db.Connection") -> dict[str, Any]:
        await contacts.save_contact(tx, tenant, contact_id, values, by=terminal.actor())
        row = await contacts.find_contact(tx, tenant, contact_id)
        assert row is not None  # noqa: S101 - it was saved just now
        return contacts.shown_contact(row)

    row = _in_transaction(save)
    terminal.print_result(row, *terminal.fields(row))


@contact.command("rm")
def contact_rm(contact_id: ContactId, *, tenant: Tenant) -> None:
    """Remove a contact; links that they were sent do not acknowledge any more."""
    from farmiq.cloud.notification import contacts

    if not terminal.in_transaction(
        lambda tx: contacts.remove_contact(tx, tenant, contact_id, by=terminal.actor()),
        terminal.CLOUD,
    ):
        terminal.fail(f"tenant {tenant} has no contact {contact_id}")
    terminal.print_result({"removed": contact_id}, f"removed {contact_id}")


# --- messages, escalation, key


def messages(
    *,
    tenant: Tenant,
    episode: Annotated[str | None, typer.Option(help="Only of this episode.")] = None,
    to_contact: Annotated[
        str | None, typer.Option("--contact", help="Only to this contact.")
    ] = None,
    over: Annotated[str | None, typer.Option("--channel", help="Only over this channel.")] = None,
    state: Annotated[
        str | None, typer.Option(help="Only pending, sent, failed or dropped ones.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 100,
) -> int:
    """List messages about alerts of the cloud, newest first. Exit code 3: some failed."""
    from farmiq.cloud.notification.api import MessageFilter
    from farmiq.cloud.notification.sending import queries

    query = terminal.query(
        MessageFilter, episode=episode, contact=to_contact, channel=over, state=state, limit=limit
    )
    rows = terminal.in_transaction(
        lambda tx: queries.page(tx, tenant, query.page()), terminal.CLOUD
    )
    terminal.print_page(rows, limit, _cells)
    return 3 if any(row["state"] == "failed" for row in rows[:limit]) else 0


def _cells(row: "Mapping[str, Any]") -> tuple[str, ...]:
    why = f"\n    {row['error']}" if row["error"] else ""
    return (
        terminal.local(row["created_at"]),
        row["state"],
        row["step"],
        row["contact_id"] or row["address"],
        row["channel_id"],
        f"{row['subject']}{why}",
    )


def escalation(
    minutes: Annotated[
        str | None, typer.Argument(help="Minutes, or never; without it: as it is now.")
    ] = None,
    *,
    tenant: Tenant,
) -> None:
    """Say or set after how many minutes without acknowledgement level 2 is told."""
    from farmiq.cloud.notification import contacts

    if minutes is not None and minutes != "never" and not (minutes.isdecimal() and int(minutes)):
        terminal.fail("give a number of minutes, or never", code=2)

    async def work(tx: "db.Connection") -> int | None:
        if minutes is not None:
            after = None if minutes == "never" else min(int(minutes), 7 * 24 * 60)
            await contacts.save_settings(tx, tenant, escalate_after_min=after, by=terminal.actor())
        return await contacts.escalate_after_min(tx, tenant)

    after = terminal.in_transaction(work, terminal.CLOUD)
    shown = "never" if after is None else f"after {after} minutes"
    terminal.print_result({"escalate_after_min": after}, f"level 2 is told {shown}")


def key(
    file: Annotated[Path, typer.Argument(help="Where the key is to be (0600); it must not exist.")],
) -> None:
    """Make the key that seals secrets of channels and signs links (FARMIQ_SECRETS_KEY_FILE).

    Every instance of the cloud needs the same file. Without it no secret can be read again.
    """
    from farmiq.plumbing import sealing

    try:
        sealing.write_new_key(file)
    except OSError as error:
        terminal.fail(f"{file}: {error.strerror}", code=2)
    terminal.print_result(
        {"FARMIQ_SECRETS_KEY_FILE": str(file.absolute())},
        f'FARMIQ_SECRETS_KEY_FILE="{file.absolute()}"',
    )


# --- what the commands share


def _read(file: str, kind: type[T]) -> T:
    """The values in a file. Fails with what is wrong, without quoting the file."""
    import msgspec

    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return msgspec.json.decode(raw, type=kind)
    except OSError as error:
        terminal.fail(f"{file}: {error.strerror}", code=2)
    except (msgspec.MsgspecError, ValueError) as error:
        terminal.fail(f"{file}: {error}", code=2)


def _in_transaction(work: "Callable[[db.Connection], Coroutine[Any, Any, T]]") -> T:
    from farmiq.cloud.notification import contacts
    from farmiq.plumbing.sealing import SealError

    try:
        return terminal.in_transaction(work, terminal.CLOUD)
    except contacts.InvalidError as error:
        terminal.fail("\n".join(f"{field} {reason}" for field, reason in error.problems), code=2)
    except (SealError, contacts.TooManyError) as error:
        terminal.fail(str(error))


def _settings() -> Any:
    from farmiq.config import CloudSettings

    return CloudSettings.load_some(terminal.environment())


def _sealer(settings: Any) -> "Sealer | None":
    from farmiq.plumbing import sealing

    file = settings.secrets_key_file
    return None if file is None else sealing.read(file)
