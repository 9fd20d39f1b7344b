"""E-mail over SMTP with a deadline: one message to one or more addresses.

    url: smtp://[user:password@]host[:587][?tls=no]   STARTTLS if the server offers it
         smtps://[user:password@]host[:465]           TLS from the first byte

A server that dies after it was given the text, and before it answered, may have sent the message:
whoever tries again may send it twice, with the same Message-ID.
"""

import asyncio
import contextlib
import re
import smtplib
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from ipaddress import ip_address
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from farmiq.plumbing import ids

DEADLINE_S = 30.0
MAX_SUBJECT = 200
MAX_TEXT = 64 * 1024
MAX_RECIPIENTS = 50
MAX_FILE = 10 * 2**20
_MAX_REASON = 300
# The caller's deadline cuts the connection; this much later a thread that still connects ends too.
_CONNECT_GRACE_S = 1.0
_PORTS = {"smtp": 587, "smtps": 465}
# What every mail server accepts: no quoted local parts, no letters beyond ASCII.
_MAILBOX = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class MailError(Exception):
    """The message was not sent; `permanent` says that the same message never will be.

    The text has neither the address of the server nor its password.
    """

    def __init__(self, text: str, *, permanent: bool = False) -> None:
        super().__init__(text)
        self.permanent = permanent


@dataclass(frozen=True, slots=True)
class Attachment:
    """A PDF that goes with a message."""

    name: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Server:
    host: str
    port: int
    user: str | None
    password: str | None
    implicit_tls: bool
    starttls: bool

    @property
    def is_local(self) -> bool:
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def server(url: str) -> Server:
    """Read the address of a mail server. Raises ValueError, which does not quote it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("the address of the mail server has no valid port or host") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/"):
        raise ValueError("a mail server is smtp://user:password@host:port or smtps://…")
    if not _is_one_line(unquote(url)):
        raise ValueError("the address of the mail server has control characters")
    if (parts.username is None) != (parts.password is None):
        raise ValueError("the mail server needs both a user and a password, or neither")
    return Server(
        parts.hostname,
        port or _PORTS[parts.scheme],
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
        parts.scheme == "smtps",
        _wants_tls(parts),
    )


def _wants_tls(parts: SplitResult) -> bool:
    options = parse_qs(parts.query)
    if options and options != {"tls": ["no"]}:
        raise ValueError("after ? a mail server takes tls=no only")
    return not options


def is_mailbox(text: str) -> bool:
    """Whether this is one bare address, such as ann@example.com."""
    return len(text) <= 254 and _MAILBOX.fullmatch(text) is not None  # noqa: PLR2004 - RFC 5321


async def send(
    url: str,
    *,
    sender: str,
    to: Sequence[str],
    subject: str,
    text: str,
    message_id: str | None = None,
    attachment: Attachment | None = None,
    connect_to: str | None = None,
    context: ssl.SSLContext | None = None,
    deadline_s: float = DEADLINE_S,
) -> None:
    """Send one message; returns when the server has accepted it for every address.

    `connect_to` is an address of the host that was checked before; else the host is resolved here.
    Raises MailError if it was not accepted in time, ValueError if an argument is wrong.
    """
    where = server(url)
    message = compose(
        sender=sender,
        to=to,
        subject=subject,
        text=text,
        message_id=message_id,
        attachment=attachment,
    )
    client = _Client(
        where, connect_to=connect_to, context=context, timeout_s=deadline_s + _CONNECT_GRACE_S
    )
    # A thread of its own: a server that hangs takes none from anybody else.
    with_thread = ThreadPoolExecutor(1, thread_name_prefix="mail")
    sending = asyncio.get_running_loop().run_in_executor(with_thread, client.deliver, message)
    try:
        async with asyncio.timeout(deadline_s):
            await asyncio.shield(sending)
    except TimeoutError:
        raise MailError(f"the mail server took longer than {deadline_s:g} s") from None
    finally:
        client.abandon()
        with_thread.shutdown(wait=False)
        sending.add_done_callback(lambda done: done.cancelled() or done.exception())


def compose(
    *,
    sender: str,
    to: Sequence[str],
    subject: str,
    text: str,
    message_id: str | None = None,
    attachment: Attachment | None = None,
) -> EmailMessage:
    """Make the message. Raises ValueError for an address or a header that could carry another."""
    name, mailbox = parseaddr(sender)
    if not is_mailbox(mailbox) or not _is_one_line(sender):
        raise ValueError("the sender has to be an address, such as FarmIQ <alerts@example.com>")
    if not 0 < len(to) <= MAX_RECIPIENTS:
        raise ValueError(f"a message goes to 1 to {MAX_RECIPIENTS} addresses")
    for address in to:
        if not is_mailbox(address):
            raise ValueError("a receiver has to be one address, such as ann@example.com")
    if not _is_one_line(subject):
        raise ValueError("the subject has to be one line without control characters")
    if message_id is not None and not re.fullmatch(r"[\w.-]{1,128}", message_id, re.ASCII):
        raise ValueError("the message id has to be letters, digits, dots and dashes")
    message = EmailMessage(policy=SMTP)
    message["From"] = Address(name, addr_spec=mailbox)
    message["To"] = [Address(addr_spec=address) for address in to]
    message["Subject"] = _encodable(subject)[:MAX_SUBJECT]
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = f"<{message_id or ids.new()}@{mailbox.partition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(_CONTROL.sub(" ", _encodable(text)[:MAX_TEXT]), charset="utf-8")
    if attachment is not None:
        _attach(message, attachment)
    return message


def _attach(message: EmailMessage, attachment: Attachment) -> None:
    if not re.fullmatch(r"[\w.-]{1,128}\.pdf", attachment.name, re.ASCII):
        raise ValueError("a file has to have a name of letters, digits, dots and dashes, .pdf")
    if len(attachment.content) > MAX_FILE:
        raise ValueError(f"a file has at most {MAX_FILE} bytes")
    message.add_attachment(
        attachment.content, maintype="application", subtype="pdf", filename=attachment.name
    )


def _is_one_line(text: str) -> bool:
    return "\n" not in text and _CONTROL.search(text) is None


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


class _Client(smtplib.SMTP):
    """smtplib's client, which connects to a given address and can be abandoned."""

    def __init__(
        self,
        where: Server,
        *,
        connect_to: str | None,
        context: ssl.SSLContext | None,
        timeout_s: float,
    ) -> None:
        self._where = where
        self._connect_to = connect_to
        self._context = context
        self._abandoned = False
        # Named: smtplib would resolve this machine's own name, which may take long.
        super().__init__(local_hostname="[127.0.0.1]", timeout=timeout_s)

    def deliver(self, message: EmailMessage) -> None:
        """Raises MailError; if only some addresses were refused, the others have the message."""
        try:
            self._exchange(message)
        except smtplib.SMTPRecipientsRefused as error:
            code, text = max(error.recipients.values())
            raise _answered("refused a receiver", code, text) from None
        except smtplib.SMTPAuthenticationError:
            # Not permanent: the account may be corrected. The answer may quote what it was given.
            raise MailError("the mail server did not accept user and password") from None
        except smtplib.SMTPResponseException as error:
            raise _answered("refused", error.smtp_code, error.smtp_error) from None
        except ssl.SSLError as error:
            raise MailError(f"no TLS with the mail server: {error.reason or error}") from None
        except smtplib.SMTPNotSupportedError:
            raise MailError("the mail server offers no way to sign in") from None
        except (OSError, smtplib.SMTPException, UnicodeError) as error:
            raise MailError(f"no connection to the mail server: {type(error).__name__}") from None
        finally:
            self.close()

    def _exchange(self, message: EmailMessage) -> None:
        where = self._where
        self._host = where.host
        code, text = self.connect(where.host, where.port)
        if self._abandoned:  # while there was no socket yet that could have been ended
            raise TimeoutError
        if code != 220:  # noqa: PLR2004 - "ready" of RFC 5321
            raise smtplib.SMTPResponseException(code, text)
        domain = str(message["From"].addresses[0].domain)
        self.ehlo(domain)
        self._begin_tls(domain)
        if where.user is not None and where.password is not None:
            self.login(where.user, where.password)
        # As its policy has it: send_message would put a > before lines that begin with "From ".
        refused = self.sendmail(
            message["From"].addresses[0].addr_spec,
            [address.addr_spec for address in message["To"].addresses],
            message.as_bytes(),
        )
        if refused:
            raise smtplib.SMTPRecipientsRefused(refused)

    def _begin_tls(self, name: str) -> None:
        where = self._where
        if where.implicit_tls:
            return
        if where.starttls and self.has_extn("starttls"):
            self.starttls(context=self._tls())
            self.ehlo(name)
        elif where.starttls and where.password is not None and not where.is_local:
            raise MailError("the mail server offers no TLS: the password was not sent (tls=no)")

    def _tls(self) -> ssl.SSLContext:
        return self._context or ssl.create_default_context()

    def _get_socket(self, host: str, port: int, timeout: float | None) -> socket.socket:
        opened = socket.create_connection((self._connect_to or host, port), timeout)
        return (
            self._tls().wrap_socket(opened, server_hostname=host)
            if self._where.implicit_tls
            else opened
        )

    def abandon(self) -> None:
        """End what still goes on in the thread: it must not send after its deadline."""
        self._abandoned = True
        if self.sock is not None:
            with contextlib.suppress(OSError):  # closed already
                self.sock.shutdown(socket.SHUT_RDWR)


def _answered(what: str, code: int, text: bytes | str) -> MailError:
    answer = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    answer = " ".join(answer.split())[:_MAX_REASON]
    return MailError(f"the mail server {what}: {code} {answer}", permanent=500 <= code <= 599)  # noqa: PLR2004
