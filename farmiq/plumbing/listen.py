"""Notifications of PostgreSQL (LISTEN), for ever: a connection that is lost is opened again."""

import asyncio
from collections.abc import Callable, Collection

import psycopg
from psycopg import sql

from farmiq.plumbing import backoff, db, log

# A dead connection is noticed after at most so long.
BEAT_S = 10.0


async def run(
    url: str,
    channels: Collection[str],
    *,
    name: str,
    on_notice: Callable[[str, str], None],
    on_listening: Callable[[bool], None],
) -> None:
    """Call `on_notice(channel, payload)` for each; `on_listening` says whether they come at all."""
    waiting = backoff.Backoff()
    while True:
        try:
            await _once(url, channels, name, on_notice, on_listening)
        except (*db.UNAVAILABLE, TimeoutError) as error:
            log.get(name).warning("live.deaf", error=db.first_line(error))
        finally:
            on_listening(False)
        await waiting.wait()


async def _once(
    url: str,
    channels: Collection[str],
    name: str,
    on_notice: Callable[[str, str], None],
    on_listening: Callable[[bool], None],
) -> None:
    connection = await psycopg.AsyncConnection.connect(
        url,
        autocommit=True,
        application_name=db.session_name(f"{name}-live"),
        connect_timeout=5,
    )
    async with connection:
        for channel in channels:
            await connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
        on_listening(True)
        while True:
            async for notice in connection.notifies(timeout=BEAT_S):
                on_notice(notice.channel, notice.payload)
            async with asyncio.timeout(BEAT_S):
                await connection.execute("select 1")
