"""Images to the cloud: after their event, newest first, until the cloud has read each of them back.

media_objects --claim--> [carry] --presign--> cloud-media-store; --PUT--> the cloud's bucket;
--presign again--> "stored" --> synced_at

Whatever is cut off is simply asked about again: the cloud knows what it has, and a PUT of what is
there already is refused by the store. Any number of these may run.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import httpx2
import msgspec
import prometheus_client

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.identity import Identity
from farmiq.edge.media import carried, delivery
from farmiq.edge.media.carried import Waiting
from farmiq.edge.media.delivery import Answer, Away, Put, Refused, There
from farmiq.messages import instants, media
from farmiq.messages.text import storable
from farmiq.plumbing import asking, db, ids, log, objects
from farmiq.plumbing.backoff import chance
from farmiq.plumbing.retry import retry_after_s

NOT_LET_IN = 401
# After that many failures in a row the connection itself is suspected (peers 4).
REBUILD_AFTER = 5

CARRIED = prometheus_client.Counter(
    "farmiq_media_carried_total", "Images taken to the cloud", ["outcome"]
)
CARRIED_BYTES = prometheus_client.Counter(
    "farmiq_media_carried_bytes_total", "Bytes of images put into the cloud's bucket"
)

Connect = Callable[[], httpx2.AsyncClient]


class Carrier:
    def __init__(
        self, settings: EdgeSettings, pool: db.Pool, bucket: objects.Bucket, connect: Connect
    ) -> None:
        self._settings, self._pool, self._bucket = settings, pool, bucket
        self._identity = Identity(settings)
        self._connect = connect
        self._client = connect()
        self._rests: dict[str, _Rest] = {}
        self._log = log.get("edge-media-store")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def carry_once(self) -> int:
        """Take up a few and bring them; returns how many."""
        now = time.monotonic()
        resting = [tenant for tenant, rest in self._rests.items() if rest.until > now]
        async with db.transaction(self._pool) as tx:
            waiting = await carried.claim(
                tx,
                most=self._settings.media_sync_at_once,
                lease_s=self._settings.media_lease_s,
                but_of=resting,
            )
        outcomes = await asyncio.gather(*(self._carry(image) for image in waiting))
        await self._learn(
            {each.tenant_id: out for each, out in zip(waiting, outcomes, strict=True)}
        )
        return len(waiting)

    async def _carry(self, image: Waiting) -> There | Away | Refused:
        """One image, until the cloud has it or does not take it now."""
        try:
            outcome = await self._bring(image)
        except Exception as error:  # noqa: BLE001 - told, and tried again
            # One image that we cannot cope with must not stop the others.
            self._log.error("media.failed", media_id=str(image.id), exc_info=error)
            outcome = Refused(f"our own error: {error!r}"[:300])
        match outcome:
            case There():
                await self._done(image)
            case Away():
                async with db.transaction(self._pool) as tx:
                    await carried.hand_back(tx, image, why=outcome.why)
            case Refused():
                await self._refused(image, outcome.why)
        CARRIED.labels(outcome=type(outcome).__name__.lower()).inc()
        return outcome

    async def _bring(self, image: Waiting) -> There | Away | Refused:
        verdict = await self._ask(image)
        if not isinstance(verdict, Put):
            return verdict
        try:
            data = await self._bucket.find(image.object_key)
        except objects.UNAVAILABLE as error:
            return Away(f"the edge's object store is away: {error}"[:300])
        if data is None or hashlib.sha256(data).hexdigest() != image.sha256:
            what = "gone from" if data is None else "damaged in"
            return Refused(f"its bytes are {what} the edge's store")
        failed = delivery.put(await self._put(verdict, data))
        if failed is not None:
            return failed
        crash.here("media.after_put")
        CARRIED_BYTES.inc(len(data))
        verdict = await self._ask(image)
        if isinstance(verdict, Put):
            return Refused("the cloud does not find it after the upload")
        return verdict

    async def _ask(self, image: Waiting) -> delivery.Verdict:
        url = self._settings.cloud_url.rstrip("/") + media.PRESIGN
        headers = {
            "Authorization": f"Bearer {self._identity.token(image.tenant_id)}",
            "x-request-id": str(ids.new()),
            "x-trace-id": image.trace_id or str(image.id),
            "Content-Type": "application/json",
        }
        answer = await self._send("POST", url, msgspec.json.encode(_told(image)), headers)
        if answer.status == NOT_LET_IN:
            self._identity.forget()
        return delivery.judge(answer, size_bytes=image.size_bytes, sha256=image.sha256)

    async def _put(self, where: Put, data: bytes) -> Answer:
        return await self._send("PUT", where.url, data, where.headers)

    async def _send(
        self, method: str, url: str, content: bytes, headers: Mapping[str, str]
    ) -> Answer:
        try:
            said = await asking.ask(self._client, method, url, content=content, headers=headers)
        except asking.FAILED as error:
            return Answer(None, problem=storable(asking.why(error)))
        return Answer(
            said.status,
            body=said.json(),
            problem=storable(said.body[:200].decode(errors="replace")),
            retry_after_s=retry_after_s(said.headers.get("Retry-After"), now=datetime.now(UTC)),
        )

    async def _done(self, image: Waiting) -> None:
        async with db.transaction(self._pool) as tx:
            await carried.keep_synced(tx, image)
            if not await carried.is_another_refused(tx, image):
                await alerts.close(tx, kind="media.not_taken", subject=image.subject)
            crash.here("media.before_synced_commit")

    async def _refused(self, image: Waiting, why: str) -> None:
        again_s = delivery.IMAGE_RETRY.delay_s(image.sync_count, chance=chance())
        self._log.warning("media.not_taken", media_id=str(image.id), error=why)
        async with db.transaction(self._pool) as tx:
            await carried.keep_refused(tx, image, why=why, again_s=again_s)
            if image.sync_count >= carried.TRIES_BEFORE_ALERT:
                await alerts.raise_(tx, _not_taken(image, why))

    async def _learn(self, outcomes: Mapping[str, There | Away | Refused]) -> None:
        """A tenant whose cloud is away rests: longer each time, or as long as the cloud says."""
        for tenant_id, outcome in outcomes.items():
            if not isinstance(outcome, Away):
                self._rests.pop(tenant_id, None)
                continue
            failures = self._rests.get(tenant_id, _Rest(0, 0.0)).failures + 1
            self._log.warning("media.cloud_away", tenant_id=tenant_id, error=outcome.why)
            policy = delivery.outage_retry(cap_s=self._settings.sync_breaker_s)
            pause_s = policy.delay_s(failures, chance=chance(), retry_after_s=outcome.retry_after_s)
            self._rests[tenant_id] = _Rest(failures, time.monotonic() + pause_s)
            if failures % REBUILD_AFTER == 0:
                await self._client.aclose()
                self._client = self._connect()


@dataclass(frozen=True, slots=True)
class _Rest:
    failures: int
    until: float


def _told(image: Waiting) -> dict[str, Any]:
    said = {
        "tenantId": image.tenant_id,
        "farmId": image.farm_id,
        "barnId": image.barn_id,
        "deviceId": image.device_id,
        "stationId": image.station_id,
        "sessionId": str(image.session_id) if image.session_id else None,
        "traceId": image.trace_id or str(image.id),
        "capturedAt": instants.rfc3339(image.captured_at),
        "contentType": image.mime_type,
        "contentLength": image.size_bytes,
        "mediaId": str(image.id),
        "sha256": image.sha256,
    }
    return {name: value for name, value in said.items() if value is not None}


def _not_taken(image: Waiting, why: str) -> Alert:
    return Alert(
        "media.not_taken",
        image.subject,
        "warning",
        f"the cloud does not take image {image.id}: {why}. It stays here and is tried again",
    )
