"""Who may connect to a NATS broker: it asks us for each client, and we answer from memory.

A login is checked with the client id, because MQTT lets whoever connects under a client id take
the place of the one before, with its session. All logins are in memory, so that an answer needs no
database; they are read again when the registry changes and when a login is not known, and whoever
may not be connected any more is cut off. While nobody answers, nobody new gets in; who is connected
stays.
"""

import asyncio
import contextlib
import hashlib
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import bcrypt
import httpx2
import msgspec
import psycopg

from farmiq import nats_users
from farmiq.nats_users import Account
from farmiq.plumbing import db, log
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.broker import load as broker_load
from farmiq.plumbing.broker import log as broker_log
from farmiq.plumbing.broker import nats_jwt
from farmiq.plumbing.broker.log import LOGIN
from farmiq.plumbing.messaging import nats
from farmiq.plumbing.tls import Tls

SUBJECT = "$SYS.REQ.USER.AUTH"
CLIENT_ID, SESSIONS = "broker.client_id", "broker.sessions"
# Of one login: sessions, and how many more of it are being ended before a new one is refused.
MAX_SESSIONS, MAX_ENDINGS = 8, 4
# Looks into the registry for logins that are not known: seconds between two, and for one.
LOOK_EVERY_S, LOOK_WITHIN_S = 0.1, 1.0
# Maximum age of the list of connected clients; a session heard so recently is not ended.
OPEN_FRESH_S, GRACE_S = 0.5, 2.0
# Passwords of one login that wait to be checked.
MAX_CHECKS = 4
# Rejections that are counted separately until the next report.
MAX_REJECTIONS = 50
LOG_EVERY_S = 60.0
CUT_LOOKS = 4
# The account of all MQTT clients, also of a broker that knew no other before.
_ACCOUNT = "$G"
_NO_LOGIN = "there is no such login, it is paused or revoked, or the password is wrong"
_MADE_UP = re.compile("[0-9A-Za-z]{22}")


class _Client(msgspec.Struct, frozen=True):
    host: str = ""
    type: str = ""
    mqtt_id: str = ""


class _Options(msgspec.Struct, frozen=True):
    user: str = ""
    password: str = msgspec.field(default="", name="pass")


class _Server(msgspec.Struct, frozen=True):
    id: str


class _AuthRequest(msgspec.Struct, frozen=True):
    server_id: _Server
    user_nkey: str
    client_info: _Client = _Client()
    connect_opts: _Options = _Options()


class _Request(msgspec.Struct, frozen=True):
    nats: _AuthRequest


_request = msgspec.json.Decoder(_Request)


@dataclass(frozen=True, slots=True)
class Refusal:
    user: str
    host: str
    reason: str
    # LOGIN, CLIENT_ID or SESSIONS: of the latter two the login itself was right.
    kind: str


def own_client_id(client_id: str, user: str) -> bool:
    """Whether an id is this login's own: its name, or its name and a `/` and anything."""
    return client_id == user or client_id.startswith(f"{user}/") or made_by_broker(client_id)


def made_by_broker(client_id: str) -> bool:
    """Whether the client came without an id: the broker made one up, as long as the connection."""
    return _MADE_UP.fullmatch(client_id) is not None


def not_anothers(client_id: str, user: str, *, ours: Sequence[str]) -> bool:
    """Whether an id may pass of clients whose id cannot be changed: it names nobody else.

    Such an id is not protected: whoever else knows it may use it too.
    """
    return own_client_id(client_id, user) or ("/" not in client_id and client_id not in ours)


class Sessions:
    """Pure: the client ids of each login, who was heard longest ago first.

    A session outlives its connection, so a login has few: for one more, the one that is not
    connected and was heard longest ago ends. Ids that the broker makes up are counted apart: who
    has none cannot end the session of who has one.
    """

    def __init__(self) -> None:
        self._heard: dict[tuple[str, bool], dict[str, float]] = {}
        # By client id the login; each stays until its session has ended.
        self.endings: dict[str, str] = {}

    def is_full(self, user: str, client_id: str) -> bool:
        """Whether another has to go for this one."""
        known = self._heard.get((user, made_by_broker(client_id)), {})
        return client_id not in known and len(known) >= MAX_SESSIONS

    def admit(
        self, user: str, client_id: str, *, now: float, connected: Collection[str] = ()
    ) -> str | None:
        """Why this client may not in now, or None; `connected` matters if the login is full."""
        if client_id in self.endings:
            return "the session of this client id is being ended: try again"
        known = self._heard.setdefault((user, made_by_broker(client_id)), {})
        if self.is_full(user, client_id):
            if list(self.endings.values()).count(user) >= MAX_ENDINGS:
                return "it makes sessions faster than they can be ended"
            # Who came just now may not be listed as connected yet.
            over = (
                session_id
                for session_id, heard in known.items()
                if session_id not in connected and now - heard >= GRACE_S
            )
            if (ended := next(over, None)) is None:
                return f"this login has {len(known)} sessions in use, and no more are kept"
            del known[ended]
            self.endings[ended] = user
        known.pop(client_id, None)
        known[client_id] = now
        return None


class Callout:
    """Answers the broker, and keeps the logins equal to the registry.

    `version` is another value whenever the registry has changed, `load` reads all logins that may
    connect. `end_session` ends the session of a client id if it says True. The logins in `own_urls`
    the broker knows by itself. `problem` says what is wrong, or None.
    """

    def __init__(
        self,
        pool: db.Pool,
        *,
        url: str,
        key: nats_jwt.Key,
        monitor: tuple[httpx2.AsyncClient, str],
        version: Callable[[db.Connection], Awaitable[Any]],
        load: Callable[[db.Connection], Awaitable[Sequence[Account]]],
        end_session: Callable[[str], Awaitable[bool | None]],
        own_urls: Iterable[str | None] = (),
        is_own: Callable[[str, str], bool] = own_client_id,
        tls: Tls | None = None,
    ) -> None:
        self._pool, self._url, self._key, self._tls = pool, url, key, tls
        self._load_of_broker = broker_load.Load(*monitor)
        self._read_version, self._load = version, load
        self._end_session, self._is_own = end_session, is_own
        self._own_logins = {
            unquote(urlsplit(own_url).username or "") for own_url in own_urls if own_url
        }
        self._version: Any = None
        self._known = asyncio.Event()
        self._accounts: dict[str, Account] | None = None
        self._looked_at = 0.0
        self._look_lock = asyncio.Lock()
        # Passwords that were right: bcrypt is slow, and a farm comes back all at once.
        self._right: dict[str, tuple[bytes, str]] = {}
        # Not in the loop, which answers the others meanwhile.
        self._checks = ThreadPoolExecutor(2, thread_name_prefix="broker-password")
        self._checking: Counter[str] = Counter()
        self._check_locks: dict[str, asyncio.Lock] = {}
        self._sessions = Sessions()
        self._to_end = asyncio.Event()
        # Who is connected, and when we asked.
        self._open: tuple[float, frozenset[str]] | None = None
        self._connections_lock = asyncio.Lock()
        self._answering: set[asyncio.Task[None]] = set()
        # By login: in how many more looks its connections are cut.
        self._to_cut: dict[str, int] = {}
        # By kind, login and address; with the last reason.
        self._rejections: Counter[tuple[str, str, str]] = Counter()
        self._reasons: dict[tuple[str, str, str], str] = {}
        self._server: nats.Connection | None = None
        self._problem = "not connected yet"

    @property
    def problem(self) -> str | None:
        if self._accounts is None:
            return "nobody new is let in by the broker: the logins are not read yet"
        return None if self._server else f"nobody new is let in by the broker: {self._problem}"

    def rejections(self) -> Counter[Refusal]:
        """What was refused since the last call."""
        counts, self._rejections = self._rejections, Counter()
        reasons, self._reasons = self._reasons, {}
        return Counter(
            {
                Refusal(user, host, reasons[kind, user, host], kind): count
                for (kind, user, host), count in counts.items()
            }
        )

    def believes(self, line: broker_log.Refusal) -> bool:
        """Whether what the broker's log says counts.

        It calls a login wrong also while nobody answers; whom we refused we know ourselves.
        """
        return line.kind != LOGIN or line.login in self._own_logins

    # --- keeping the logins

    async def refresh(self) -> dict[str, object]:
        """One look: read the logins again if the registry has changed; cut off who may not stay."""
        await self._read()
        return await self._cut()

    async def _read(self) -> None:
        async with db.transaction(self._pool) as tx:
            version = await self._read_version(tx)
            if version != self._version:
                self._replace({account.user: account for account in await self._load(tx)})
                self._version = version

    async def _look_again(self) -> None:
        """Read the logins once more for one that is not known: it may have been added just now.

        One look serves all who came before it began, so guessing costs the database little.
        """
        came_at = time.monotonic()
        async with self._look_lock:
            if self._looked_at >= came_at:
                return
            await asyncio.sleep(self._looked_at + LOOK_EVERY_S - came_at)
            self._looked_at = time.monotonic()
            with contextlib.suppress(*db.UNAVAILABLE, psycopg.Error, TimeoutError):
                async with asyncio.timeout(LOOK_WITHIN_S):
                    await self._read()

    def _replace(self, accounts: dict[str, Account]) -> None:
        """A client that was let in just before may be listed as connected a moment later."""
        before, self._accounts = self._accounts or {}, accounts
        self._known.set()
        changed = (user for user, known in before.items() if accounts.get(user) != known)
        self._to_cut |= dict.fromkeys(changed, CUT_LOOKS)

    async def _cut(self) -> dict[str, object]:
        if not self._to_cut or self._server is None:
            return {}
        try:
            by_server = await self._load_of_broker.connections()
            cids = [
                (server_id, connection.cid)
                for server_id, connections in by_server.items()
                for connection in connections
                if connection.authorized_user in self._to_cut
            ]
            for server_id, cid in cids:
                kick = msgspec.json.encode({"cid": cid})
                await self._server.request(f"$SYS.REQ.SERVER.{server_id}.KICK", kick)
        except (httpx2.HTTPError, httpx2.InvalidURL, msgspec.DecodeError, nats.NatsError) as error:
            log.get("broker").error("broker.not_cut", error=str(error), count=len(self._to_cut))
            return {}
        self._to_cut = {user: left - 1 for user, left in self._to_cut.items() if left > 1}
        return {"cut": len(cids)} if cids else {}

    # --- answering the broker

    async def answer(self) -> None:
        """Answer the broker for ever, once the logins are known; reconnect if it is gone."""
        await self._known.wait()
        backoff = Backoff(cap_s=2.0)
        while True:
            try:
                async with nats.connected(self._url, tls=self._tls) as server:
                    server.subscribe(SUBJECT, self._take)
                    self._server = server
                    await server.closed.wait()
                    self._problem = server.reason
            except nats.NatsError as error:
                self._problem = str(error)
            finally:
                self._server = None
            await backoff.wait()

    async def end_sessions(self) -> None:
        """Without end: sessions of logins that have too many; what does not end is tried again."""
        backoff, ended, told_at = Backoff(cap_s=5.0), Counter[str](), 0.0
        while True:
            await self._to_end.wait()
            self._to_end.clear()
            while self._sessions.endings:
                for client_id, user in list(self._sessions.endings.items()):
                    if await self._end_session(client_id):
                        del self._sessions.endings[client_id]
                        ended[user] += 1
                    else:
                        await backoff.wait()
            if time.monotonic() - told_at >= LOG_EVERY_S:
                for user, count in ended.most_common(MAX_REJECTIONS):
                    log.get("broker").warning(
                        "broker.sessions_ended", reason=f"too many of {user}", count=count
                    )
                ended, told_at = Counter(), time.monotonic()

    def _take(self, message: nats.Message) -> None:
        if self._server is None or not message.reply:
            return
        try:
            request = _request.decode(nats_jwt.claims(message.payload))
        except (ValueError, msgspec.DecodeError) as error:
            log.get("broker").error("broker.callout_unread", error=str(error))
            return
        task = asyncio.create_task(self._reply(self._server, message.reply, request.nats))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _reply(self, server: nats.Connection, reply: str, request: _AuthRequest) -> None:
        answer = await self._answer(request)
        if not server.closed.is_set():
            server.publish(reply, answer.encode())

    async def _answer(self, request: _AuthRequest) -> str:
        user = request.connect_opts.user
        account = (self._accounts or {}).get(user)
        refused = await self._rejection(request, account)
        if refused is not None and refused[0] == LOGIN:
            await self._look_again()
            known = (self._accounts or {}).get(user)
            if known != account:
                account, refused = known, await self._rejection(request, known)
        if (self._accounts or {}).get(user) != account:
            # Changed while we looked; its connections are being closed already.
            refused = LOGIN, _NO_LOGIN
        now = int(time.time())
        answer: dict[str, object] = {"type": "authorization_response", "version": 2}
        if account is None or refused is not None:
            kind, answer["error"] = refused or (LOGIN, _NO_LOGIN)
            reason = str(answer["error"])
            self.note_rejection(kind, user[:200], request.client_info.host, reason)
        else:
            answer["jwt"] = self._key.sign(
                {"sub": request.user_nkey, "aud": _ACCOUNT, "name": user, "iat": now,
                 "nats": _permissions(account)}
            )  # fmt: skip
        return self._key.sign(
            {"sub": request.user_nkey, "aud": request.server_id.id, "iat": now, "nats": answer}
        )

    async def _rejection(
        self, request: _AuthRequest, account: Account | None
    ) -> tuple[str, str] | None:
        """The kind of a refusal and why this client may not in, or None."""
        options, client_id = request.connect_opts, request.client_info.mqtt_id
        if request.client_info.type != "mqtt":
            return LOGIN, "it does not speak MQTT"
        if account is None or not await self.password_fits(options.password, account):
            return LOGIN, _NO_LOGIN
        if not self._is_own(client_id, options.user):
            text = f"the client id {client_id[:80]!r} is not its own: one that is begins with "
            return CLIENT_ID, f"{text}{options.user}/"
        if not client_id:
            return None
        connected: Collection[str] = ()
        if self._sessions.is_full(options.user, client_id):
            open_ids = await self._connected()
            if open_ids is None:
                return SESSIONS, "it has many sessions, and the broker does not tell which are used"
            connected = open_ids
        full = self._sessions.admit(
            options.user, client_id, now=time.monotonic(), connected=connected
        )
        if self._sessions.endings:
            self._to_end.set()
        return None if full is None else (SESSIONS, full)

    async def _connected(self) -> frozenset[str] | None:
        """Client ids with a connection; None if the broker does not tell."""
        async with self._connections_lock:
            if self._open is None or time.monotonic() - self._open[0] >= OPEN_FRESH_S:
                asked_at = time.monotonic()
                try:
                    by_server = await self._load_of_broker.connections()
                except (httpx2.HTTPError, httpx2.InvalidURL, msgspec.DecodeError) as error:
                    log.get("broker").error("broker.not_told", error=repr(error))
                    return None
                self._open = (
                    asked_at,
                    frozenset(
                        connection.mqtt_client
                        for connections in by_server.values()
                        for connection in connections
                    ),
                )
            return self._open[1]

    def note_rejection(self, kind: str, user: str, host: str, reason: str) -> None:
        """Count many invented logins as one, so that they do not hide the others."""
        matter = (kind, user, host)
        if (
            kind == LOGIN
            and matter not in self._rejections
            and len(self._rejections) >= MAX_REJECTIONS
        ):
            matter = (kind, "others", "others")
        self._rejections[matter] += 1
        self._reasons[matter] = reason

    async def password_fits(self, password: str, account: Account) -> bool:
        """Passwords of one login are checked one by one; while many wait, no more are."""
        given = password.encode(errors="replace")
        right = (hashlib.sha256(given).digest(), account.secret_bcrypt)
        if self._right.get(account.user) == right:
            return True
        if self._checking[account.user] >= MAX_CHECKS:
            return False
        self._checking[account.user] += 1
        try:
            async with self._check_locks.setdefault(account.user, asyncio.Lock()):
                if self._right.get(account.user) == right:
                    return True
                fits = await asyncio.get_running_loop().run_in_executor(
                    self._checks, _is_right, given, account.secret_bcrypt
                )
        finally:
            self._checking[account.user] -= 1
            if not self._checking[account.user]:
                del self._checking[account.user], self._check_locks[account.user]
        if fits:
            self._right[account.user] = right
        return fits


def _is_right(given: bytes, secret_bcrypt: str) -> bool:
    try:
        return bcrypt.checkpw(given, secret_bcrypt.encode())
    except ValueError:
        # Longer than any secret of ours, or not a hash.
        return False


def _permissions(account: Account) -> dict[str, object]:
    return {
        "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
        "allowed_connection_types": ["MQTT"],
        "pub": {"allow": nats_users.publishable(account)},
        "sub": {"allow": nats_users.subscribable(account)},
    }  # fmt: skip
