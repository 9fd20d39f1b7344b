"""A real SMTP server on loopback that stores what it accepts and fails as a test says."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage

from tests.support.ports import free_port

HOST = "127.0.0.1"


@dataclass
class MailServer:
    """`received` grows before the answer to DATA; `answers` replace those of commands."""

    port: int
    user: str | None = None
    password: str | None = None
    context: ssl.SSLContext | None = None
    # By command or receiver, such as {"RCPT": "550 unknown"} or {"ann@example.com": "450 later"};
    # "close" cuts the connection instead.
    answers: dict[str, str] = field(default_factory=dict)
    # While it is clear nothing is answered.
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    received: list[EmailMessage] = field(default_factory=list)
    envelopes: list[tuple[str, list[str]]] = field(default_factory=list)
    connections: int = 0
    serving: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        who = f"{self.user}:{self.password}@" if self.user else ""
        return f"smtp://{who}{HOST}:{self.port}"

    def subjects(self) -> list[str]:
        return [str(message["Subject"]) for message in self.received]

    def texts(self) -> list[str]:
        return [message.get_content() for message in self.received]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        try:
            await self._converse(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the test ends
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sender, to = "", list[str]()
        signed_in = self.user is None
        if not await self._answer(writer, "CONNECT", "220 test ready"):
            return
        while line := (await reader.readline()).decode().strip():
            command, _, argument = line.partition(" ")
            match command.upper():
                case "EHLO":
                    said = "250-test\r\n250 AUTH PLAIN" if self.user else "250 test"
                case "AUTH":
                    given = base64.b64decode(argument.partition(" ")[2]).decode()
                    signed_in = given == f"\0{self.user}\0{self.password}"
                    said = "235 welcome" if signed_in else "535 no"
                case "MAIL" if not signed_in:
                    said = "530 sign in first"
                case "MAIL":
                    sender, to, said = argument, [], "250 ok"
                case "RCPT":
                    to.append(argument.partition(":")[2].strip("<>"))
                    said = self.answers.get(to[-1], "250 ok")
                case "DATA":
                    writer.write(b"354 go on\r\n")
                    text = await reader.readuntil(b"\r\n.\r\n")
                    body = text[:-3].replace(b"\r\n..", b"\r\n.")
                    self.envelopes.append((sender, to))
                    self.received.append(message_from_bytes(body, policy=policy.default))
                    said = "250 stored"
                case _:
                    said = {"QUIT": "221 bye"}.get(command.upper(), "250 ok")
            if not await self._answer(writer, command.upper(), said):
                return

    async def _answer(self, writer: asyncio.StreamWriter, command: str, said: str) -> bool:
        await self.answering.wait()
        said = self.answers.get(command, said)
        if said != "close":
            writer.write(f"{said}\r\n".encode())
            await writer.drain()
        return said != "close" and not said.startswith("221")


@asynccontextmanager
async def mail_server(
    *,
    port: int | None = None,
    user: str | None = None,
    password: str | None = None,
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[MailServer]:
    """A server that runs in this process; `context` makes it speak TLS from the first byte."""
    server = MailServer(port or free_port(), user, password, context)
    server.answering.set()
    listening = await asyncio.start_server(server.serve, HOST, server.port, ssl=context)
    try:
        yield server
    finally:
        listening.close()
        for task in server.serving:
            task.cancel()
        await asyncio.gather(*server.serving, return_exceptions=True)
