"""MQTT 3.1.1, QoS 1: a connection that reconnects by itself and acknowledges on request.

paho speaks the protocol, but for the two packets that come by the thousand: messages are taken
from the stream of bytes, and acknowledgements written to it, many at once (D-40). The asyncio loop
drives the socket, so every callback below runs in the loop's own thread. What arrives waits in a
bounded buffer: when it is full we stop reading the socket, and the broker keeps the rest.
Acknowledgements of an earlier connection are dropped, because the broker sends those again.
"""

import asyncio
import contextlib
import random
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from farmiq.plumbing import log
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.messaging import mqtt_stream
from farmiq.plumbing.messaging.mqtt_address import address, addresses
from farmiq.plumbing.messaging.mqtt_stream import MalformedPacketError, Message, Stream
from farmiq.plumbing.tls import Tls, advice

__all__ = ["Client", "DisconnectedError", "Message", "Will", "address", "connected", "end_session"]

KEEPALIVE_S = 30
CONNECT_TIMEOUT_S = 10.0
_REJECTED = "refused"
PUBLISH_TIMEOUT_S = 20.0
READ_BYTES = 256 * 1024
# Longer messages are cut: what is taken from a broker stays in memory for a while.
MAX_PACKET = 1024 * 1024
# Name lookup, TCP and TLS block; other users of the loop's own threads must not delay them.
_CONNECTING = ThreadPoolExecutor(8, thread_name_prefix="mqtt-connect")


class DisconnectedError(Exception):
    """The connection ended before the broker acknowledged: it may or may not have the message."""


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker says for us when we vanish.

    A payload that is made gets made for each connection: who vanishes twice says two things.
    """

    topic: str
    payload: bytes | Callable[[], bytes]
    retain: bool = True

    def make(self) -> bytes:
        return self.payload if isinstance(self.payload, bytes) else self.payload()


class Client:
    """One MQTT connection. Open it with `connected()`."""

    def __init__(
        self,
        url: str,
        *,
        client_id: str,
        topics: Iterable[str] = (),
        subscribe_qos: int = 1,
        persistent_session: bool = True,
        max_waiting: int = 10_000,
        max_waiting_bytes: int = 32 * 2**20,
        will: Will | None = None,
        tls: Tls | None = None,
        backoff: Backoff | None = None,
        permit: Callable[[], Awaitable[None]] | None = None,
        quiet: bool = False,
    ) -> None:
        """`permit` is awaited before every connecting: a second client of one id ends the first."""
        self._url = urlsplit(url)
        self._addresses = addresses(url)
        random.shuffle(self._addresses)
        self._topics = [(topic, subscribe_qos) for topic in topics]
        self._max_waiting = max_waiting
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting_bytes = 0
        self._backoff = backoff or Backoff()
        self._permit = permit
        self._log, self._quiet = log.get(client_id), quiet
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._waiting: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        # Up or down: the broker has answered, one way or the other.
        self._answered = asyncio.Event()
        self._why_down = "not connected yet"
        self._connection = 0
        self._resumed_at: float | None = None
        self._new_sessions = 0
        self._reading_paused = False
        self._closing = False
        self._wire: _Wire | None = None
        self._stream = Stream(connection=0, max_packet_bytes=MAX_PACKET)
        self._heard = False
        self._unconfirmed: dict[int, asyncio.Future[None]] = {}
        self._will = will
        self._paho = self._make_paho(client_id, persistent_session=persistent_session, tls=tls)

    # --- what a service uses

    @property
    def waiting(self) -> int:
        """Messages received and not yet taken: the measure of backpressure."""
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    @property
    def paused(self) -> bool:
        """Whether so much waits that the socket is not read."""
        return self._reading_paused

    @property
    def connection(self) -> int:
        """Another number than before means that the link was lost in between."""
        return self._connection

    @property
    def resumed_at(self) -> float | None:
        """When this connection took up a session that the broker had kept, by the monotonic clock.

        What the one before did not acknowledge comes again on it, perhaps after what is newer.
        """
        return self._resumed_at

    @property
    def new_sessions(self) -> int:
        """On how many connections the broker had no session for us; more than one: it lost one."""
        return self._new_sessions

    def problem(self) -> str | None:
        """Why nothing can arrive, in a sentence, or None."""
        return None if self._up.is_set() else f"broker: {self._why_down}"

    async def until_up(self) -> None:
        await self._up.wait()

    async def batch(
        self, *, max_messages: int, linger_s: float, max_bytes: int = 8 * 2**20
    ) -> list[Message]:
        """The next messages: as soon as there is one, plus what follows within the linger.

        At most so many, and no more after the one that reaches `max_bytes`.
        """
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        deadline = time.monotonic() + linger_s
        while (
            len(self._waiting) < max_messages
            and not self._reading_paused
            and (left := deadline - time.monotonic()) > 0
        ):
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._arrived.wait()
        taken = self._take(max_messages, max_bytes)
        self._resume_reading()
        # If the connection was lost during the linger, what waited is gone and will come again.
        return taken or await self.batch(
            max_messages=max_messages, linger_s=linger_s, max_bytes=max_bytes
        )

    def ack(self, messages: Iterable[Message]) -> None:
        """Tell the broker to forget these. Only ever called after the commit."""
        current = [message for message in messages if message.connection == self._connection]
        if self._wire is not None and current:
            self._wire.send(mqtt_stream.acknowledgements(current))

    async def publish(
        self, topic: str, payload: bytes, *, retain: bool = False, qos: int = 1
    ) -> None:
        """Returns when the broker has acknowledged. Raises DisconnectedError if that is not known.

        With qos 0 nobody acknowledges: it may be lost without a word.
        """
        if not self._up.is_set():
            raise DisconnectedError(self._why_down)
        info = self._paho.publish(topic, payload, qos=qos, retain=retain)
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise DisconnectedError(paho.error_string(info.rc))
        if qos == 0:
            return
        confirmed = self._loop.create_future()
        self._unconfirmed[info.mid] = confirmed
        try:
            async with asyncio.timeout(PUBLISH_TIMEOUT_S):
                await confirmed
        except TimeoutError:
            self._unconfirmed.pop(info.mid, None)
            raise DisconnectedError(
                f"no acknowledgement within {PUBLISH_TIMEOUT_S:.0f} s"
            ) from None

    # --- the life of the connection

    async def stay_connected(self) -> None:
        while not self._closing:
            if self._permit is not None:
                await self._permit()
            try:
                await self._connect_once()
                await self._tend()
            except (OSError, DisconnectedError, TimeoutError) as error:
                self._why_down = advice(error) or str(error) or type(error).__name__
            finally:
                self._clear_connection()
            await self._rest()

    async def _rest(self) -> None:
        if not self._closing:
            wait_s = self._backoff.next_s()
            self._log.warning("mqtt.reconnect", reason=self._why_down, wait_s=round(wait_s, 2))
            await asyncio.sleep(wait_s)

    async def close(self) -> None:
        self._closing = True
        if self._up.is_set():
            self._paho.disconnect()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._down.wait()
        self._clear_connection()
        # paho closes its socket when it is collected, perhaps after the loop has ended.
        self._paho.on_socket_close = None

    def drop(self) -> None:
        """End the connection without a goodbye, as a power cut does, and for good."""
        self._closing = True
        if self._wire is not None:
            self._lose(self._wire)

    async def _connect_once(self) -> None:
        self._down.clear()
        self._answered.clear()
        if (will := self._will) is not None:
            self._paho.will_set(will.topic, will.make(), qos=1, retain=will.retain)
        # A node of a cluster that does not answer is followed by the next one.
        self._addresses.append(self._addresses.pop(0))
        host, port = self._addresses[-1]
        await self._loop.run_in_executor(_CONNECTING, self._paho.connect, host, port, KEEPALIVE_S)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await self._answered.wait()
        if not self._up.is_set():
            raise DisconnectedError(self._why_down)

    async def _tend(self) -> None:
        """Keepalive, until the connection is gone."""
        while not self._down.is_set():
            self._hear()
            self._paho.loop_misc()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._down.wait()
        raise DisconnectedError(self._why_down)

    def _hear(self) -> None:
        """Tell paho's keepalive of what it did not read itself.

        While we do not read we cannot see an answer to a ping, and do not miss it.
        """
        if self._heard or self._reading_paused:
            self._paho._last_bytes_received = time.monotonic()  # noqa: SLF001
        if self._reading_paused:
            self._paho._ping_t = 0  # noqa: SLF001
        self._heard = False

    def _clear_connection(self) -> None:
        self._up.clear()
        self._connection += 1
        self._resumed_at = None
        self._waiting.clear()
        self._waiting_bytes = 0
        self._stop_watching()
        for confirmed in self._unconfirmed.values():
            if not confirmed.done():
                confirmed.set_exception(DisconnectedError(self._why_down))
        self._unconfirmed.clear()

    # --- paho's side

    def _make_paho(
        self, client_id: str, *, persistent_session: bool, tls: Tls | None
    ) -> paho.Client:
        client = _Paho(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=not persistent_session,
            protocol=paho.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = CONNECT_TIMEOUT_S
        client.max_inflight_messages_set(1000)
        if self._url.username:
            client.username_pw_set(unquote(self._url.username), unquote(self._url.password or ""))
        if self._url.scheme == "mqtts":
            client.tls_set_context((tls or Tls()).client())
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_publish = self._on_publish
        client.on_socket_open = self._on_socket_open
        client.on_socket_close = self._on_socket_close
        client.on_socket_register_write = self._on_register_write
        return client

    def _on_connect(self, _c: Any, _u: Any, flags: Any, reason: Any, _p: Any) -> None:
        # What it left comes at once, before we have subscribed again.
        self._resumed_at = time.monotonic() if flags.session_present else None
        self._new_sessions += not flags.session_present and not reason.is_failure
        if reason.is_failure:
            self._why_down = f"{_REJECTED}: {reason}"
            self._now_down()
        elif self._topics:
            self._paho.subscribe(self._topics)
        else:
            self._now_up()

    def _on_subscribe(self, _c: Any, _u: Any, _mid: int, reasons: list[Any], _p: Any) -> None:
        refused = [
            topic for (topic, _), why in zip(self._topics, reasons, strict=False) if why.is_failure
        ]
        if refused:
            self._why_down = f"subscription refused: {refused}"
            self._paho.disconnect()
        else:
            self._now_up()

    def _now_up(self) -> None:
        if not self._quiet:
            self._log.info("mqtt.connected")
        self._up.set()
        self._answered.set()

    def _now_down(self) -> None:
        # At once: a caller that publishes in a loop would otherwise never let the loop notice.
        self._up.clear()
        self._down.set()
        self._answered.set()

    def _on_disconnect(self, _c: Any, _u: Any, _flags: Any, reason: Any, _p: Any) -> None:
        if self._up.is_set():
            self._why_down = f"connection lost: {reason}"
        self._in_loop(self._now_down)

    def _on_publish(self, _c: Any, _u: Any, mid: int, _reason: Any, _p: Any) -> None:
        confirmed = self._unconfirmed.pop(mid, None)
        if confirmed is not None and not confirmed.done():
            confirmed.set_result(None)

    # --- the socket in the loop

    def _in_loop(self, act: Callable[..., object], *args: Any) -> None:
        """Connecting has a thread of its own; all else must act before paho closes the fd."""
        if threading.get_ident() == self._loop_thread:
            act(*args)
        else:
            self._loop.call_soon_threadsafe(act, *args)

    def _on_socket_open(self, _c: Any, _u: Any, wire: Any) -> None:
        # Small packets must not wait for each other: Nagle cost 40 ms per acknowledgement.
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in_loop(self._watch, wire)

    def _watch(self, wire: "_Wire") -> None:
        self._wire = wire
        wire.lost = self._lose
        self._stream = Stream(connection=self._connection, max_packet_bytes=MAX_PACKET)
        self._reading_paused = False
        self._loop.add_reader(wire.socket, self._read)

    def _on_socket_close(self, _c: Any, _u: Any, _wire: Any) -> None:
        self._in_loop(self._stop_watching)

    def _stop_watching(self) -> None:
        if self._wire is not None and self._wire.fileno() >= 0:
            self._loop.remove_reader(self._wire.socket)
            self._loop.remove_writer(self._wire.socket)
        self._wire = None

    def _on_register_write(self, _c: Any, _u: Any, wire: Any) -> None:
        # Not at once: this may be called from within paho's callbacks.
        self._in_loop(self._loop.call_soon, self._write_pahos, wire)

    def _write_pahos(self, wire: "_Wire") -> None:
        if wire is self._wire:
            self._paho.loop_write()

    def _read(self) -> None:
        wire = self._wire
        if wire is None or self._reading_paused:
            return
        try:
            data = wire.socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            data = b""
        if data:
            self._heard = True
            self._stream.feed(data)
            self._sort_out(wire)
        else:
            self._lose(wire)

    def _sort_out(self, wire: "_Wire") -> None:
        """Messages wait for a batch, all else is paho's."""
        room = self._max_waiting - len(self._waiting)
        room_bytes = self._max_waiting_bytes - self._waiting_bytes
        try:
            messages, others = self._stream.take(max_messages=room, max_bytes=room_bytes)
        except MalformedPacketError as error:
            self._why_down = f"the broker sent {error}"
            self._lose(wire)
            return
        if messages:
            self._waiting.extend(messages)
            self._waiting_bytes += sum(len(message.payload) for message in messages)
            self._arrived.set()
        if others:
            wire.hand_over(others)
            while wire.handed_over and wire is self._wire:
                self._paho.loop_read()
        if self._full(1):
            self._pause_reading()
        elif wire is self._wire:
            self._read_on(wire)

    def _lose(self, wire: "_Wire") -> None:
        """The connection is broken: paho finds out by reading."""
        wire.broken = True
        if wire is self._wire:
            self._loop.remove_reader(wire.socket)
            self._paho.loop_read()

    def _read_on(self, wire: "_Wire") -> None:
        """A TLS socket may hold bytes already decrypted that no reader event announces."""
        if isinstance(wire.socket, ssl.SSLSocket) and wire.socket.pending():
            self._loop.call_soon(self._read)

    def _take(self, max_messages: int, max_bytes: int) -> list[Message]:
        taken: list[Message] = []
        while self._waiting and len(taken) < max_messages and max_bytes > 0:
            message = self._waiting.popleft()
            taken.append(message)
            max_bytes -= len(message.payload)
            self._waiting_bytes -= len(message.payload)
        return taken

    def _full(self, parts: int) -> bool:
        """Whether more waits than 1/`parts` of what may: by count, or by bytes."""
        return (
            len(self._waiting) * parts >= self._max_waiting
            or self._waiting_bytes * parts >= self._max_waiting_bytes
        )

    def _pause_reading(self) -> None:
        if self._wire is not None and not self._reading_paused:
            self._reading_paused = True
            self._loop.remove_reader(self._wire.socket)
            self._arrived.set()

    def _resume_reading(self) -> None:
        if self._reading_paused and not self._full(2):
            self._reading_paused = False
            if self._wire is not None:
                self._loop.add_reader(self._wire.socket, self._read)
                self._sort_out(self._wire)


class _Wire:
    """The socket as paho sees it: it reads what is handed over, and what it sends joins ours."""

    def __init__(self, plain: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.socket, self._loop = plain, loop
        self.broken = False
        self.lost: Callable[[_Wire], None] = lambda _: None
        self.handed_over = bytearray()
        self._unsent = bytearray()

    def hand_over(self, data: bytes) -> None:
        self.handed_over += data

    def recv(self, max_bytes: int) -> bytes:
        if self.broken:
            return b""
        if not self.handed_over:
            raise BlockingIOError
        data = bytes(self.handed_over[:max_bytes])
        del self.handed_over[:max_bytes]
        return data

    def send(self, data: bytes | bytearray) -> int:
        """Takes all of it: what the socket does not, waits here, so packets are never mixed."""
        waited = bool(self._unsent)
        self._unsent += data
        if not waited:
            self._flush()
        return len(data)

    def _flush(self) -> None:
        try:
            sent = self.socket.send(self._unsent) if self._unsent else 0
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            sent = 0
        except OSError:
            sent = len(self._unsent)
            self._loop.call_soon(self.lost, self)
        del self._unsent[:sent]
        if self.fileno() < 0:
            return
        if self._unsent:
            self._loop.add_writer(self.socket, self._flush)
        else:
            self._loop.remove_writer(self.socket)

    def fileno(self) -> int:
        return self.socket.fileno()

    def setblocking(self, flag: bool) -> None:  # noqa: FBT001 - as sockets have it
        self.socket.setblocking(flag)

    def close(self) -> None:
        self.socket.close()


class _Paho(paho.Client):
    """paho on a wire of ours."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._the_loop = asyncio.get_running_loop()

    def _create_socket(self) -> Any:
        return _Wire(cast(socket.socket, super()._create_socket()), self._the_loop)


@contextlib.asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Client]:
    """A client that keeps itself connected for as long as the block lasts (options: see Client)."""
    client = Client(url, **options)
    connecting = asyncio.create_task(client.stay_connected())
    try:
        yield client
    finally:
        await client.close()
        connecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await connecting


async def end_session(url: str, client_id: str, *, tls: Tls | None = None) -> bool | None:
    """End the session that a client id has at the broker, and its connection if it has one.

    One try: False if the broker refused us, None if it did not answer.
    """
    link = Client(url, client_id=client_id, persistent_session=False, tls=tls, quiet=True)
    try:
        await link._connect_once()  # noqa: SLF001 - there is nothing to keep
    except (OSError, DisconnectedError, TimeoutError) as error:
        return False if str(error).startswith(_REJECTED) else None
    finally:
        await link.close()
    return True
