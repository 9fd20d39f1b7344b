"""Mail through a real SMTP server: accepted, refused, slow, and never with foreign headers."""

import ssl
from typing import Any

import pytest
import trustme

from farmiq.lab.simulate.link import linked
from farmiq.plumbing import mail
from tests.support.mail_server import HOST, MailServer, mail_server
from tests.support.until import until

MESSAGE: dict[str, Any] = {
    "sender": "FarmIQ <alerts@example.com>",
    "to": ["ann@example.com"],
    "subject": "Too hot in barn 3: 31 °C",
    "text": "Look at once.\n.\nFrom barn 3: ไก่ 31 °C\n",
}


async def send(server: MailServer, url: str | None = None, **given: Any) -> None:
    await mail.send(url or server.url, **{**MESSAGE, **given})


async def test_message_arrives_with_subject_text_and_id() -> None:
    async with mail_server() as server:
        await send(server, message_id="018f-1")
    (message,) = server.received
    assert message["Subject"] == MESSAGE["subject"]
    assert message.get_content().replace("\r\n", "\n") == MESSAGE["text"]
    assert message["Message-ID"] == "<018f-1@example.com>"
    assert message["Auto-Submitted"] == "auto-generated"
    assert server.envelopes[0][1] == ["ann@example.com"]


async def test_user_and_password_are_used_and_wrong_ones_are_not_quoted() -> None:
    async with mail_server(user="farm", password="s3cret%40") as server:
        await send(server, f"smtp://farm:s3cret%2540@127.0.0.1:{server.port}")
        with pytest.raises(mail.MailError, match="did not accept user") as refused:
            await send(server, f"smtp://farm:wr0ng@127.0.0.1:{server.port}")
    assert len(server.received) == 1
    assert "wr0ng" not in str(refused.value)
    assert not refused.value.permanent


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server named mail.test, and of a client that trusts its authority."""
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("mail.test").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    return serving, trusting


async def test_tls_is_checked_against_the_authority() -> None:
    serving, trusting = contexts()
    async with mail_server(context=serving) as server:
        url = f"smtps://mail.test:{server.port}"
        await send(server, url, connect_to="127.0.0.1", context=trusting)
        with pytest.raises(mail.MailError, match="no TLS"):
            await send(server, url, connect_to="127.0.0.1")
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("command", "answer", "permanent"),
    [
        ("RCPT", "550 nobody of that name", True),
        ("RCPT", "450 greylisted", False),
        ("DATA", "554 looks like spam", True),
        ("CONNECT", "421 too busy", False),
        ("MAIL", "close", False),
    ],
)
async def test_refusal_says_why_and_whether_for_ever(
    command: str,
    answer: str,
    permanent: bool,  # noqa: FBT001
) -> None:
    async with mail_server() as server:
        server.answers[command] = answer
        with pytest.raises(mail.MailError) as refused:
            await send(server)
    assert refused.value.permanent is permanent
    assert answer == "close" or answer in str(refused.value)


async def test_server_that_never_answers_ends_at_the_deadline() -> None:
    async with mail_server() as server:
        server.answering.clear()
        with pytest.raises(mail.MailError, match=r"longer than 0\.2 s"):
            await send(server, deadline_s=0.2)
    assert server.received == []


async def test_deadline_during_the_tls_handshake_sends_nothing_afterwards() -> None:
    serving, trusting = contexts()
    async with mail_server(context=serving) as server, linked(HOST, server.port) as slow:
        slow.delay_s = 0.3
        url = f"smtps://mail.test:{slow.port_here}"
        with pytest.raises(mail.MailError, match="longer than"):
            await send(server, url, connect_to=HOST, context=trusting, deadline_s=0.1)
        slow.heal()
        # The handshake ends after the deadline, and then the connection.
        await until(lambda: server.serving and all(task.done() for task in server.serving))
    assert server.received == []


async def test_no_server_is_a_transient_error() -> None:
    async with mail_server() as server:
        pass
    with pytest.raises(mail.MailError, match="no connection") as refused:
        await send(server)
    assert not refused.value.permanent


@pytest.mark.parametrize(
    "given",
    [
        {"subject": "hot\r\nBcc: eve@example.com"},
        {"subject": "hot\nBcc: eve@example.com"},
        {"subject": "hot\x00"},
        {"to": ["ann@example.com\r\nBcc: eve@example.com"]},
        {"to": ["ann@example.com, eve@example.com"]},
        {"to": ["ann@example.com> <eve@example.com"]},
        {"to": []},
        {"sender": "alerts@example.com\nBcc: eve@example.com"},
        {"sender": "nobody"},
        {"message_id": "1>\r\nBcc: eve@example.com"},
    ],
)
async def test_header_injection_is_refused_before_anything_is_sent(
    given: dict[str, Any],
) -> None:
    async with mail_server() as server:
        with pytest.raises(ValueError, match=r"has to be|goes to"):
            await send(server, **given)
    assert server.connections == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "smtp://:25",
        "smtp://host:port",
        "smtp://user@host",
        "smtp://host/path",
        "smtp://host?tls=maybe",
        "smtp://u:p%0d%0a@host",
    ],
)
def test_odd_address_of_a_server_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ValueError, match="mail server") as refused:
        mail.server(url)
    assert url not in str(refused.value)


async def test_password_is_not_sent_without_tls_to_another_machine() -> None:
    async with mail_server(user="farm", password="s3cret") as server:
        url = f"smtp://farm:s3cret@mail.test:{server.port}"
        with pytest.raises(mail.MailError, match="offers no TLS"):
            await send(server, url, connect_to="127.0.0.1")
        await send(server, url + "?tls=no", connect_to="127.0.0.1")
    assert len(server.received) == 1
