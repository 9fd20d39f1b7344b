"""Upload pictures to the edge's media store; the picture's event is made after that.

images, files --> [uploads] --presign, PUT--> edge-media-store;  then image.captured is made
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import httpx2
import msgspec

from farmiq import crash
from farmiq.device import status
from farmiq.device.buffer import store
from farmiq.device.buffer.database import Buffer, DiskFullError
from farmiq.device.buffer.rules import Identity
from farmiq.device.buffer.store import Image, Tx
from farmiq.device.buffer.writer import Writer
from farmiq.device.uplink.drain import Wakeup
from farmiq.messages import media
from farmiq.plumbing import log
from farmiq.plumbing.backoff import Backoff, chance
from farmiq.plumbing.retry import RetryPolicy
from farmiq.plumbing.storage import upload
from farmiq.plumbing.storage.upload import Outcome, Policy, Receiver, Rejected, Stored, Unavailable

NAME = "iot-weighvision-agent"
POLL_S = 1.0
# Only a response that rejects this picture counts against it (C-25, C-33).
POLICY = Policy(
    unavailable=frozenset({408, 425, 429, 502, 503, 504}),
    unauthorized=frozenset({401, 403, 404}),
    confirms=False,
    rejects_unknown_format=True,
    max_puts=3,
)
# So many pictures in a row that are unauthorized: it is the station, not one of them.
MAX_UNAUTHORIZED = 3
MAX_DELAY_S = 3600.0


@dataclass
class Uploads:
    buffer: Buffer
    writer: Writer
    identity: Identity
    edge_url: str
    token: str
    attempts: int
    backoff_s: float
    max_backoff_s: float
    alarm: Callable[[str, str | None], None]
    on_settled: Callable[[], None]
    # Why the last upload was not possible; None: it was.
    unavailable: str | None = None
    wakeup: Wakeup = field(default_factory=Wakeup)

    async def run(self, http: httpx2.AsyncClient) -> None:
        receiver = Receiver(
            client=http,
            presign_url=f"{self.edge_url}{media.PRESIGN}",
            policy=POLICY,
            service=NAME,
            on_presigned=lambda: crash.here("agent.after_presign"),
            on_put=lambda: crash.here("agent.after_put"),
        )
        pause = Backoff(base_s=self.backoff_s, cap_s=self.max_backoff_s)
        unauthorized = 0
        while True:
            image = await self._next()
            if image is None:
                await self.wakeup.wait(POLL_S)
                continue
            outcome = await self._upload(receiver, image)
            try:
                await self._settle(image, outcome)
            except DiskFullError as error:
                self.alarm(status.DISK_FULL, str(error))
                await pause.wait()
            is_unauthorized = isinstance(outcome, Unavailable) and outcome.unauthorized
            unauthorized = unauthorized + 1 if is_unauthorized else 0
            is_outage = isinstance(outcome, Unavailable) and not is_unauthorized
            if is_outage or unauthorized >= MAX_UNAUTHORIZED:
                await pause.wait()

    async def _next(self) -> Image | None:
        now_s = self.buffer.now_s()
        fresh_after_s = now_s - self.writer.limits.patience_s
        try:
            return await self.buffer.do(
                lambda tx: store.next_image(tx, now_s=now_s, fresh_after_s=fresh_after_s)
            )
        except DiskFullError:
            return None

    async def _upload(self, receiver: Receiver, image: Image) -> "Outcome | Lost":
        data = await asyncio.to_thread(self.buffer.pictures.read, image.image_id)
        if data is None:
            return Lost("its file is gone")
        if hashlib.sha256(data).hexdigest() != image.sha256:
            return Lost("its file is not what was written")
        place = self.identity.place
        request = media.ImageToUpload(
            tenant_id=place.tenant_id,
            farm_id=place.farm_id,
            barn_id=place.barn_id,
            device_id=place.device_id,
            station_id=self.identity.station_id,
            session_id=UUID(image.session_id) if image.session_id else msgspec.UNSET,
            trace_id=image.trace_id,
            captured_at=datetime.fromisoformat(image.captured_at),
            content_type=image.content_type,  # type: ignore[arg-type] # checked when recorded
            content_length=image.size_bytes,
            media_id=UUID(image.image_id),
            sha256=image.sha256,
        )

        async def read() -> bytes:
            return data

        return await upload.upload(
            receiver,
            upload.Upload(
                object_id=image.image_id,
                sha256=image.sha256,
                content_type=image.content_type,
                trace_id=image.trace_id,
                token=self.token,
                presign_body=msgspec.json.encode(request),
                read=read,
            ),
        )

    async def _settle(self, image: Image, outcome: "Outcome | Lost") -> None:
        """Write down what became of an upload. Raises DiskFullError."""
        self.unavailable = outcome.reason if isinstance(outcome, Unavailable) else None
        match outcome:
            case Stored():
                self.alarm(status.TOKEN_REJECTED, None)
                await self._uploaded(image)
            case Unavailable(reason):
                log.get(NAME).warning("upload.away", reason=reason, trace_id=image.trace_id)
                if outcome.unauthorized:
                    await self._unauthorized(image, reason)
            case Rejected(reason):
                self.alarm(status.TOKEN_REJECTED, None)
                await self._count_failure(image, reason, final=False)
            case Lost(reason):
                await self._count_failure(image, reason, final=True)

    async def _uploaded(self, image: Image) -> None:
        def work(tx: Tx) -> None:
            self.writer.uploaded(tx, image)
            crash.here("agent.before_uploaded_commit")

        await self.buffer.do(work)
        crash.here("agent.after_uploaded_commit")
        await asyncio.to_thread(self.buffer.pictures.delete, image.image_id)
        self.on_settled()

    async def _unauthorized(self, image: Image, reason: str) -> None:
        """It counts against no picture; but this one lets others pass for a while."""
        self.alarm(
            status.TOKEN_REJECTED,
            f"the media store answers {reason}: check AGENT_TOKEN and AGENT_EDGE_URL "
            "(`farmiq device rotate` gives a new token)",
        )
        retry_s = self.buffer.now_s() + self.max_backoff_s
        await self.buffer.do(
            lambda tx: store.set_image(tx, image.image_id, retry_s=retry_s, problem=reason)
        )

    async def _count_failure(self, image: Image, reason: str, *, final: bool) -> None:
        attempts = image.attempts + 1
        failed = final or attempts >= self.attempts
        delay_s = retry_delay_s(image.attempts, base_s=self.backoff_s, chance=chance())
        retry_s = self.buffer.now_s() + delay_s

        def work(tx: Tx) -> None:
            state = "failed" if failed else "waiting"
            store.set_image(
                tx,
                image.image_id,
                attempts=attempts,
                retry_s=retry_s,
                problem=reason[:300],
                state=state,
            )
            if failed and image.session_id is not None:
                problem = f"a picture could not be uploaded: {reason[:300]}"
                store.set_session(tx, image.session_id, problem=problem)
                self.writer.settle_session(tx, image.session_id)

        await self.buffer.do(work)
        logger = log.get(NAME)
        (logger.error if failed else logger.warning)(
            "upload.failed" if failed else "upload.refused",
            reason=reason,
            attempt=attempts,
            trace_id=image.trace_id,
        )
        self.on_settled()


@dataclass(frozen=True, slots=True)
class Lost:
    """The picture's file is not there any more, or damaged: another attempt cannot help."""

    reason: str


def retry_delay_s(attempts: int, *, base_s: float, chance: float) -> float:
    """The delay before a picture that was rejected `attempts` times is tried again."""
    return RetryPolicy(base_s, MAX_DELAY_S).delay_s(attempts, chance=chance)
