"""Is the image here, and is it the right one? Then it is stored, and the cloud is owed the news.

media_objects --due--> [look: HEAD, bytes, sha256] --stored + media.stored, or aside, or missing-->

An image is looked for when it is announced, when its address has expired (uploaded and never
announced), and when its device asks again. Everything may be repeated: what was found is written in
one transaction, under an event id that is made of the image's own.
"""

import asyncio
import hashlib

import msgspec
import prometheus_client

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts, outbox
from farmiq.edge.alerts import Alert
from farmiq.edge.media import ageing, contents, store
from farmiq.edge.media.contents import Found
from farmiq.edge.media.store import Image
from farmiq.messages import ids
from farmiq.messages.bus import BusEvent
from farmiq.messages.media import STORED, MediaStored
from farmiq.plumbing import db, log, objects, pictures

AT_ONCE = 4
MOST_DUE = 32
# A store may need a moment until it shows what it took; only then an image counts as missing.
LOOKS_BEFORE_MISSING = 3

LOOKED = prometheus_client.Counter(
    "farmiq_media_looked_total", "Looks for an image in the store", ["outcome"]
)


class Keeper:
    def __init__(self, settings: EdgeSettings, pool: db.Pool, bucket: objects.Bucket) -> None:
        self._settings, self._pool, self._bucket = settings, pool, bucket
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._log = log.get("edge-media-store")

    async def look_once(self) -> int:
        """Look for everything that is due; returns how many images that were."""
        async with db.transaction(self._pool) as tx:
            images = await store.due(tx, most=MOST_DUE, again_s=self._settings.media_lease_s)
        unsettled = {image.id for image in images}

        async def settle(image: Image) -> None:
            await self._settle(image)
            unsettled.discard(image.id)

        try:
            async with asyncio.TaskGroup() as group:
                for image in images:
                    group.create_task(settle(image))
        except* objects.UNAVAILABLE:
            # Nobody looks at them now: they must not wait until the lease has ended.
            async with db.transaction(self._pool) as tx:
                await store.release(tx, list(unsettled))
            raise
        return len(images)

    async def _settle(self, image: Image) -> None:
        """One image that we cannot cope with must not stop the others; it is told, and waits."""
        try:
            await self.settle(image)
        except (*db.UNAVAILABLE, *objects.UNAVAILABLE):
            raise
        except Exception as error:  # noqa: BLE001 - told, and tried again
            self._log.error("media.failed", media_id=str(image.id), exc_info=error)
            LOOKED.labels(outcome="failed").inc()
            async with db.transaction(self._pool) as tx:
                await store.look_again(
                    tx, image, again_s=60 + ageing.look_again_s(image.check_count)
                )

    async def settle(self, image: Image) -> None:
        """Look for it; if nothing is there, note that too.

        Raises objects.UNAVAILABLE or db.UNAVAILABLE; then it is looked for again later.
        """
        if not await self.look(image):
            await self._absent(image)

    async def look(self, image: Image) -> bool:
        """Whether anything is there under its key: then it is stored now, or set aside."""
        async with self._at_once:
            found = await self._find(image)
        crash.here("media.after_look")
        if found is None:
            return False
        wrong = contents.problems(found, image.said, most_bytes=self._settings.media_max_bytes)
        if wrong:
            await self._set_aside(image, found, "; ".join(wrong))
        else:
            await self._keep(image, found)
        return True

    async def _find(self, image: Image) -> Found | None:
        """What lies under its key; what is too large to be right is not read."""
        head = await self._bucket.head(image.object_key)
        if head is None:
            return None
        if not 0 < head.size_bytes <= self._settings.media_max_bytes:
            return Found(head.size_bytes, head.etag)
        data = await self._bucket.find(image.object_key)
        return None if data is None else await asyncio.to_thread(_look, data, head.etag)

    async def _keep(self, image: Image, found: Found) -> None:
        event = stored_event(image, found, bucket=self._bucket.name)
        async with db.transaction(self._pool) as tx:
            new = await store.keep_stored(tx, image, found, event_id=event.event_id)
            if new:
                await outbox.append(tx, [event])
                await self._all_is_well(tx, image)
            crash.here("media.before_stored_commit")
        crash.here("media.after_stored_commit")
        LOOKED.labels(outcome="stored" if new else "known").inc()
        if new:
            self._log.info("media.stored", media_id=str(image.id), trace_id=image.trace_id)

    async def _all_is_well(self, tx: db.Connection, image: Image) -> None:
        if not await store.is_anything_missing(tx, image):
            await alerts.close(tx, kind="media.missing", subject=image.owner)
        if not await store.is_another_refused(tx, image):
            await alerts.close(tx, kind="media.refused", subject=image.owner)

    async def _set_aside(self, image: Image, found: Found, reason: str) -> None:
        """Out of the way of the right bytes, but not lost."""
        aside_key = f"aside/{image.object_key}/{found.etag}"
        await self._bucket.copy(image.object_key, aside_key)
        crash.here("media.after_copy_aside")
        async with db.transaction(self._pool) as tx:
            if not await store.keep_refused(
                tx, image, reason=reason, aside_key=aside_key, aside_bytes=found.size_bytes
            ):
                return
            await alerts.raise_(
                tx,
                Alert(
                    "media.refused",
                    image.owner,
                    "warning",
                    f"image {image.id}: {reason}. The bytes lie aside (`farmiq media show "
                    f"{image.id}`); the device may upload the right ones",
                ),
            )
        crash.here("media.after_aside_commit")
        await self._bucket.delete(image.object_key)
        if image.aside_key not in (None, aside_key):
            # Only the last one is kept: who uploads rubbish again and again fills no store.
            await self._bucket.delete(str(image.aside_key))
        LOOKED.labels(outcome="refused").inc()
        self._log.warning("media.refused", media_id=str(image.id), reason=reason)

    async def _absent(self, image: Image) -> None:
        LOOKED.labels(outcome="absent").inc()
        # Only looks that found nothing count: a store that is away makes no image missing.
        looks = image.check_count + 1
        again_s = ageing.look_again_s(looks)
        async with db.transaction(self._pool) as tx:
            if image.announced_at is None:
                if await store.expire(tx, image, hours=self._settings.media_expire_hours):
                    self._log.info("media.never_uploaded", media_id=str(image.id))
            elif looks < LOOKS_BEFORE_MISSING:
                await store.look_again(tx, image, again_s=again_s)
            else:
                await store.keep_missing(tx, image, again_s=again_s)
                await alerts.raise_(tx, _missing(image))


def stored_event(image: Image, found: Found, *, bucket: str) -> BusEvent:
    """The same image has one event, however often it is found (C-93)."""
    payload = MediaStored(
        media_id=image.id,
        path=image.object_key,
        mime_type=found.mime_type,  # type: ignore[arg-type] # the look lets only these pass
        size_bytes=found.size_bytes,
        bucket=bucket,
        object_key=image.object_key,
        sha256=found.sha256,
        captured_at=image.captured_at,
    )
    event_id = ids.derived(image.created_at, STORED, image.tenant_id, str(image.id))
    return BusEvent(
        event_id=event_id,
        event_type=STORED,
        tenant_id=image.tenant_id,
        farm_id=image.farm_id,
        barn_id=image.barn_id,
        device_id=image.device_id,
        session_id=image.session_id,
        # The edge's own clock: a station's may be years off (C-44).
        occurred_at=image.announced_at or image.created_at,
        trace_id=image.trace_id or f"edge-{event_id}",
        payload=msgspec.Raw(msgspec.json.encode(payload)),
    )


def _look(data: bytes, etag: str) -> Found:
    digest = hashlib.sha256(data).hexdigest()
    try:
        picture = pictures.look(data)
    except pictures.Unreadable as error:
        return Found(len(data), etag, digest, pictures.kind(data), str(error))
    return Found(len(data), etag, digest, picture.mime_type)


def _missing(image: Image) -> Alert:
    return Alert(
        "media.missing",
        image.owner,
        "warning",
        f"image {image.id} was announced and is not in the store; it is looked for again. If its "
        "device cannot upload it any more, close this (`farmiq media ls --status missing`)",
    )
