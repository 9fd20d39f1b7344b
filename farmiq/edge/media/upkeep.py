"""Chores on images: over their time, gone from the store, how many wait.

What the cloud has not got is never deleted, nor what belongs to a session that is still open,
unless the settings say so. The object goes first and the row after it: who dies in between finds
the object gone already, which is fine. The bucket's own rule is only the net under this (C-23); it
is taken away for as long as something lies there that it must not take.
"""

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import prometheus_client

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.media import ageing, carried, kept, store
from farmiq.edge.media.kept import Stored
from farmiq.plumbing import db, objects
from farmiq.plumbing.gallery import small_key

AT_ONCE = 8
PAGE = 500
PREFIX = "tenants/"
MOST_NAMED = 10_000
BUCKET = "the edge's bucket"

T = TypeVar("T")

UNSYNCED = prometheus_client.Gauge(
    "farmiq_media_unsynced", "Images that the cloud has not got", ["tenant_id"]
)
UNSYNCED_BYTES = prometheus_client.Gauge(
    "farmiq_media_unsynced_bytes", "Bytes of images that the cloud has not got", ["tenant_id"]
)
OLDEST = prometheus_client.Gauge(
    "farmiq_media_unsynced_oldest_seconds", "Age of the oldest of them", ["tenant_id"]
)
STORED_BYTES = prometheus_client.Gauge(
    "farmiq_media_stored_bytes", "Bytes of images in the edge's bucket", ["tenant_id"]
)
MISSING = prometheus_client.Gauge(
    "farmiq_media_missing",
    "Images that were announced, or refused, and are not here",
    ["tenant_id"],
)


@dataclass
class Verdict:
    """What a look at rows and objects found; of each kind at most so many are named."""

    checked: int = 0
    gone: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    @property
    def well(self) -> bool:
        return not (self.gone or self.damaged or self.strangers)


async def measure(pool: db.Pool) -> dict[str, object]:
    """For /metrics."""
    async with pool.connection() as connection:
        found = await carried.progress(connection)
    for each in found:
        UNSYNCED.labels(tenant_id=each.tenant_id).set(each.unsynced)
        UNSYNCED_BYTES.labels(tenant_id=each.tenant_id).set(each.unsynced_bytes)
        OLDEST.labels(tenant_id=each.tenant_id).set(each.oldest_unsynced_s or 0)
        MISSING.labels(tenant_id=each.tenant_id).set(each.missing)
        STORED_BYTES.labels(tenant_id=each.tenant_id).set(each.stored_bytes)
    return {}


async def set_right(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """A clock that was ahead and is right again must not leave an image waiting for days."""
    async with db.transaction(pool) as tx:
        return {"count": await store.set_right(tx, hours=settings.media_expire_hours + 2)}


async def forget(
    pool: db.Pool, bucket: objects.Bucket, settings: EdgeSettings
) -> dict[str, object]:
    """Objects and rows whose time is over."""
    gone = 0
    after = UUID(int=0)
    while True:
        async with db.transaction(pool) as tx:
            now, page = await kept.old(tx, days=settings.media_days, after=after, most=PAGE)
        if not page:
            break
        after = page[-1].id
        over = [
            each
            for each in page
            if ageing.is_over(
                each.kept,
                now=now,
                days=settings.media_days,
                open_sessions=settings.media_open_sessions,
            )
        ]
        await _each(over, lambda each: _delete(bucket, each.object_key, each.aside_key))
        crash.here("media.after_delete")
        async with db.transaction(pool) as tx:
            gone += await kept.forget(tx, [each.id for each in over])
    await hang_net(pool, bucket, settings)
    return {"deleted": gone}


async def shed(pool: db.Pool, bucket: objects.Bucket, settings: EdgeSettings) -> dict[str, object]:
    """Above the most bytes rejected uploads go, then the oldest images that may.

    What may not go stays, and is told.
    """
    gone, most = 0, settings.media_store_max_bytes
    spare = partial(kept.spare, open_sessions=settings.media_open_sessions)
    for which, forget_them in ((kept.aside, kept.forget_aside), (spare, kept.forget)):
        while True:
            async with db.transaction(pool) as tx:
                over = await kept.stored_bytes(tx) - most
                going = _enough(await which(tx, most=PAGE), over)
            if not going:
                break
            await _each(going, lambda each: _delete(bucket, each.object_key))
            async with db.transaction(pool) as tx:
                gone += await forget_them(tx, [each.id for each in going])
    async with db.transaction(pool) as tx:
        if over > 0:
            await alerts.raise_(tx, _full(over))
        else:
            await alerts.close(tx, kind="media.store_full", subject=BUCKET)
    return {"deleted": gone}


def _enough(spare: Sequence[Stored], over: int) -> list[Stored]:
    """The first so many that bring it below."""
    found: list[Stored] = []
    for each in spare:
        if over <= 0:
            break
        found.append(each)
        over -= each.size_bytes
    return found


async def hang_net(pool: db.Pool, bucket: objects.Bucket, settings: EdgeSettings) -> int | None:
    """The bucket's own rule, in days; None while it would take what must stay."""
    days = math.ceil(settings.media_days) + ageing.NET_DAYS
    async with db.transaction(pool) as tx:
        held = await kept.is_held(tx, days=settings.media_days)
    wanted = None if held else days
    if (await bucket.expiry()).get(PREFIX) != wanted:
        await bucket.expire(PREFIX, days=wanted)
    return wanted


async def verify(
    pool: db.Pool, bucket: objects.Bucket, *, deep: bool = False, prefix: str = PREFIX
) -> Verdict:
    """Rows against objects and objects against rows; with `deep` every byte is read.

    It only looks; `watch` does something about it.
    """
    found = Verdict()
    after = UUID(int=0)
    while True:
        async with pool.connection() as connection:
            page = await kept.stored(connection, after=after, most=PAGE)
        if not page:
            break
        after = page[-1].id
        problems = await _each(page, lambda each: _problem(bucket, each, deep=deep))
        found.checked += len(page)
        for image, problem in zip(page, problems, strict=True):
            if problem:
                _name(found.gone if problem == "gone" else found.damaged, str(image.id))
    async for key in _strangers(pool, bucket, prefix):
        _name(found.strangers, key)
    return found


async def watch(pool: db.Pool, bucket: objects.Bucket) -> dict[str, object]:
    """Verify, and tell: an image whose object is gone counts as missing until it is back."""
    found = await verify(pool, bucket)
    async with db.transaction(pool) as tx:
        if found.gone:
            await kept.lose(tx, [UUID(each) for each in found.gone])
        for kind, which, told in (
            ("media.object_gone", found.gone, "objects of stored images are gone from the bucket"),
            ("media.object_damaged", found.damaged, "objects have another size than their images"),
            ("media.object_unknown", found.strangers, "objects belong to no image"),
        ):
            if which:
                most = " or more" if len(which) == MOST_NAMED else ""
                lists = f"`farmiq media verify` lists them: {which[0]} …"
                message = f"{len(which)}{most} {told}; {lists}"
                await alerts.raise_(tx, Alert(kind, BUCKET, "warning", message))
            else:
                await alerts.close(tx, kind=kind, subject=BUCKET)
    return {
        "gone": len(found.gone),
        "damaged": len(found.damaged),
        "unknown": len(found.strangers),
    }


async def _problem(bucket: objects.Bucket, image: Stored, *, deep: bool) -> str | None:
    if not deep:
        head = await bucket.head(image.object_key)
        if head is None:
            return "gone"
        return None if head.size_bytes == image.size_bytes else "damaged"
    data = await bucket.find(image.object_key)
    if data is None:
        return "gone"
    return None if hashlib.sha256(data).hexdigest() == image.sha256 else "damaged"


async def _strangers(pool: db.Pool, bucket: objects.Bucket, prefix: str) -> AsyncIterator[str]:
    after = ""
    while page := await bucket.page(prefix, after=after):
        after = page[-1][0]
        async with pool.connection() as connection:
            known = await kept.known_keys(connection, [key for key, _ in page])
        for key, _ in page:
            if key not in known:
                yield key


async def _delete(bucket: objects.Bucket, object_key: str, aside_key: str | None = None) -> None:
    """All that there is of it; what is not there any more is no error."""
    for key in (object_key, small_key(object_key), aside_key):
        if key:
            await bucket.delete(key)


async def _each(items: Sequence[T], work: Callable[[T], Awaitable[Any]]) -> list[Any]:
    """A few at once; raises what the first that fails raises."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(item: T) -> Any:
        async with slots:
            return await work(item)

    return list(await asyncio.gather(*(one(item) for item in items)))


def _name(which: list[str], what: str) -> None:
    if len(which) < MOST_NAMED:
        which.append(what)


def _full(over: int) -> Alert:
    return Alert(
        "media.store_full",
        BUCKET,
        "critical",
        f"images take {over} bytes more than MEDIA_STORE_MAX_BYTES, and none of them may go: the "
        "cloud has not got them, or their sessions are open. See `farmiq media status`",
    )
