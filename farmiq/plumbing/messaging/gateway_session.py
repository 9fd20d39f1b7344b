"""A gateway's session at an MQTT broker: its client id, kept with its lease, and its loss.

Whoever connects under a client id takes its session, with what waits in it. So the id is made when
the gateway first runs and never published; both replicas find it in the site's database.
"""

import secrets
from collections.abc import Awaitable, Callable

from farmiq.plumbing import db
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.messaging import mqtt


async def client_id(pool: db.Pool, *, name: str, given: str | None) -> str:
    """The id to connect under: as `given`, or made once. `name` is that of a lease we hold."""
    backoff = Backoff(cap_s=2.0)
    while given is None:
        try:
            async with db.transaction(pool) as tx:
                given = await _stored_client_id(tx, name)
        except db.UNAVAILABLE:
            await backoff.wait()
    return given


async def _stored_client_id(tx: db.Connection, name: str) -> str:
    client_id = await db.fetch_value(
        tx,
        "update leases set client_id = coalesce(client_id, %s) where name = %s returning client_id",
        f"{name}-{secrets.token_hex(8)}",
        name,
    )
    return str(client_id)


async def mark_started(tx: db.Connection, name: str) -> bool:
    """Note that the gateway has a session; whether it had one before."""
    had_session = await db.fetch_value(
        tx,
        """
        update leases l set session_began_at = fn_now()
        from (select session_began_at from leases where name = %s) as before
        where l.name = %s returning before.session_began_at is not null
        """,
        name,
        name,
    )
    return bool(had_session)


class SessionWatch:
    """Tells when the broker had no session for us though there must be one.

    `tell` is called in the transaction that notes it.
    """

    def __init__(
        self,
        pool: db.Pool,
        broker: mqtt.Client,
        *,
        name: str,
        on_lost: Callable[[db.Connection], Awaitable[None]],
    ) -> None:
        self._pool, self._broker, self._name, self._on_lost = pool, broker, name, on_lost
        self._seen: int | None = None

    async def look(self) -> dict[str, object]:
        if self._broker.problem() is not None or self._broker.new_sessions == self._seen:
            return {}
        new = self._broker.new_sessions
        async with db.transaction(self._pool) as tx:
            had_one = await mark_started(tx, self._name)
            # The very first session of all is new and lost nothing.
            lost = new - (self._seen or 0) - (0 if had_one else 1)
            if lost > 0:
                await self._on_lost(tx)
        self._seen = new
        return {"lost": lost} if lost > 0 else {}
