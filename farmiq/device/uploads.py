"""Uploads: pictures to the edge's media store, each by an address that is asked for when it starts.

images, files --> [uploads] --presign, PUT--> edge-media-store;  then image.captured is made
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2
import msgspec

from farmiq import crash
from farmiq.device import alarms, store, uploading
from farmiq.device.buffer import Buffer, DiskFullError
from farmiq.device.minting import Identity
from farmiq.device.store import Image, Tx
from farmiq.device.writing import Writer
from farmiq.plumbing import asking, ids, log
from farmiq.plumbing.asking import Said
from farmiq.plumbing.backoff import Backoff, chance
from farmiq.plumbing.retry import RetryPolicy

NAME = "iot-weighvision-agent"
LOOK_S = 1.0
# An address that is refused at once is asked for anew; more than this often it is not its age.
MOST_ADDRESSES = 3
# So many pictures in a row that the store does not let in: it is us, not one of them.
MOST_STRANGERS = 3

PRESIGN = "/api/v1/media/images/presign"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """What the media store answers; never written down."""

    media_id: str
    upload_url: str | None = None
    expires_at: str | None = None
    required_headers: dict[str, str] = {}
    stored: bool = False
    sha256: str | None = None


class _Reason(msgspec.Struct, frozen=True, kw_only=True):
    code: str = ""
    message: str = ""
    traceId: str = ""  # noqa: N815 - as on the wire


class _Failure(msgspec.Struct, frozen=True, kw_only=True):
    error: _Reason = _Reason()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one try. Away: nothing was learnt of the picture. Stranger: others may still pass."""

    kind: Literal["done", "away", "stranger", "refused", "lost"]
    why: str = ""


@dataclass
class Uploads:
    buffer: Buffer
    writer: Writer
    who: Identity
    edge_url: str
    token: str
    attempts: int
    backoff_s: float
    longest_s: float
    alarm: Callable[[str, str | None], None]
    settled: Callable[[], None]
    away: str | None = None
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        self._more.set()

    async def run(self, http: httpx2.AsyncClient) -> None:
        backoff = Backoff(base_s=self.backoff_s, cap_s=self.longest_s)
        strangers = 0
        while True:
            image = await self._next()
            if image is None:
                await self._rest()
                continue
            outcome = await self._try(http, image)
            try:
                await self._note(image, outcome)
            except DiskFullError as error:
                self.alarm(alarms.DISK_FULL, str(error))
                await backoff.wait()
            strangers = strangers + 1 if outcome.kind == "stranger" else 0
            if outcome.kind == "away" or strangers >= MOST_STRANGERS:
                await backoff.wait()

    async def _next(self) -> Image | None:
        now_s = self.buffer.now_s()
        fresh_after_s = now_s - self.writer.limits.patience_s
        try:
            return await self.buffer.do(
                lambda tx: store.next_image(tx, now_s=now_s, fresh_after_s=fresh_after_s)
            )
        except DiskFullError:
            return None

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(LOOK_S):
                await self._more.wait()
        except TimeoutError:
            return
        self._more.clear()

    # --- one try

    async def _try(self, http: httpx2.AsyncClient, image: Image) -> Outcome:
        data = await asyncio.to_thread(self.buffer.pictures.read, image.image_id)
        if data is None:
            return Outcome("lost", "its file is gone")
        if hashlib.sha256(data).hexdigest() != image.sha256:
            return Outcome("lost", "its file is not what was written")
        try:
            return await self._upload(http, image, data)
        except (*asking.FAILED, OSError) as error:
            return Outcome("away", asking.why(error)[:300])

    async def _upload(self, http: httpx2.AsyncClient, image: Image, data: bytes) -> Outcome:
        for _ in range(MOST_ADDRESSES):
            address = await self._ask(http, image)
            if isinstance(address, Outcome):
                return address
            crash.here("agent.after_presign")
            if address.stored:
                return _compared(address, image)
            if address.upload_url is None:
                return Outcome("refused", "the media store gave no address")
            answer = await self._put(http, image, address, data)
            match uploading.of_put(answer.status):
                case "done":
                    crash.here("agent.after_put")
                    return Outcome("done")
                case "new_address" | "exists":
                    continue
                case verdict:
                    kind: Literal["away", "refused"] = "away" if verdict == "away" else "refused"
                    return Outcome(kind, f"the store answered {answer.status}")
        return Outcome("refused", f"{MOST_ADDRESSES} addresses in a row were refused")

    async def _ask(self, http: httpx2.AsyncClient, image: Image) -> Address | Outcome:
        place = self.who.place
        body: dict[str, Any] = {
            "tenantId": place.tenant_id,
            "farmId": place.farm_id,
            "barnId": place.barn_id,
            "deviceId": place.device_id,
            "stationId": self.who.station_id,
            "traceId": image.trace_id,
            "capturedAt": _zulu(image.captured_at),
            "contentType": image.content_type,
            "contentLength": image.size_bytes,
            "mediaId": image.image_id,
            "sha256": image.sha256,
        }
        if image.session_id is not None:
            body["sessionId"] = image.session_id
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        answer = await asking.ask(
            http,
            "POST",
            f"{self.edge_url}{PRESIGN}",
            content=msgspec.json.encode(body),
            headers={**headers, **_traced(image)},
        )
        verdict = uploading.of_presign(answer.status)
        self._note_stranger(answer.status if verdict == "stranger" else None)
        if verdict != "done":
            kind: Literal["refused", "stranger", "away"]
            kind = verdict if verdict in ("refused", "stranger") else "away"
            return Outcome(kind, _why(answer))
        try:
            address = msgspec.json.decode(answer.body, type=Address)
        except msgspec.MsgspecError as error:
            return Outcome("refused", f"the media store's answer is odd: {error}"[:300])
        if address.media_id != image.image_id:
            return Outcome("refused", "the media store answered for another picture")
        return address

    async def _put(
        self, http: httpx2.AsyncClient, image: Image, address: Address, data: bytes
    ) -> Said:
        headers = {"Content-Type": image.content_type, **address.required_headers}
        return await asking.ask(
            http,
            "PUT",
            str(address.upload_url),
            content=data,
            headers={**headers, **_traced(image)},
        )

    # --- what became of it

    async def _note(self, image: Image, outcome: Outcome) -> None:
        self.away = outcome.why if outcome.kind in ("away", "stranger") else None
        if outcome.kind == "done":
            await self._note_done(image)
        elif outcome.kind in ("away", "stranger"):
            log.get(NAME).warning("upload.away", reason=outcome.why, trace_id=image.trace_id)
            if outcome.kind == "stranger":
                await self._let_others_pass(image, outcome)
        else:
            await self._note_refusal(image, outcome)

    async def _note_done(self, image: Image) -> None:
        def work(tx: Tx) -> None:
            self.writer.uploaded(tx, image, now_s=self.buffer.now_s())
            crash.here("agent.before_uploaded_commit")

        await self.buffer.do(work)
        crash.here("agent.after_uploaded_commit")
        await asyncio.to_thread(self.buffer.pictures.forget, image.image_id)
        self.settled()

    async def _let_others_pass(self, image: Image, outcome: Outcome) -> None:
        """It counts against no picture; but this one stands behind the others for a while."""
        retry_s = self.buffer.now_s() + self.longest_s
        await self.buffer.do(
            lambda tx: store.set_image(tx, image.image_id, retry_s=retry_s, problem=outcome.why)
        )

    async def _note_refusal(self, image: Image, outcome: Outcome) -> None:
        attempts = image.attempts + 1
        over = outcome.kind == "lost" or uploading.failed(attempts, limit=self.attempts)
        policy = RetryPolicy(self.backoff_s, uploading.MAX_WAIT_S)
        wait_s = policy.delay_s(image.attempts, chance=chance())
        now_s = self.buffer.now_s()

        def work(tx: Tx) -> None:
            store.set_image(
                tx,
                image.image_id,
                attempts=attempts,
                retry_s=now_s + wait_s,
                problem=outcome.why,
                state="failed" if over else "waiting",
            )
            if over and image.session_id is not None:
                problem = f"a picture could not be uploaded: {outcome.why}"
                store.set_session(tx, image.session_id, problem=problem)
                self.writer.settle_session(tx, image.session_id, now_s=now_s)

        await self.buffer.do(work)
        logger = log.get(NAME)
        say = logger.error if over else logger.warning
        say(
            "upload.failed" if over else "upload.refused",
            reason=outcome.why,
            attempt=attempts,
            trace_id=image.trace_id,
        )
        self.settled()

    def _note_stranger(self, status: int | None) -> None:
        text = None
        if status is not None:
            text = (
                f"the media store answers {status}: check AGENT_TOKEN and AGENT_EDGE_URL "
                "(`farmiq device rotate` gives a new token)"
            )
        self.alarm(alarms.TOKEN_REFUSED, text)


def _compared(address: Address, image: Image) -> Outcome:
    if (address.sha256 or "").lower() == image.sha256:
        return Outcome("done")
    return Outcome("refused", "another picture is stored under this id")


def _traced(image: Image) -> dict[str, str]:
    return {"x-request-id": str(ids.new()), "x-trace-id": image.trace_id}


def _why(answer: Said) -> str:
    """The standard error body says it best (WV-29)."""
    try:
        said = msgspec.json.decode(answer.body, type=_Failure).error
    except msgspec.MsgspecError:
        said = _Reason()
    log.get(NAME).warning(
        "presign.refused", status=answer.status, code=said.code, trace_id=said.traceId
    )
    return f"{answer.status} {said.code} {said.message}".strip()[:300]


def _zulu(text: str) -> str:
    return text.replace("+00:00", "Z")
