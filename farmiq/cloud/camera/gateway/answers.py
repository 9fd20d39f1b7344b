"""What is due: request missing chunks, store and acknowledge images, fail images.

camera_transfers, camera_chunks --> [Answers] --the cloud's bucket, fn_image_…, …/ack, …/cmd-->

An image is acknowledged after it was read back from the bucket and its completion is committed
(C-64). All state is in the tables, so any gateway that becomes active continues.

Each round first waits until the log is stored to its end: a missing chunk may be in the unread
part, and an image that waits for its ACK_OK may have been followed by another of its name.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import prometheus_client
import psycopg
from msgspec.structs import replace

from farmiq import crash, nats_users
from farmiq.cloud.camera import waking
from farmiq.cloud.camera.gateway import camera_store, chunks, commands, store
from farmiq.cloud.camera.gateway.batches import Outcome
from farmiq.cloud.camera.gateway.chunks import (
    Action,
    CameraState,
    Fail,
    RequestChunks,
    Timing,
    Transfer,
    Wait,
)
from farmiq.cloud.camera.gateway.store import Row
from farmiq.cloud.camera.protocol import dialects
from farmiq.cloud.camera.protocol.wire import Answer, Greeting, Missing, SendImage, Stored
from farmiq.cloud.camera.waking import Waking
from farmiq.plumbing import db, log
from farmiq.plumbing.backoff import Attempts, Backoff, cancelled_so_far, end_if_cancelled
from farmiq.plumbing.messaging import stream
from farmiq.plumbing.messaging.cursor import Cursors
from farmiq.plumbing.messaging.nats import NatsError
from farmiq.plumbing.storage import objects

NAME = "cloud-camera-gateway"
# Of one transaction.
MAX_ANSWERED = 200
MAX_ASSEMBLED = 64
# Of the images that one assembler has in memory, unless a single one is larger.
MAX_ASSEMBLED_BYTES = 4 * 2**20
ASSEMBLERS = 2
MAX_IDLE_S = 1.0
RETRY_S = 5.0
REJECTED_RETRY_S = 60.0
# If `watch` did not run for so long, the process was frozen.
FROZEN_S = 3.0
CORRUPT = "CORRUPT"

T = TypeVar("T", bound=tuple[Any, ...])

ENDED = prometheus_client.Counter(
    "farmiq_camera_images_total", "Images of cameras, by how their transmission ended", ["outcome"]
)
ROUNDS = prometheus_client.Counter(
    "farmiq_camera_missing_rounds_total", "Rounds in which missing chunks were asked for"
)
ACKNOWLEDGED = prometheus_client.Counter(
    "farmiq_camera_acknowledged_total", "ACK_OK sent, repeats included"
)
WITHHELD = prometheus_client.Counter(
    "farmiq_camera_withheld_total",
    "ACK_OK not sent: the camera was at another image by then, or retired",
)


def object_key(row: Row) -> str:
    """Only ids: no text of a camera is part of a path."""
    return f"camera/{row.company_id}/{row.device_id}/{row.image_id}.jpg"


class NotStoredError(Exception):
    """The bucket does not return the bytes that were put."""


class LogPosition:
    """Whether the log is stored to its end; `moved` is called when the cursors have moved."""

    def __init__(self, cursors: Cursors, reader: stream.Reader) -> None:
        self._cursors, self._reader = cursors, reader
        self._moved = asyncio.Event()
        self._looked_at = time.monotonic()
        self._frozen = 0

    def moved(self) -> None:
        self._moved.set()

    async def catch_up(self) -> int:
        """Wait until all is stored that is in the log now; returns a mark for `holds`.

        Raises NatsError, or LostError.
        """
        cursors = self._cursors
        while True:
            # A log that is read from a cursor again may be another one, with another end.
            starts = cursors.starts
            mark, end = self._frozen, (await self._reader.info()).last_seq
            while starts == cursors.starts and not cursors.has_stored(end):
                self._moved.clear()
                await self._moved.wait()
            if starts == cursors.starts and self.holds(mark):
                return mark

    def holds(self, mark: int) -> bool:
        """Whether the process was not frozen since: frozen, it misses messages."""
        return mark == self._frozen and time.monotonic() - self._looked_at <= FROZEN_S

    async def watch(self) -> None:
        while True:
            now = time.monotonic()
            self._frozen += now - self._looked_at > FROZEN_S
            self._looked_at = now
            await asyncio.sleep(0.25)


@dataclass(slots=True)
class _Plan:
    """What a round of answers decides in its transaction, to be sent after the commit."""

    now: datetime
    changed: list[Row] = field(default_factory=list)
    requests: list[Row] = field(default_factory=list)
    # Requests by send_image, for cameras that may wait for it (C-117).
    by_command: set[UUID] = field(default_factory=set)
    acks: list[Row] = field(default_factory=list)
    compares: list[Row] = field(default_factory=list)

    def save(self, row: Row, transfer: Transfer, *, due_at: datetime | None) -> None:
        row.transfer, row.due_at = transfer, due_at
        self.changed.append(row)


class Answers:
    """`writing` allows one writer to the tables of transfers at a time."""

    def __init__(
        self,
        pool: db.Pool,
        reader: stream.Reader,
        bucket: objects.Bucket,
        timing: Timing,
        *,
        position: LogPosition,
        writing: asyncio.Lock,
        wakes: Waking | None = None,
    ) -> None:
        self._pool, self._reader, self._bucket, self._timing = pool, reader, bucket, timing
        self._position, self._writing = position, writing
        self._waking = wakes or Waking()
        self._busy: set[UUID] = set()
        self._choosing = asyncio.Lock()
        self._greeted: dict[UUID, str] = {}
        # What the workers wait for. The first one sends answers, at this time also without news.
        self._news = [asyncio.Event() for _ in range(1 + ASSEMBLERS)]
        self._next_look_at = math.inf
        self.attempts = Attempts("images wait for the database")

    def wake(self, outcome: Outcome) -> None:
        """Messages were stored; those who sent HELLO and nothing since get an answer (C-117)."""
        self._greeted.update(outcome.greeted)
        if outcome.has_whole:
            for assembler in self._news[1:]:
                assembler.set()
        if outcome.greeted or time.monotonic() + outcome.due_in_s < self._next_look_at:
            self._news[0].set()

    def workers(self) -> list[Coroutine[Any, Any, None]]:
        rounds = [self.answer_round, *[self.assemble_round] * ASSEMBLERS]
        return [self._run_forever(do, news) for do, news in zip(rounds, self._news, strict=True)]

    async def _run_forever(self, do: Callable[[], Awaitable[bool]], news: asyncio.Event) -> None:
        backoff = Backoff(cap_s=5.0)
        before = cancelled_so_far()
        while True:
            end_if_cancelled(beyond=before)
            news.clear()
            try:
                with self.attempts:
                    did_something = self._reader.problem() is None and await do()
            except db.UNAVAILABLE as error:
                log.get(NAME).warning("camera.database_away", error=db.first_line(error))
                await backoff.wait()
                continue
            except (NatsError, stream.LostError) as error:
                log.get(NAME).warning("camera.answers_wait", reason=str(error))
                await backoff.wait()
                continue
            if not did_something:
                idle_s = await self._idle_s(do)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(idle_s):
                        await news.wait()

    async def _idle_s(self, do: Callable[[], Awaitable[bool]]) -> float:
        """Time until an answer is due; `wake` reports complete images, and what is due sooner."""
        if do != self.answer_round or self._reader.problem() is not None:
            return MAX_IDLE_S
        try:
            async with db.autocommit(self._pool) as tx:
                delay_s = await store.next_due_s(tx)
        except db.UNAVAILABLE:
            return MAX_IDLE_S
        idle_s = MAX_IDLE_S if delay_s is None else min(max(delay_s, 0.02), MAX_IDLE_S)
        self._next_look_at = time.monotonic() + idle_s
        return idle_s

    # --- answers

    async def answer_round(self) -> bool:
        """Send the answers that are due; False if there are none."""
        self._next_look_at = math.inf
        greeted, self._greeted = self._greeted, {}
        async with db.autocommit(self._pool) as tx:
            due = await store.due(tx, limit=MAX_ANSWERED)
        if not due and not greeted:
            return False
        try:
            await self._greet(greeted)
            greeted = {}
        finally:
            # If it failed, they are answered in the next round.
            self._greeted = {**greeted, **self._greeted}
        await self._isolating(self._answer, due)
        return True

    async def _isolating(self, do: Callable[[list[T]], Awaitable[None]], items: list[T]) -> None:
        """Do all at once; if the database rejects that, each alone, and postpone what it rejects.

        An image that the database rejects must not delay the others. The transfer of an item is its
        first field.
        """
        if not items:
            return
        try:
            await do(items)
        except psycopg.Error as error:
            if isinstance(error, db.UNAVAILABLE):
                raise
            if len(items) > 1:
                for item in items:
                    await self._isolating(do, [item])
                return
            log.get(NAME).error("camera.step_refused", error=db.first_line(error))
            await self._postpone(items[0][0], REJECTED_RETRY_S)

    async def _answer(self, due: list[tuple[UUID, UUID]]) -> None:
        mark = await self._position.catch_up()
        async with self._writing, db.transaction(self._pool) as tx:
            plan = _Plan(await camera_store.lock(tx, [device_id for _, device_id in due]))
            rows = await store.transfers(tx, [transfer_id for transfer_id, _ in due])
            # What is due may have changed while the log was read.
            rows = [row for row in rows if row.due_at is not None and row.due_at <= plan.now]
            cameras = await self._camera_states(tx, rows)
            for row in rows:
                await self._decide(tx, plan, row, cameras[row.transfer_id])
            await store.save(tx, plan.changed)
            await store.note_requests(tx, plan.requests)
            if plan.acks:
                await store.count_acknowledgements(tx, [row.transfer_id for row in plan.acks])
        # After the commit, which may take long: a wake must not be in the past when it is sent.
        acknowledged = [row.device_id for row in plan.acks]
        next_wakes = await self._next_wakes(acknowledged) if acknowledged else {}
        # If the process was frozen in the commit, the decisions may be old.
        if self._position.holds(mark):
            self._send(plan, next_wakes)
            await self._sent(plan)
        for row in plan.compares:
            await self._compare(row)

    async def _camera_states(
        self, tx: db.Connection, rows: Sequence[Row]
    ) -> dict[UUID, CameraState]:
        ids = [row.transfer_id for row in rows]
        return await store.camera_states(tx, ids, days=self._timing.resume_days)

    async def _decide(self, tx: db.Connection, plan: _Plan, row: Row, camera: CameraState) -> None:
        gap_s = self._timing.gap_s(row.transfer_id, row.transfer)
        now, timing, transfer = plan.now, self._timing, row.transfer
        step = chunks.next_step(transfer, now=now, timing=timing, gap_s=gap_s)
        if _waits_for_command(row):
            step = RequestChunks(chunks.missing(transfer))
        match step:
            case RequestChunks():
                self._decide_request(plan, row, camera)
            case Wait():
                plan.save(row, transfer, due_at=step.until)
            case Fail():
                await self._fail(tx, plan, row, step)
            case Action.EXPIRE:
                await self._expire(tx, plan, row)
            case Action.COMPARE:
                plan.compares.append(row)
            case Action.ACKNOWLEDGE:
                self._decide_ack(plan, row, camera)

    def _decide_request(self, plan: _Plan, row: Row, camera: CameraState) -> None:
        due_at = plan.now + self._timing.round
        if camera.sends_another:
            # Chunks without a name would be stored as chunks of the other image.
            plan.save(row, row.transfer, due_at=due_at)
            return
        if _takes_command(row):
            plan.by_command.add(row.transfer_id)
        plan.save(row, chunks.after_request(row.transfer, now=plan.now), due_at=due_at)
        if not camera.is_retired:
            plan.requests.append(row)

    def _decide_ack(self, plan: _Plan, row: Row, camera: CameraState) -> None:
        match chunks.acknowledgement(camera, now=plan.now, timing=self._timing):
            case Wait() as wait:
                plan.save(row, row.transfer, due_at=wait.until)
            case Action.WITHHOLD:
                WITHHELD.inc()
                plan.save(row, row.transfer, due_at=None)
            case Action.ACKNOWLEDGE:
                plan.acks.append(row)

    def _send(self, plan: _Plan, next_wakes: dict[UUID, tuple[datetime | None, str]]) -> None:
        for row in plan.requests:
            self._request(row, as_command=row.transfer_id in plan.by_command)
        for row in plan.acks:
            if row.device_id not in next_wakes:
                continue  # deleted since the commit
            answer = Stored(row.image_name, *next_wakes[row.device_id])
            self._publish(row.dialect, row.spelling, answer)
            ACKNOWLEDGED.inc()

    def _request(self, row: Row, *, as_command: bool = False) -> None:
        ROUNDS.inc()
        missing = chunks.missing(row.transfer)
        self._timing.note_request(row.transfer_id, missing[-1])
        if as_command:
            self._publish(row.dialect, row.spelling, SendImage(row.image_name))
            return
        for numbers in chunks.in_messages(missing):
            self._publish(row.dialect, row.spelling, Missing(row.image_name, numbers))

    async def _sent(self, plan: _Plan) -> None:
        if not plan.acks:
            return
        crash.here("camera.after_ack")
        async with self._writing, db.transaction(self._pool) as tx:
            ids = [row.transfer_id for row in plan.acks]
            await store.note_acknowledged(tx, ids, decided_at=plan.now)
            # A camera that announced an image again which is stored already answered its request.
            images = [row.image_id for row in plan.acks if row.image_id is not None]
            await commands.end_requests(tx, images, state="done")
            cameras = [row.device_id for row in plan.acks if row.dialect == dialects.ESP32CAM]
            if cameras:
                await commands.after_last_image(tx, cameras)

    async def _greet(self, greeted: dict[UUID, str]) -> None:
        """A camera that holds images and waits after HELLO announces the oldest (C-117)."""
        if not greeted:
            return
        mark = await self._position.catch_up()
        async with db.transaction(self._pool) as tx:
            waiting = await camera_store.silent_since_hello(tx, list(greeted))
        next_wakes = await self._next_wakes(waiting)
        if self._position.holds(mark):
            for device_id, next_wake in next_wakes.items():
                self._publish(dialects.ESP32CAM, greeted[device_id], Greeting(*next_wake))

    async def _next_wakes(
        self, device_ids: Sequence[UUID]
    ) -> dict[UUID, tuple[datetime | None, str]]:
        async with db.autocommit(self._pool) as tx:
            return await waking.next_wakes(tx, device_ids, waking=self._waking)

    def _publish(self, dialect: str, spelling: str, answer: Answer) -> None:
        encoded = dialects.encode(dialect, spelling, answer)
        if encoded is not None:
            topic, payload = encoded
            self._reader.publish(nats_users.subject(topic), payload)

    # --- chunks without an announcement

    async def _compare(self, row: Row) -> None:
        """If the chunks are part of a stored image, its camera gets ACK_OK again."""
        async with db.transaction(self._pool) as tx:
            pieces = (await store.pieces(tx, [row.transfer_id]))[row.transfer_id]
            recent = await store.stored_lately(tx, row, recent_s=self._timing.timeout_s)
        match_id = None
        for transfer_id, key in recent:
            try:
                image = await self._bucket.find(key) or b""
            except objects.UNAVAILABLE as error:
                await self._wait(row.transfer_id, error)
                return
            if chunks.is_part(image, pieces):
                match_id = transfer_id
                break
        async with self._writing, db.transaction(self._pool) as tx:
            now = await camera_store.lock(tx, [row.device_id])
            rows = await store.transfers(tx, [row.transfer_id])
            if not rows or rows[0].transfer != row.transfer:
                return
            heard_at = row.transfer.heard_at
            if match_id is not None:
                # The camera has been silent, so the repeat is due at once.
                await store.schedule_acknowledgement(tx, match_id, heard_at=heard_at, due_at=now)
                await store.remove(tx, row.transfer_id)
                return
            rows[0].transfer = replace(row.transfer, asked_at=now)
            rows[0].due_at = heard_at + self._timing.timeout
            await store.save(tx, rows)

    # --- complete images

    async def assemble_round(self) -> bool:
        """Assemble, verify, store, read back, commit; then the acknowledgements are due."""
        async with self._choosing:
            async with db.autocommit(self._pool) as tx:
                rows = await store.due_to_store(tx, limit=MAX_ASSEMBLED, exclude=list(self._busy))
            rows = _within_bytes(rows)
            if not rows:
                return False
            ids = {row.transfer_id for row in rows}
            self._busy |= ids
        try:
            await self._store(rows)
        finally:
            self._busy -= ids
        self._news[0].set()
        return True

    async def _store(self, rows: list[Row]) -> None:
        async with db.autocommit(self._pool) as tx:
            pieces = await store.pieces(tx, [row.transfer_id for row in rows])
        results = await asyncio.gather(
            *(self._upload(row, pieces[row.transfer_id]) for row in rows), return_exceptions=True
        )
        stored: list[tuple[UUID, Row, bytes]] = []
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, (NotStoredError, *objects.UNAVAILABLE)):
                await self._wait(row.transfer_id, result)
            elif isinstance(result, BaseException):
                raise result
            elif isinstance(result, list):
                await self._reject_image(row.transfer_id, result)
            else:
                stored.append((row.transfer_id, row, result))
        await self._isolating(self._complete, stored)

    async def _upload(self, row: Row, pieces: list[bytes]) -> bytes | list[str]:
        """Returns the digests of the chunks, or what is wrong with the image."""
        data = b"".join(pieces)
        if reasons := chunks.problems(row.transfer, data):
            return reasons
        stored = await self._bucket.put_verified(object_key(row), data, content_type="image/jpeg")
        crash.here("camera.after_put")
        if not stored:
            raise NotStoredError(f"image {row.image_id} is not in the bucket as it was put there")
        return chunks.digests(pieces)

    async def _complete(self, stored: list[tuple[UUID, Row, bytes]]) -> None:
        digests = {transfer_id: digest for transfer_id, _, digest in stored}
        uploaded = {transfer_id: (row.image_id, row.transfer) for transfer_id, row, _ in stored}
        async with self._writing, db.transaction(self._pool) as tx:
            # An image may have been announced differently meanwhile, and have other bytes.
            rows = [
                row
                for row in await store.transfers(tx, list(digests))
                if (row.image_id, row.transfer) == uploaded[row.transfer_id]
            ]
            await store.complete(tx, [(r, object_key(r), digests[r.transfer_id]) for r in rows])
            crash.here("camera.before_complete_commit")
        crash.here("camera.after_complete_commit")
        ENDED.labels(outcome="complete").inc(len(rows))
        for transfer_id in uploaded:
            self._timing.chunk_gaps.pop(transfer_id, None)

    async def _wait(self, transfer_id: UUID, error: BaseException) -> None:
        """The object store is unavailable."""
        log.get(NAME).warning("camera.step_waits", reason=db.first_line(error))
        await self._postpone(transfer_id, RETRY_S)

    async def _postpone(self, transfer_id: UUID, wait_s: float) -> None:
        async with db.transaction(self._pool) as tx:
            await store.postpone(tx, [transfer_id], wait_s=wait_s)

    async def _reject_image(self, transfer_id: UUID, reasons: list[str]) -> None:
        """Request all chunks of a corrupt image again, or fail it.

        It fails if the camera has announced another image of its name and would send that.
        """
        mark = await self._position.catch_up()
        async with self._writing, db.transaction(self._pool) as tx:
            rows = await store.transfers(tx, [transfer_id])
            if not rows:
                return
            row = rows[0]
            if row.transfer.state != "receiving" or not row.transfer.is_whole:
                return
            plan = _Plan(await store.now(tx))
            camera = (await self._camera_states(tx, rows))[transfer_id]
            await store.drop_chunks(tx, [transfer_id])
            row.transfer = chunks.after_corruption(row.transfer, now=plan.now)
            row.reason = "; ".join(reasons)[:500]
            if row.transfer.spoiled > chunks.MAX_SPOILED or camera.is_overtaken:
                await self._fail(tx, plan, row, Fail(CORRUPT, row.reason))
            else:
                plan.save(row, row.transfer, due_at=plan.now + self._timing.round)
            await store.save(tx, plan.changed)
        is_open = row.transfer.state == "receiving" and not camera.sends_another
        if is_open and self._position.holds(mark):
            self._request(row)

    # --- images that fail

    async def _fail(self, tx: db.Connection, plan: _Plan, row: Row, step: Fail) -> None:
        if row.image_id is not None:
            await store.fail(tx, row.image_id, code=step.code, message=step.message)
        row.ended_at, row.reason = plan.now, f"{step.code}: {step.message}"
        ENDED.labels(outcome=step.code.lower()).inc()
        until = row.transfer.heard_at + timedelta(days=self._timing.resume_days)
        plan.save(row, replace(row.transfer, state="failed"), due_at=until)

    @staticmethod
    async def _expire(tx: db.Connection, plan: _Plan, row: Row) -> None:
        if row.image_id is None:
            await store.remove(tx, row.transfer_id)
            return
        await store.drop_chunks(tx, [row.transfer_id])
        plan.save(row, chunks.without_chunks(row.transfer), due_at=None)


def _takes_command(row: Row) -> bool:
    """Whether to request by send_image: a camera that waits for it (C-117) ignores other requests.

    If nothing arrives, send_image and missing_chunks are sent by turns.
    """
    transfer = row.transfer
    if row.dialect != dialects.ESP32CAM or transfer.received_count:
        return False
    return transfer.asked_at is None or transfer.rounds % 2 == 0


def _waits_for_command(row: Row) -> bool:
    """Whether the camera announced an image and may wait for send_image (C-117)."""
    transfer = row.transfer
    is_open = transfer.state == "receiving" and transfer.is_announced and not transfer.is_whole
    return is_open and transfer.asked_at is None and _takes_command(row)


def _within_bytes(rows: Sequence[Row]) -> list[Row]:
    """As many as may be in memory at once, at least one."""
    chosen: list[Row] = []
    left = MAX_ASSEMBLED_BYTES
    for row in rows:
        if chosen and row.transfer.received_bytes > left:
            break
        chosen.append(row)
        left -= row.transfer.received_bytes
    return chosen
