"""MQTT 3.1.1, QoS 1: a connection that comes back by itself and acknowledges when told to.

paho speaks the protocol; the asyncio loop drives its socket, so every callback below runs in the
loop's own thread. What arrives waits in a bounded buffer: when it is full we stop reading the
socket, and the broker keeps the rest. Acknowledgements of an earlier connection are dropped,
because the broker sends those messages again.
"""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from farmiq.plumbing import log
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.tls import Tls

KEEPALIVE_S = 30
CONNECT_TIMEOUT_S = 10.0
PUBLISH_TIMEOUT_S = 20.0
DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}


class Disconnected(Exception):  # noqa: N818 - a state, not a mistake
    """The connection ended before the broker acknowledged: it may or may not have the message."""


@dataclass(frozen=True, slots=True)
class Message:
    topic: str
    payload: bytes
    retained: bool
    repeated: bool
    # Together these name the delivery; they mean nothing on a later connection.
    packet_id: int
    qos: int
    connection: int


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker says for us when we vanish."""

    topic: str
    payload: bytes
    retain: bool = True


class Client:
    """One MQTT connection. Open it with `connected()`."""

    def __init__(
        self,
        url: str,
        *,
        client_id: str,
        topics: Iterable[str] = (),
        keep_session: bool = True,
        most_waiting: int = 10_000,
        most_waiting_bytes: int = 32 * 2**20,
        will: Will | None = None,
        tls: Tls | None = None,
        backoff: Backoff | None = None,
        permit: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`permit` is awaited before every connecting: a second client of one id ends the first."""
        self._url = urlsplit(url)
        self._address = address(url)
        self._topics = [(topic, 1) for topic in topics]
        self._most_waiting = most_waiting
        self._most_waiting_bytes = most_waiting_bytes
        self._waiting_bytes = 0
        self._backoff = backoff or Backoff()
        self._permit = permit
        self._log = log.get(client_id)
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
        self._reading_paused = False
        self._closing = False
        self._socket: Any = None
        self._unconfirmed: dict[int, asyncio.Future[None]] = {}
        self._paho = self._make_paho(client_id, keep_session=keep_session, will=will, tls=tls)

    # --- what a service uses

    @property
    def waiting(self) -> int:
        """Messages received and not yet taken: the measure of backpressure."""
        return len(self._waiting)

    def problem(self) -> str | None:
        """Why nothing can arrive, in a sentence, or None."""
        return None if self._up.is_set() else f"broker: {self._why_down}"

    async def until_up(self) -> None:
        await self._up.wait()

    async def batch(self, *, most: int, linger_s: float) -> list[Message]:
        """The next messages: as soon as there is one, plus what follows within the linger."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        deadline = time.monotonic() + linger_s
        while len(self._waiting) < most and (left := deadline - time.monotonic()) > 0:
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._arrived.wait()
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        self._waiting_bytes -= sum(len(message.payload) for message in taken)
        self._resume_reading()
        # If the connection was lost during the linger, what waited is gone and will come again.
        return taken or await self.batch(most=most, linger_s=linger_s)

    def ack(self, messages: Iterable[Message]) -> None:
        """Tell the broker to forget these. Only ever called after the commit."""
        for message in messages:
            if message.connection == self._connection:
                self._paho.ack(message.packet_id, message.qos)

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Returns when the broker has acknowledged. Raises Disconnected if that is not known."""
        if not self._up.is_set():
            raise Disconnected(self._why_down)
        info = self._paho.publish(topic, payload, qos=1, retain=retain)
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise Disconnected(paho.error_string(info.rc))
        confirmed = self._loop.create_future()
        self._unconfirmed[info.mid] = confirmed
        try:
            async with asyncio.timeout(PUBLISH_TIMEOUT_S):
                await confirmed
        except TimeoutError:
            self._unconfirmed.pop(info.mid, None)
            raise Disconnected(f"no acknowledgement within {PUBLISH_TIMEOUT_S:.0f} s") from None

    # --- the life of the connection

    async def keep_connected(self) -> None:
        while not self._closing:
            if self._permit is not None:
                await self._permit()
            try:
                await self._connect_once()
                await self._tend()
            except (OSError, Disconnected, TimeoutError) as error:
                self._why_down = str(error) or type(error).__name__
            finally:
                self._forget_connection()
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
        self._forget_connection()
        # paho closes its socket when it is collected, perhaps after the loop has ended.
        self._paho.on_socket_close = self._paho.on_socket_unregister_write = None

    async def _connect_once(self) -> None:
        self._down.clear()
        self._answered.clear()
        host, port = self._address
        # Name lookup, TCP and TLS block: a thread does them while the loop goes on.
        await asyncio.to_thread(self._paho.connect, host, port, KEEPALIVE_S)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await self._answered.wait()
        if not self._up.is_set():
            raise Disconnected(self._why_down)

    async def _tend(self) -> None:
        """Keepalive, until the connection is gone."""
        while not self._down.is_set():
            self._paho.loop_misc()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._down.wait()
        raise Disconnected(self._why_down)

    def _forget_connection(self) -> None:
        self._up.clear()
        self._connection += 1
        self._waiting.clear()
        self._waiting_bytes = 0
        self._stop_watching()
        for confirmed in self._unconfirmed.values():
            if not confirmed.done():
                confirmed.set_exception(Disconnected(self._why_down))
        self._unconfirmed.clear()

    # --- paho's side

    def _make_paho(
        self, client_id: str, *, keep_session: bool, will: Will | None, tls: Tls | None
    ) -> paho.Client:
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            clean_session=not keep_session,
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
        if will is not None:
            client.will_set(will.topic, will.payload, qos=1, retain=will.retain)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_socket_open = self._on_socket_open
        client.on_socket_close = self._on_socket_close
        client.on_socket_register_write = self._on_register_write
        client.on_socket_unregister_write = self._on_unregister_write
        return client

    def _on_connect(self, _c: Any, _u: Any, _flags: Any, reason: Any, _p: Any) -> None:
        if reason.is_failure:
            self._why_down = f"refused: {reason}"
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
        self._log.info("mqtt.connected")
        self._up.set()
        self._answered.set()

    def _now_down(self) -> None:
        self._down.set()
        self._answered.set()

    def _on_disconnect(self, _c: Any, _u: Any, _flags: Any, reason: Any, _p: Any) -> None:
        if self._up.is_set():
            self._why_down = f"connection lost: {reason}"
        self._in_loop(self._now_down)

    def _on_message(self, _c: Any, _u: Any, received: paho.MQTTMessage) -> None:
        self._waiting.append(
            Message(
                topic=_topic_text(received),
                payload=bytes(received.payload),
                retained=received.retain,
                repeated=received.dup,
                packet_id=received.mid,
                qos=received.qos,
                connection=self._connection,
            )
        )
        self._arrived.set()
        self._waiting_bytes += len(received.payload)
        if self._full(1):
            self._pause_reading()

    def _on_publish(self, _c: Any, _u: Any, mid: int, _reason: Any, _p: Any) -> None:
        confirmed = self._unconfirmed.pop(mid, None)
        if confirmed is not None and not confirmed.done():
            confirmed.set_result(None)

    # --- the socket in the loop

    def _in_loop(self, act: Callable[..., None], *args: Any) -> None:
        """Connecting has a thread of its own; all else must act before paho closes the fd."""
        if threading.get_ident() == self._loop_thread:
            act(*args)
        else:
            self._loop.call_soon_threadsafe(act, *args)

    def _on_socket_open(self, _c: Any, _u: Any, sock: Any) -> None:
        # Small packets must not wait for each other: Nagle cost 40 ms per acknowledgement.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in_loop(self._watch, sock)

    def _watch(self, sock: Any) -> None:
        self._socket = sock
        self._reading_paused = False
        self._loop.add_reader(sock, self._read)
        if self._paho.want_write():
            self._loop.add_writer(sock, self._paho.loop_write)

    def _on_socket_close(self, _c: Any, _u: Any, _sock: Any) -> None:
        self._in_loop(self._stop_watching)

    def _stop_watching(self) -> None:
        if self._socket is not None and self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._socket = None

    def _on_register_write(self, _c: Any, _u: Any, sock: Any) -> None:
        self._in_loop(self._add_writer, sock)

    def _add_writer(self, sock: Any) -> None:
        if sock is self._socket and sock.fileno() >= 0:
            self._loop.add_writer(sock, self._paho.loop_write)

    def _on_unregister_write(self, _c: Any, _u: Any, sock: Any) -> None:
        self._in_loop(self._remove_writer, sock)

    def _remove_writer(self, sock: Any) -> None:
        if sock is self._socket and sock.fileno() >= 0:
            self._loop.remove_writer(sock)

    def _read(self) -> None:
        """One packet."""
        if not self._reading_paused:
            self._paho.loop_read()
            self._read_on()

    def _read_on(self) -> None:
        """A TLS socket may hold bytes already decrypted that no reader event announces."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            self._loop.call_soon(self._read)

    def _full(self, parts: int) -> bool:
        """Whether more waits than 1/`parts` of what may: by count, or by bytes."""
        return (
            len(self._waiting) * parts >= self._most_waiting
            or self._waiting_bytes * parts >= self._most_waiting_bytes
        )

    def _pause_reading(self) -> None:
        if self._socket is not None and not self._reading_paused:
            self._reading_paused = True
            self._loop.remove_reader(self._socket)

    def _resume_reading(self) -> None:
        if self._reading_paused and not self._full(2):
            self._reading_paused = False
            if self._socket is not None:
                self._loop.add_reader(self._socket, self._read)
                self._read_on()


def address(url: str) -> tuple[str, int]:
    """(host, port) of a broker. Raises ValueError if the address cannot be one."""
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError("the address of an MQTT broker begins with mqtt:// or mqtts://")
    try:
        return parts.hostname or "127.0.0.1", parts.port or DEFAULT_PORTS[parts.scheme]
    except ValueError:
        raise ValueError("the port in the address of an MQTT broker is not a number") from None


@contextlib.asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Client]:
    """A client that keeps itself connected for as long as the block lasts (options: see Client)."""
    client = Client(url, **options)
    keeper = asyncio.create_task(client.keep_connected())
    try:
        yield client
    finally:
        await client.close()
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper


def _topic_text(received: paho.MQTTMessage) -> str:
    """A topic that is not UTF-8 still has to reach quarantine, so nothing is raised for it."""
    return bytes(received._topic).decode("utf-8", "backslashreplace")  # noqa: SLF001
