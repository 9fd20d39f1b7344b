"""What an announced image does, and whether it is in the store and is the declared one.

ingress --announced(tx, …)--> media_objects
media_objects --due--> [HEAD, bytes, sha256] --stored + media.stored, or rejected, or missing-->

An image is checked when it is announced, when its address has expired (uploaded and never
announced), and when its device asks again. Every check may be repeated: its result is one
transaction, under an event id that is derived from the image's own.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from prometheus_client import Counter

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts, outbox
from farmiq.edge.alerts import Alert
from farmiq.edge.arrival import Arrival
from farmiq.edge.media import rules, store
from farmiq.edge.media.rules import StoredObject
from farmiq.edge.media.store import Image
from farmiq.messages import bus, ids, media
from farmiq.messages.bus import BusEvent
from farmiq.messages.media import STORED, ImageType, MediaStored
from farmiq.messages.topics import SessionTopic
from farmiq.messages.weighvision import ImageCaptured
from farmiq.messages.wording import worded
from farmiq.plumbing import db, log
from farmiq.plumbing.images import pictures
from farmiq.plumbing.storage import objects

MAX_CONCURRENT = 4
MAX_DUE = 32
# A store may need a moment until it shows a new object; only then an image counts as missing.
CHECKS_BEFORE_MISSING = 3

CHECKS = Counter("farmiq_media_looked_total", "Looks for an image in the store", ["outcome"])


# --- announced, inside ingress's one transaction (C-81)
#
# The bucket is not asked here: the checker looks at once whether the bytes are there. An image that
# was never presigned, or that belongs to another device, changes nothing of others.


async def announced(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Note that these images should be here; media.stored follows when they are."""
    # Always in one order: two transactions must not wait for each other's rows.
    for arrival in sorted(arrivals, key=lambda arrival: str(arrival.payload.media_id)):
        await _announce(tx, arrival)
    return []


async def _announce(tx: db.Connection, arrival: Arrival) -> None:
    image: ImageCaptured = arrival.payload
    place, event = arrival.place, arrival.event
    mime_type: ImageType = image.content_type or "image/jpeg"
    rows = await db.fetch_all(
        tx,
        """
        insert into media_objects as m (id, tenant_id, farm_id, barn_id, device_id, station_id,
          session_id, trace_id, bucket, object_key, mime_type, captured_at, upload_status,
          announced_type, announced_size_bytes, announced_sha256, purpose, announced_at,
          created_at, check_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, '', %s, %s, %s, 'missing', %s, %s, %s, %s,
          fn_now(), fn_now(), fn_now())
        on conflict on constraint media_objects_pkey do update set
          announced_at = coalesce(m.announced_at, excluded.announced_at),
          announced_type = excluded.announced_type,
          announced_size_bytes = excluded.announced_size_bytes,
          announced_sha256 = excluded.announced_sha256,
          purpose = excluded.purpose,
          session_id = coalesce(m.session_id, excluded.session_id),
          station_id = coalesce(m.station_id, excluded.station_id),
          check_at = case when m.upload_status = 'stored' then m.check_at
            else excluded.check_at end,
          check_count = case when m.upload_status = 'stored' then m.check_count else 0 end
        where m.tenant_id = excluded.tenant_id and m.device_id = excluded.device_id
        returning m.upload_status, m.session_id, m.mime_type, m.size_bytes, m.sha256
        """,
        image.media_id,
        place.tenant_id,
        place.farm_id,
        place.barn_id,
        place.device_id,
        arrival.where.station_id if isinstance(arrival.where, SessionTopic) else None,
        event.session_id or None,
        event.trace_id,
        media.object_key(
            place,
            media_id=image.media_id,
            captured_at=event.occurred_at,
            content_type=mime_type,
        ),
        mime_type,
        event.occurred_at,
        *_announced_content(image),
        image.purpose or None,
    )
    for alert in _alerts(arrival, rows):
        await alerts.raise_(tx, alert)


def _alerts(arrival: Arrival, rows: Sequence[tuple[Any, ...]]) -> list[Alert]:
    image: ImageCaptured = arrival.payload
    subject = f"{arrival.place.tenant_id}/{arrival.place.device_id}"
    if not rows:
        text = worded(
            "it announced image %(image)s, which is another device's; nothing changed",
            image=image.media_id,
        )
        return [Alert("media.not_its_own", subject, "security", text)]
    status, session_id, *stored_content = rows[0]
    raised = []
    announced_for = arrival.event.session_id or None
    if announced_for is not None and session_id != announced_for:
        text = worded(
            "image %(image)s was asked for session %(session)s, announced for %(other)s",
            image=image.media_id,
            session=session_id,
            other=announced_for,
        )
        raised.append(Alert("media.session_differs", subject, "warning", text))
    pairs = zip(_announced_content(image), stored_content, strict=True)
    if status == "stored" and any(now not in (None, before) for now, before in pairs):
        text = worded(
            "image %(image)s was stored before it was announced with another content",
            image=image.media_id,
        )
        raised.append(Alert("media.announcement_differs", subject, "warning", text))
    return raised


def _announced_content(image: ImageCaptured) -> tuple[str | None, int | None, str | None]:
    """Type, size and sha256, without the difference between absent and null."""
    size_bytes = None if image.size_bytes is msgspec.UNSET else image.size_bytes
    return image.content_type or None, size_bytes, image.sha256.lower() if image.sha256 else None


# --- checked


class ImageChecker:
    def __init__(self, settings: EdgeSettings, pool: db.Pool, bucket: objects.Bucket) -> None:
        self._settings, self._pool, self._bucket = settings, pool, bucket
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._log = log.get("edge-media-store")

    async def check_due(self) -> int:
        """Check all images that are due; returns how many.

        Raises objects.UNAVAILABLE or db.UNAVAILABLE; then they are checked again later.
        """
        async with db.transaction(self._pool) as tx:
            images = await store.claim_due(tx, limit=MAX_DUE, lease_s=self._settings.media_lease_s)
        unchecked = {image.id for image in images}

        async def check(image: Image) -> None:
            await self._check_isolated(image)
            unchecked.discard(image.id)

        try:
            async with asyncio.TaskGroup() as group:
                for image in images:
                    group.create_task(check(image))
        except* objects.UNAVAILABLE:
            # Nobody checks them now: they must not wait until the lease has ended.
            async with db.transaction(self._pool) as tx:
                await store.release(tx, list(unchecked))
            raise
        return len(images)

    async def _check_isolated(self, image: Image) -> None:
        """An image that breaks the check must not stop the others: it is logged and waits."""
        try:
            if not await self.check(image):
                await self._not_found(image)
        except (*db.UNAVAILABLE, *objects.UNAVAILABLE):
            raise
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            self._log.error("media.failed", media_id=str(image.id), exc_info=error)
            CHECKS.labels(outcome="failed").inc()
            after_s = 60 + rules.next_check_s(image.check_count)
            async with db.transaction(self._pool) as tx:
                await store.check_again(tx, image, after_s=after_s)

    async def check(self, image: Image) -> bool:
        """Whether anything is under its key: then it is stored now, or rejected."""
        async with self._slots:
            content = await self._read(image)
        crash.here("media.after_look")
        if content is None:
            return False
        problems = rules.problems(content, image.claims, max_bytes=self._settings.media_max_bytes)
        if problems:
            await self._reject(image, content, "; ".join(problems))
        else:
            await self._store(image, content)
        return True

    async def _read(self, image: Image) -> StoredObject | None:
        """What is under its key; an object that is too large to be right is not read."""
        head = await self._bucket.head(image.object_key)
        if head is None:
            return None
        if not 0 < head.size_bytes <= self._settings.media_max_bytes:
            return StoredObject(head.size_bytes, head.etag)
        data = await self._bucket.find(image.object_key)
        return None if data is None else await asyncio.to_thread(_inspect, data, head.etag)

    async def _store(self, image: Image, content: StoredObject) -> None:
        event = stored_event(image, content, bucket=self._bucket.name)
        async with db.transaction(self._pool) as tx:
            is_new = await store.mark_stored(tx, image, content, event_id=event.event_id)
            if is_new:
                await outbox.append(tx, [event])
                if not await store.others_missing(tx, image):
                    await alerts.close(tx, kind="media.missing", subject=image.owner)
                if not await store.others_rejected(tx, image):
                    await alerts.close(tx, kind="media.refused", subject=image.owner)
            crash.here("media.before_stored_commit")
        crash.here("media.after_stored_commit")
        CHECKS.labels(outcome="stored" if is_new else "known").inc()
        if is_new:
            self._log.info("media.stored", media_id=str(image.id), trace_id=image.trace_id)

    async def _reject(self, image: Image, content: StoredObject, reason: str) -> None:
        """Move the wrong bytes aside: out of the way of the right ones, but not lost."""
        aside_key = f"aside/{image.object_key}/{content.etag}"
        await self._bucket.copy(image.object_key, aside_key)
        crash.here("media.after_copy_aside")
        text = worded(
            "image %(image)s: %(why)s. The bytes lie aside (`farmiq media show "
            "%(image)s`); the device may upload the right ones",
            image=image.id,
            why=reason,
        )
        async with db.transaction(self._pool) as tx:
            if not await store.mark_rejected(
                tx, image, reason=reason, aside_key=aside_key, aside_bytes=content.size_bytes
            ):
                return
            await alerts.raise_(tx, Alert("media.refused", image.owner, "warning", text))
        crash.here("media.after_aside_commit")
        await self._bucket.delete(image.object_key)
        if image.aside_key not in (None, aside_key):
            # Only the last one stays: repeated wrong uploads must not fill the store.
            await self._bucket.delete(str(image.aside_key))
        CHECKS.labels(outcome="refused").inc()
        self._log.warning("media.refused", media_id=str(image.id), reason=reason)

    async def _not_found(self, image: Image) -> None:
        CHECKS.labels(outcome="absent").inc()
        # Only checks that found nothing count: a store that is unavailable makes nothing missing.
        checks = image.check_count + 1
        missing = checks >= CHECKS_BEFORE_MISSING
        async with db.transaction(self._pool) as tx:
            if image.announced_at is None:
                if await store.expire(tx, image, hours=self._settings.media_expire_hours):
                    self._log.info("media.never_uploaded", media_id=str(image.id))
                return
            after_s = rules.next_check_s(checks)
            await store.check_again(tx, image, after_s=after_s, missing=missing)
            if missing:
                text = worded(
                    "image %(image)s was announced and is not in the store; it is looked "
                    "for again. If its device cannot upload it any more, close this "
                    "(`farmiq media ls --status missing`)",
                    image=image.id,
                )
                await alerts.raise_(tx, Alert("media.missing", image.owner, "warning", text))


def stored_event(image: Image, content: StoredObject, *, bucket: str) -> BusEvent:
    """The same image has one event, however often it is found (C-93)."""
    payload = MediaStored(
        media_id=image.id,
        path=image.object_key,
        mime_type=content.mime_type,  # type: ignore[arg-type] # the check lets only these pass
        size_bytes=content.size_bytes,
        bucket=bucket,
        object_key=image.object_key,
        sha256=content.sha256,
        captured_at=image.captured_at,
    )
    event_id = ids.derived(image.created_at, STORED, image.tenant_id, str(image.id))
    return bus.own_event(
        STORED,
        image,
        payload,
        event_id=event_id,
        # The edge's own clock: a station's may be years off (C-44).
        occurred_at=image.announced_at or image.created_at,
        trace_id=image.trace_id,
        session_id=image.session_id,
    )


def _inspect(data: bytes, etag: str) -> StoredObject:
    digest = hashlib.sha256(data).hexdigest()
    try:
        picture = pictures.look(data)
    except pictures.UnreadableError as error:
        return StoredObject(len(data), etag, digest, pictures.kind(data), str(error))
    return StoredObject(len(data), etag, digest, picture.mime_type)
