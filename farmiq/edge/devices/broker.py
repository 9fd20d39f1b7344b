"""The broker: its users are kept equal to the registry, what it keeps is bounded and watched."""

from pathlib import Path

from farmiq.edge import alerts
from farmiq.edge.devices import permissions, store
from farmiq.messages import topics
from farmiq.nats_users import subject
from farmiq.plumbing import broker_store, db
from farmiq.plumbing.broker_store import Bounds, Store
from farmiq.plumbing.broker_users import Users

STORE_KIND = "broker.store"

# A device's status is retained (C-45), nothing else is.
BOUNDS = Bounds(
    retained=[subject(each) for each in topics.UP if each in topics.RETAINED],
    not_retained=[subject(each) for each in topics.UP if each not in topics.RETAINED],
)


def users(pool: db.Pool, file: Path, *, own: list[str], pid_file: Path | None) -> Users:
    async def version(tx: db.Connection) -> tuple[int, list[str]]:
        """Pauses begin and end without a change of the registry."""
        return await store.version(tx), await store.paused_logins(tx)

    async def make(tx: db.Connection) -> tuple[str, int]:
        logins = await store.logins(tx, paused=False)
        return permissions.nats_users(logins, own=own), len(logins)

    return Users(pool, file, pid_file=pid_file, version=version, make=make)


async def tell_of_store(pool: db.Pool, kept: Store) -> dict[str, object]:
    """A broker that fills up is told of early, and again when it is over."""
    use = kept.use
    if use is None or broker_store.CALM_SHARE <= use.share < broker_store.WARN_SHARE:
        return {}
    async with db.transaction(pool) as tx:
        if use.share < broker_store.CALM_SHARE:
            await alerts.close(tx, kind=STORE_KIND, subject="broker")
        else:
            told = (
                f"the broker holds {use.words()}. When its queue is full it takes nothing more. "
                "To do: see that edge-ingress-gateway runs and commits; what is taken is freed"
            )
            await alerts.raise_(tx, alerts.Alert(STORE_KIND, "broker", "critical", told))
    return {}
