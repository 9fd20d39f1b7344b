"""Which code runs on a database, so that nothing is taken away under it (D-580).

A process writes a row once a minute and deletes it when it ends; one that was killed is forgotten
after GONE_AFTER_S. Beside that every session of a service has the newest migration that its code
knows in its name: `cloud-ingestion 0260`. A version from before that has the plain name.
"""

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import psycopg

from farmiq.plumbing import db, ids, log

BEAT_S = 60.0
GONE_AFTER_S = 3 * BEAT_S
LEAVES_WITHIN_S = 2.0

_SESSION = re.compile(r"^(?P<name>(?:edge|cloud)-[a-z-]+)(?: (?P<revision>\d{4}))?$")


@dataclass(frozen=True, slots=True)
class Code:
    """Code that runs; `revision` is the number of the newest migration it knows, if it says one.

    `version`, `where` (host and pid) and `seen_at` are known of processes that wrote a row.
    """

    services: tuple[str, ...]
    revision: str | None
    version: str | None = None
    where: str | None = None
    seen_at: datetime | None = None

    def knows(self, migration: str) -> bool:
        return self.revision is not None and self.revision >= migration[:4]

    def __str__(self) -> str:
        what = self.services[0] if len(self.services) == 1 else f"{len(self.services)} services"
        version = f"{self.version} ({self.revision})" if self.version else self.revision
        place = f" on {self.where}" if self.where else ""
        return f"{what}{place} of {version or 'a version that does not say which'}"


def running(connection: psycopg.Connection) -> list[Code]:
    """What runs on this database now. A session counts only if no row speaks for its revision."""
    codes: list[Code] = []
    if connection.execute("select to_regclass('processes') is not null").fetchone() == (True,):
        rows = connection.execute(
            "select services, revision, version, host || ' ' || pid, seen_at from processes "
            "where seen_at > now() - %s * interval '1 second' order by services, process_id",
            (GONE_AFTER_S,),
        ).fetchall()
        codes = [Code(tuple(row[0]), *row[1:]) for row in rows]
    known = {(service, code.revision) for code in codes for service in code.services}
    names = connection.execute(
        "select distinct application_name from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid() order by 1"
    ).fetchall()
    for (name,) in names:
        session = _SESSION.match(name or "")
        if session and not any(
            session["name"].startswith(service) and revision == session["revision"]
            for service, revision in known
        ):
            codes.append(Code((session["name"],), session["revision"]))
    return codes


async def stay(url: str, *, services: Sequence[str], version: str, revision: str) -> None:
    """Say for ever that these services run here; whoever is killed is forgotten."""
    process_id, mine = ids.new(), log.get("presence")
    try:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(url, connect_timeout=5) as tx:
                    await tx.execute(
                        """
                        insert into processes (process_id, services, host, pid, version, revision)
                        values (%s, %s, %s, %s, %s, %s)
                        on conflict (process_id) do update set seen_at = now()
                        """,
                        (
                            process_id,
                            list(services),
                            socket.gethostname()[:64],
                            os.getpid(),
                            version,
                            revision,
                        ),
                    )
                    await tx.execute(
                        "delete from processes where seen_at < now() - %s * interval '1 second'",
                        (GONE_AFTER_S,),
                    )
            # Whatever is wrong with the database, the services themselves say and deal with.
            except (OSError, psycopg.Error) as error:
                mine.warning("presence.database_away", error=db.first_line(error))
            await asyncio.sleep(BEAT_S)
    finally:
        with contextlib.suppress(OSError, psycopg.Error):
            async with (
                asyncio.timeout(LEAVES_WITHIN_S),
                await psycopg.AsyncConnection.connect(url, connect_timeout=2) as tx,
            ):
                await tx.execute("delete from processes where process_id = %s", (process_id,))
