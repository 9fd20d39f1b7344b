"""Periodic jobs on images: retention, a full bucket, verification, metrics.

Never deleted: what the cloud does not have, and images of open sessions unless the settings allow
it. The object is deleted before its row, so a crash in between is harmless. The bucket's own
lifecycle rule is only a second net (C-23), removed while it would delete what must stay.
"""

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from prometheus_client import Gauge

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.media import rules, store
from farmiq.edge.media.store import Object
from farmiq.messages.wording import phrase, worded
from farmiq.plumbing import db
from farmiq.plumbing.images.gallery import small_key
from farmiq.plumbing.storage import objects

MAX_CONCURRENT = 8
PAGE = 500
PREFIX = "tenants/"
MAX_NAMED = 10_000
BUCKET = "the edge's bucket"

T = TypeVar("T")

_LABELS = ["tenant_id"]
UNSYNCED = Gauge("farmiq_media_unsynced", "Images that the cloud has not got", _LABELS)
UNSYNCED_BYTES = Gauge(
    "farmiq_media_unsynced_bytes", "Bytes of images that the cloud has not got", _LABELS
)
OLDEST = Gauge("farmiq_media_unsynced_oldest_seconds", "Age of the oldest of them", _LABELS)
STORED_BYTES = Gauge("farmiq_media_stored_bytes", "Bytes of images in the edge's bucket", _LABELS)
MISSING = Gauge(
    "farmiq_media_missing", "Images that were announced, or refused, and are not here", _LABELS
)


@dataclass
class Verification:
    """Rows against objects and objects against rows; at most MAX_NAMED of each list."""

    checked: int = 0
    gone: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.gone or self.damaged or self.unknown)


async def measure(pool: db.Pool) -> dict[str, object]:
    """Set the gauges of /metrics."""
    async with pool.connection() as connection:
        tenants = await store.progress(connection)
    for tenant in tenants:
        for gauge, value in (
            (UNSYNCED, tenant.unsynced),
            (UNSYNCED_BYTES, tenant.unsynced_bytes),
            (OLDEST, tenant.oldest_unsynced_s or 0),
            (MISSING, tenant.missing),
            (STORED_BYTES, tenant.stored_bytes),
        ):
            gauge.labels(tenant_id=tenant.tenant_id).set(value)
    return {}


async def reset_future_checks(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """A clock that was ahead and is right again must not leave an image waiting for days."""
    async with db.transaction(pool) as tx:
        hours = settings.media_expire_hours + 2
        return {"count": await store.reset_future_checks(tx, hours=hours)}


async def purge(pool: db.Pool, bucket: objects.Bucket, settings: EdgeSettings) -> dict[str, object]:
    """Delete objects and rows that have expired."""
    deleted = 0
    after = UUID(int=0)
    while True:
        async with db.transaction(pool) as tx:
            now, page = await store.aged(tx, days=settings.media_days, after=after, limit=PAGE)
        if not page:
            break
        after = page[-1].id
        expired = [
            image
            for image in page
            if rules.is_expired(
                image,
                now=now,
                days=settings.media_days,
                open_sessions=settings.media_open_sessions,
            )
        ]
        await _for_each(expired, lambda image: _delete(bucket, image.object_key, image.aside_key))
        crash.here("media.after_delete")
        async with db.transaction(pool) as tx:
            deleted += await store.purge(tx, [image.id for image in expired])
    await set_bucket_rule(pool, bucket, settings)
    return {"deleted": deleted}


async def shed(pool: db.Pool, bucket: objects.Bucket, settings: EdgeSettings) -> dict[str, object]:
    """Above the limit delete rejected uploads, then the oldest images that may go.

    Raises an alert while that is not enough.
    """
    deleted = 0
    oldest = partial(store.oldest_synced, open_sessions=settings.media_open_sessions)
    for select, purge_rows in (
        (store.oldest_rejected, store.purge_rejected),
        (oldest, store.purge),
    ):
        while True:
            async with db.transaction(pool) as tx:
                over = await store.stored_bytes(tx) - settings.media_store_max_bytes
                chosen = _enough(await select(tx, limit=PAGE), over)
            if not chosen:
                break
            await _for_each(chosen, lambda image: _delete(bucket, image.object_key))
            async with db.transaction(pool) as tx:
                deleted += await purge_rows(tx, [image.id for image in chosen])
    async with db.transaction(pool) as tx:
        if over > 0:
            text = worded(
                "images take %(number)s bytes more than MEDIA_STORE_MAX_BYTES, and "
                "none of them may go: the cloud has not got them, or their sessions "
                "are open. See `farmiq media status`",
                number=over,
            )
            full = Alert("media.store_full", BUCKET, "critical", text, whole_edge=True)
            await alerts.raise_(tx, full)
        else:
            await alerts.close(tx, kind="media.store_full", subject=BUCKET)
    return {"deleted": deleted}


def _enough(candidates: Sequence[Object], over: int) -> list[Object]:
    """The first so many whose sizes add up to `over`."""
    chosen: list[Object] = []
    for candidate in candidates:
        if over <= 0:
            break
        chosen.append(candidate)
        over -= candidate.size_bytes
    return chosen


async def set_bucket_rule(
    pool: db.Pool, bucket: objects.Bucket, settings: EdgeSettings
) -> int | None:
    """The days of the bucket's lifecycle rule; None while it would delete what must stay."""
    async with db.transaction(pool) as tx:
        must_stay = await store.has_older(tx, days=settings.media_days)
    days = None if must_stay else math.ceil(settings.media_days) + rules.BUCKET_RULE_DAYS
    if (await bucket.expiry()).get(PREFIX) != days:
        await bucket.expire(PREFIX, days=days)
    return days


async def verify(
    pool: db.Pool, bucket: objects.Bucket, *, deep: bool = False, prefix: str = PREFIX
) -> Verification:
    """Compare rows with objects and objects with rows; `deep` reads every byte. Changes nothing."""
    result = Verification()
    after = UUID(int=0)
    while True:
        async with pool.connection() as connection:
            page = await store.stored(connection, after=after, limit=PAGE)
        if not page:
            break
        after = page[-1].id
        problems = await _for_each(page, lambda image: _problem(bucket, image, deep=deep))
        result.checked += len(page)
        for image, problem in zip(page, problems, strict=True):
            if problem:
                _name(result.gone if problem == "gone" else result.damaged, str(image.id))
    async for key in _unknown_keys(pool, bucket, prefix):
        _name(result.unknown, key)
    return result


async def verify_and_alert(pool: db.Pool, bucket: objects.Bucket) -> dict[str, object]:
    """Verify; an image whose object is gone counts as missing until it is back."""
    report = await verify(pool, bucket)
    async with db.transaction(pool) as tx:
        if report.gone:
            await store.mark_lost(tx, [UUID(image_id) for image_id in report.gone])
        for kind, names, text in (
            (
                "media.object_gone",
                report.gone,
                worded("%(many)s objects of stored images are gone from the bucket"),
            ),
            (
                "media.object_damaged",
                report.damaged,
                worded("%(many)s objects have another size than their images"),
            ),
            ("media.object_unknown", report.unknown, worded("%(many)s objects belong to no image")),
        ):
            if names:
                many = str(len(names))
                if len(names) == MAX_NAMED:
                    many = phrase("many", "%(number)s or more", number=many)
                # Names of objects hold names of tenants, and every tenant sees this.
                message = worded(
                    "%(sentence)s; `farmiq media verify` lists them", sentence=text % {"many": many}
                )
                await alerts.raise_(tx, Alert(kind, BUCKET, "warning", message, whole_edge=True))
            else:
                await alerts.close(tx, kind=kind, subject=BUCKET)
    return {
        "gone": len(report.gone),
        "damaged": len(report.damaged),
        "unknown": len(report.unknown),
    }


async def _problem(bucket: objects.Bucket, image: Object, *, deep: bool) -> str | None:
    if deep:
        data = await bucket.find(image.object_key)
        matches = data is not None and hashlib.sha256(data).hexdigest() == image.sha256
        return "gone" if data is None else None if matches else "damaged"
    head = await bucket.head(image.object_key)
    matches = head is not None and head.size_bytes == image.size_bytes
    return "gone" if head is None else None if matches else "damaged"


async def _unknown_keys(pool: db.Pool, bucket: objects.Bucket, prefix: str) -> AsyncIterator[str]:
    after = ""
    while page := await bucket.page(prefix, after=after):
        after = page[-1][0]
        async with pool.connection() as connection:
            known = await store.known_keys(connection, [key for key, _ in page])
        for key, _ in page:
            if key not in known:
                yield key


async def _delete(bucket: objects.Bucket, object_key: str, aside_key: str | None = None) -> None:
    """Delete the image, its thumbnail and its rejected bytes; deleting nothing is no error."""
    for key in (object_key, small_key(object_key), aside_key):
        if key:
            await bucket.delete(key)


async def _for_each(items: Sequence[T], work: Callable[[T], Awaitable[Any]]) -> list[Any]:
    """Run `work` for all items, a few at once; raises what the first that fails raises."""
    slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def run(item: T) -> Any:
        async with slots:
            return await work(item)

    return list(await asyncio.gather(*(run(item) for item in items)))


def _name(names: list[str], name: str) -> None:
    if len(names) < MAX_NAMED:
        names.append(name)
