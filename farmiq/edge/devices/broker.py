"""The broker's users, kept equal to the registry of devices."""

from pathlib import Path

from farmiq.edge.devices import permissions, store
from farmiq.plumbing import db
from farmiq.plumbing.broker_users import Users


def users(pool: db.Pool, file: Path, *, own: list[str], pid_file: Path | None) -> Users:
    async def version(tx: db.Connection) -> tuple[int, list[str]]:
        """Pauses begin and end without a change of the registry."""
        return await store.version(tx), await store.paused_logins(tx)

    async def make(tx: db.Connection) -> tuple[str, int]:
        logins = await store.logins(tx, paused=False)
        return permissions.nats_users(logins, own=own), len(logins)

    return Users(pool, file, pid_file=pid_file, version=version, make=make)
