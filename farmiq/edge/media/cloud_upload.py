"""Upload images to the cloud: after their event, newest first, until the cloud confirms each.

media_objects --claim--> [upload] --presign--> cloud-media-store; --PUT--> the cloud's bucket;
--presign again--> "stored" --> synced_at

An upload that was interrupted is asked about again: the cloud knows what it has. Any number of
these may run.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import httpx2
import msgspec
from prometheus_client import Counter

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.identity import Identity
from farmiq.edge.media import store
from farmiq.edge.media.store import Image
from farmiq.messages import media
from farmiq.messages.text import storable
from farmiq.messages.wording import worded
from farmiq.plumbing import db, log
from farmiq.plumbing.backoff import chance
from farmiq.plumbing.retry import RetryPolicy
from farmiq.plumbing.storage import objects, upload
from farmiq.plumbing.storage.upload import Outcome, Policy, Receiver, Rejected, Stored, Unavailable

# No answer of our cloud about this image: an outage, or something on the way.
POLICY = Policy(
    unavailable=frozenset({401, 403, 404, 405, 408, 429, 500, 502, 503, 504}),
    unauthorized=frozenset({401}),
    confirms=True,
    rejects_unknown_format=False,
)
# After that many failures in a row the connection itself is suspected (peers 4).
RECONNECT_AFTER = 5
MAX_DELAY_S = 3600.0
IMAGE_RETRY = RetryPolicy(base_s=2.0, cap_s=MAX_DELAY_S)

UPLOADS = Counter("farmiq_media_carried_total", "Images taken to the cloud", ["outcome"])
UPLOADED_BYTES = Counter(
    "farmiq_media_carried_bytes_total", "Bytes of images put into the cloud's bucket"
)
_LABELS: dict[type[Outcome], str] = {Stored: "there", Unavailable: "away", Rejected: "refused"}


@dataclass(frozen=True, slots=True)
class _Pause:
    """A tenant whose cloud is unavailable; `until` is on the monotonic clock."""

    failures: int
    until: float


class CloudUploader:
    def __init__(
        self,
        settings: EdgeSettings,
        pool: db.Pool,
        bucket: objects.Bucket,
        connect: Callable[[], httpx2.AsyncClient],
    ) -> None:
        self._settings, self._pool, self._bucket = settings, pool, bucket
        self._identity = Identity(settings)
        self._connect = connect
        self._client = connect()
        self._pauses: dict[str, _Pause] = {}
        self._log = log.get("edge-media-store")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def upload_once(self) -> int:
        """Claim a few images and upload them; returns how many."""
        now = time.monotonic()
        paused = [tenant_id for tenant_id, pause in self._pauses.items() if pause.until > now]
        async with db.transaction(self._pool) as tx:
            images = await store.claim_unsynced(
                tx,
                limit=self._settings.media_sync_at_once,
                lease_s=self._settings.media_lease_s,
                except_tenants=paused,
            )
        outcomes = await asyncio.gather(*(self._upload(image) for image in images))
        await self._pause_tenants(
            {image.tenant_id: outcome for image, outcome in zip(images, outcomes, strict=True)}
        )
        return len(images)

    async def _upload(self, image: Image) -> Outcome:
        try:
            outcome = await self._send(image)
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            # An image that breaks the upload must not stop the others.
            self._log.error("media.failed", media_id=str(image.id), exc_info=error)
            outcome = Rejected(f"our own error: {error!r}"[:300])
        async with db.transaction(self._pool) as tx:
            match outcome:
                case Stored():
                    await store.mark_synced(tx, image)
                    if not await store.others_not_accepted(tx, image):
                        await alerts.close(tx, kind="media.not_taken", subject=image.owner)
                    crash.here("media.before_synced_commit")
                case Unavailable(reason):
                    await store.mark_not_synced(
                        tx, image, reason=storable(reason), after_s=0.0, counted=False
                    )
                case Rejected(reason):
                    await self._reject(tx, image, storable(reason))
        UPLOADS.labels(outcome=_LABELS[type(outcome)]).inc()
        return outcome

    async def _send(self, image: Image) -> Outcome:
        request = media.ImageToUpload(
            tenant_id=image.tenant_id,
            farm_id=image.farm_id,
            barn_id=image.barn_id,
            device_id=image.device_id,
            station_id=image.station_id or msgspec.UNSET,
            session_id=image.session_id or msgspec.UNSET,
            trace_id=image.trace_id or str(image.id),
            captured_at=image.captured_at,
            content_type=image.mime_type,  # type: ignore[arg-type] # the check lets only these pass
            content_length=image.size_bytes,
            media_id=image.id,
            sha256=image.sha256,
        )

        def on_put() -> None:
            crash.here("media.after_put")
            UPLOADED_BYTES.inc(image.size_bytes or 0)

        receiver = Receiver(
            client=self._client,
            presign_url=self._settings.cloud_url.rstrip("/") + media.PRESIGN,
            policy=POLICY,
            service="edge-media-store",
            on_presigned=lambda: None,
            on_put=on_put,
        )
        outcome = await upload.upload(
            receiver,
            upload.Upload(
                object_id=str(image.id),
                sha256=str(image.sha256),
                content_type=image.mime_type,
                trace_id=request.trace_id,
                token=self._identity.token(image.tenant_id),
                presign_body=msgspec.json.encode(request),
                read=lambda: self._read(image),
            ),
        )
        if isinstance(outcome, Unavailable) and outcome.unauthorized:
            self._identity.clear_tokens()
        return outcome

    async def _read(self, image: Image) -> bytes | Unavailable | Rejected:
        try:
            data = await self._bucket.find(image.object_key)
        except objects.UNAVAILABLE as error:
            return Unavailable(f"the edge's object store is unavailable: {error}"[:300])
        if data is None or hashlib.sha256(data).hexdigest() != image.sha256:
            problem = "gone from" if data is None else "damaged in"
            return Rejected(f"its bytes are {problem} the edge's store")
        return data

    async def _reject(self, tx: db.Connection, image: Image, reason: str) -> None:
        after_s = IMAGE_RETRY.delay_s(image.sync_count, chance=chance())
        self._log.warning("media.not_taken", media_id=str(image.id), error=reason)
        await store.mark_not_synced(tx, image, reason=reason, after_s=after_s, counted=True)
        if image.sync_count >= store.ATTEMPTS_BEFORE_ALERT:
            text = worded(
                "the cloud does not take image %(image)s: %(why)s. It stays here and is tried "
                "again",
                image=image.id,
                why=reason,
            )
            await alerts.raise_(tx, Alert("media.not_taken", image.owner, "warning", text))

    async def _pause_tenants(self, outcomes: Mapping[str, Outcome]) -> None:
        """Pause a tenant whose cloud is unavailable: longer each time, or as the cloud asks."""
        for tenant_id, outcome in outcomes.items():
            if not isinstance(outcome, Unavailable):
                self._pauses.pop(tenant_id, None)
                continue
            failures = self._pauses.get(tenant_id, _Pause(0, 0.0)).failures + 1
            self._log.warning("media.cloud_away", tenant_id=tenant_id, error=outcome.reason)
            policy = outage_retry(cap_s=self._settings.sync_breaker_s)
            pause_s = policy.delay_s(failures, chance=chance(), retry_after_s=outcome.retry_after_s)
            self._pauses[tenant_id] = _Pause(failures, time.monotonic() + pause_s)
            if failures % RECONNECT_AFTER == 0:
                await self._client.aclose()
                self._client = self._connect()


def outage_retry(*, cap_s: float) -> RetryPolicy:
    """How long a tenant's images wait after so many outages; Retry-After counts to MAX_DELAY_S."""
    return RetryPolicy(base_s=0.5, cap_s=cap_s, max_retry_after_s=MAX_DELAY_S)
