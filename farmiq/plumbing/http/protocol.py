"""uvicorn with our limits: connections that are slow, silent or too many do not hold the server."""

import asyncio
import contextlib
import json
import socket
import sys
from http import HTTPStatus
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from farmiq.plumbing import connections, ids
from farmiq.plumbing.connections import Connection, Connections
from farmiq.plumbing.http.errors import TOO_LONG, TOO_SLOW, HttpError, error_body
from farmiq.plumbing.http.requests import PLACE
from farmiq.plumbing.http.server import HttpServer
from farmiq.plumbing.tls import Tls

IDLE_TIMEOUT_S = 30
# After an answer to what is no HTTP: so much more is read, for so long.
_MAX_DROPPED = 4 * 1024 * 1024
_LINGERS_S = 1.0
# Larger bodies that were refused are not read to their end.
_MAX_UNREAD = 64 * 1024 * 1024


async def serve(http_server: HttpServer, *, host: str, port: int, tls: Tls | None = None) -> None:
    """Serve until cancelled; open requests get a moment to finish."""
    config = uvicorn.Config(
        http_server.app,
        http=_Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        forwarded_allow_ips=[str(network) for network in http_server.limits.proxies],
        timeout_graceful_shutdown=2,
        timeout_keep_alive=IDLE_TIMEOUT_S,
        h11_max_incomplete_event_size=64 * 1024,
        ssl_certfile=str(tls.cert_file) if tls and tls.serves() else None,
        ssl_keyfile=str(tls.key_file) if tls and tls.serves() else None,
    )
    config.load()
    if config.is_ssl and tls is not None:
        # Unlike uvicorn's, it follows its files.
        config.ssl = tls.server()
    server = _Server(config, http_server)
    with connections.listening(host, port) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await asyncio.shield(serving)
        finally:
            http_server.stopping.set()
            server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await serving


class _Server(uvicorn.Server):
    """Accepts connections itself, with a limit; signals belong to plumbing.run."""

    _accepting: "asyncio.Task[None]"

    def __init__(self, config: uvicorn.Config, http_server: HttpServer) -> None:
        super().__init__(config)
        self._http_server = http_server
        self._connections = Connections(http_server.limits)

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        assert sockets  # noqa: S101 - serve() gives one
        self.servers = []
        self._accepting = asyncio.create_task(
            connections.accept(sockets[0], self._connections, self._begin)
        )
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._accepting.cancel()
        await asyncio.wait([self._accepting])
        await super().shutdown(sockets)

    async def _begin(self, accepted: socket.socket, place: Connection) -> None:
        def protocol() -> _Protocol:
            return _Protocol(self, self._http_server, self._connections, place)

        await asyncio.get_running_loop().connect_accepted_socket(
            protocol,
            accepted,
            ssl=self.config.ssl,
            ssl_handshake_timeout=self._http_server.head_within_s if self.config.ssl else None,
        )


class _Protocol(H11Protocol):
    """What is no HTTP, or too slow to say what it wants, never comes to a route.

    It gets the standard error body all the same; who says nothing at all is just hung up on.
    """

    _hurry: asyncio.TimerHandle | None = None
    # Runs while a request is answered whose body still comes.
    _rest: asyncio.TimerHandle | None = None
    _unread = 0
    # How much is still read and dropped after such an answer, None before it.
    _left_to_drop: int | None = None

    def __init__(
        self, server: _Server, http_server: HttpServer, connections: Connections, place: Connection
    ) -> None:
        super().__init__(server.config, server.server_state, server.lifespan.state)
        self._head_within_s, self._rest_within_s = (
            http_server.head_within_s,
            http_server.request_within_s,
        )
        self._connections, self._place = connections, place

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._place.close = transport.abort
        self._hurry = self.loop.call_later(self._head_within_s, self._too_slow)

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None:  # the route has not begun yet, and finds it there
            cast(dict[str, Any], self.scope)[PLACE] = self._place

    def data_received(self, data: bytes) -> None:
        if self._left_to_drop is None:
            super().data_received(data)
            self._watch()
            self._unread = self._unread + len(data) if self._rest is not None else 0
            if self._unread > _MAX_UNREAD:
                self.transport.close()
            return
        self._left_to_drop -= len(data)
        if self._left_to_drop <= 0:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.release(self._place)
        self._calm()
        self._wait_for_rest(needed=False)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._note_place()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._note_place()

    def _unsupported_upgrade_warning(self) -> None:
        """Do not log it: anybody can request an upgrade."""

    def _note_place(self) -> None:
        """Whether we wait for the client: for its request, or for it to take the answer."""
        theirs, answered = self.conn.their_state, self.conn.our_state is h11.DONE
        self._place.in_request = theirs is not h11.IDLE and not answered
        waits = theirs in {h11.IDLE, h11.SEND_BODY} or answered or self.flow.write_paused
        if not waits:
            self._place.waiting_since = None
        elif self._place.waiting_since is None:
            self._place.waiting_since = self.loop.time()

    def _watch(self) -> None:
        """A head that has begun has to end; what comes after it is the route's to wait for.

        What comes after the answer nobody waits for: it has to end as well.
        """
        self._note_place()
        answered = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        self._wait_for_rest(needed=answered and not self.transport.is_closing())
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._calm()
        elif self._hurry is None and self.conn.trailing_data[0]:
            self._hurry = self.loop.call_later(self._head_within_s, self._too_slow)

    def _calm(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None

    def _wait_for_rest(self, *, needed: bool) -> None:
        if needed and self._rest is None:
            self._rest = self.loop.call_later(self._rest_within_s, self.transport.close)
        elif not needed and self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def _too_slow(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(HttpError(TOO_SLOW, "the head of the request took too long"))
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Called while h11's error is handled; its hint marks headers that are too long."""
        status = getattr(sys.exception(), "error_status_hint", 400)
        self._refuse(
            HttpError(TOO_LONG, "the headers are too long")
            if status == TOO_LONG
            else HttpError(400, msg)
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # Closed with something unread, the connection is reset, and the answer may be lost with it.
        self._left_to_drop = _MAX_DROPPED
        self.loop.call_later(_LINGERS_S, self.transport.close)

    def _refuse(self, error: HttpError) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        trace = str(ids.new())
        body = json.dumps(error_body(error, trace=trace)).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
            ("x-trace-id", trace),
        ]
        answer = h11.Response(
            status_code=error.status,
            headers=headers,
            reason=HTTPStatus(error.status).phrase.encode(),
        )
        for part in (answer, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(part) or b"")
        if self.cycle is not None:  # a route may have begun: it finds that nobody listens
            self.cycle.disconnected, self.cycle.waiting_for_100_continue = True, False
            self.cycle.message_event.set()
