"""The broker: who may connect is as the registry says, what it keeps is bounded and watched."""

from functools import partial
from pathlib import Path

import httpx2

from farmiq.config import EdgeSettings
from farmiq.config.settings import secret
from farmiq.edge import alerts
from farmiq.edge.devices import permissions, store
from farmiq.nats_users import Account
from farmiq.plumbing import broker_store, db, mqtt, nats_jwt
from farmiq.plumbing.broker_callout import Callout, not_anothers, own_client_id
from farmiq.plumbing.broker_store import Store
from farmiq.plumbing.broker_users import Users

STORE_KIND = "broker.store"
# The client id of gateways that ran before ids were made up.
GATEWAY = "edge-ingress-gateway"


def users(pool: db.Pool, file: Path, *, own: list[str], pid_file: Path | None) -> Users:
    async def make(tx: db.Connection) -> tuple[str, int]:
        logins = await store.logins(tx, paused=False)
        return permissions.nats_users(logins, own=own), len(logins)

    return Users(pool, file, pid_file=pid_file, version=_version, make=make)


def callout(pool: db.Pool, settings: EdgeSettings, web: httpx2.AsyncClient) -> Callout | None:
    """Answers the broker who may connect, if it asks."""
    url, key_file = secret(settings.broker_callout_url), settings.broker_callout_key_file
    monitor_url = settings.broker_monitor_url
    if url is None or key_file is None or monitor_url is None:
        return None

    async def load(tx: db.Connection) -> list[Account]:
        return [permissions.account(each) for each in await store.logins(tx, paused=False)]

    async def end_session(ended: str) -> bool | None:
        return await mqtt.end_session(settings.mqtt_url.get_secret_value(), ended, tls=settings.tls)

    strict = settings.broker_client_ids == "own"
    ours = [settings.mqtt_client_id or GATEWAY]
    return Callout(
        pool,
        url=url,
        key=nats_jwt.Key(key_file.read_text(encoding="ascii")),
        monitor=(web, monitor_url),
        version=_version,
        load=load,
        end_session=end_session,
        own_urls=(
            url,
            settings.mqtt_url.get_secret_value(),
            secret(settings.broker_nats_url),
            secret(settings.ingress_url),
        ),
        is_own=own_client_id if strict else partial(not_anothers, ours=ours),
    )


async def _version(tx: db.Connection) -> tuple[int, list[str]]:
    """Pauses begin and end without a change of the registry."""
    return await store.version(tx), await store.paused_logins(tx)


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
