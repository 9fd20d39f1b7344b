"""What is due: missing chunks asked for, images stored and acknowledged, images given up.

camera_transfers, camera_chunks --> [Answers] --the cloud's bucket, fn_image_…, …/ack, …/cmd-->

An image is acknowledged after it was read back from the bucket and its completion is committed, and
never before (C-64). Everything starts from the tables: whichever gateway is active goes on with it.

A camera is told nothing before all that it said until now is stored: a chunk that is asked for may
lie in the unread part of the log, and an image that seems to wait for its ACK_OK may have been
followed by another of its name. So each round of answers first reads on to the end of the log.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import prometheus_client
import psycopg

from farmiq import crash, nats_users
from farmiq.cloud.camera import waking
from farmiq.cloud.camera.gateway import chunks, commands, dialects, store
from farmiq.cloud.camera.gateway.chunks import (
    Acknowledge,
    Ask,
    Compare,
    Expire,
    Fail,
    Pace,
    Transfer,
    Wait,
    Withhold,
)
from farmiq.cloud.camera.gateway.store import Row, Standing
from farmiq.cloud.camera.gateway.wire import Answer, Greeting, Missing, SendImage, Stored
from farmiq.cloud.camera.waking import Waking
from farmiq.plumbing import db, log, objects, stream
from farmiq.plumbing.attempts import Attempts
from farmiq.plumbing.backoff import Backoff, cancelled_so_far, end_if_cancelled
from farmiq.plumbing.nats import NatsError

NAME = "cloud-camera-gateway"
# So much is done in one transaction.
MAX_ANSWERED = 200
MAX_ASSEMBLED = 16
# Of images that one assembler holds at once, unless a single one is larger.
MAX_ASSEMBLED_BYTES = 4 * 2**20
ASSEMBLERS = 2
# At least so often it is looked for what is due.
LOOK_S = 1.0
AGAIN_S = 5.0
REJECTED_AGAIN_S = 60.0
# No look for so long: the process did not run, or hardly.
FROZEN_S = 3.0
CORRUPT = "CORRUPT"

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
    """Made of ids alone: nothing that a camera says is part of a path."""
    return f"camera/{row.company_id}/{row.device_id}/{row.image_id}.jpg"


class NotStoredError(Exception):
    """The bucket does not give back what it was given."""


class LogPosition:
    """How far the log is stored. `last_seq` asks the broker where the log ends now."""

    def __init__(self, last_seq: Callable[[], Awaitable[int]]) -> None:
        self._last_seq = last_seq
        self._moved = asyncio.Event()
        self._looked_at = time.monotonic()
        self._frozen = 0
        self._restarts = 0
        self.seq = 0

    def stored(self, seq: int) -> None:
        # The log was made anew or set back: its old end says nothing any more.
        self._restarts += seq < self.seq
        self.seq = seq
        self._moved.set()

    async def catch_up(self) -> int:
        """Returns when all is stored that was in the log when this was called.

        What it returns is for `holds`. Raises NatsError, or LostError.
        """
        while True:
            restarts = self._restarts
            mark, end = self._frozen, await self._last_seq()
            while self.seq < end and restarts == self._restarts:
                self._moved.clear()
                await self._moved.wait()
            if restarts == self._restarts and self.holds(mark):
                return mark

    def holds(self, mark: int) -> bool:
        """Whether the process has run all the time since; frozen, it would not know what came."""
        return mark == self._frozen and time.monotonic() - self._looked_at <= FROZEN_S

    async def watch(self) -> None:
        while True:
            now = time.monotonic()
            self._frozen += now - self._looked_at > FROZEN_S
            self._looked_at = now
            await asyncio.sleep(0.25)


@dataclass(slots=True)
class _Plan:
    """What a round of answers does, decided in its transaction and sent when that is committed."""

    now: datetime
    changed: list[Row] = field(default_factory=list)
    asks: list[Row] = field(default_factory=list)
    # Of these cameras that may wait for send_image before they send anything (C-117).
    commanded: set[UUID] = field(default_factory=set)
    acks: list[Row] = field(default_factory=list)
    compares: list[Row] = field(default_factory=list)

    def save(self, row: Row, transfer: Transfer, *, due_at: datetime | None) -> None:
        row.transfer, row.due_at = transfer, due_at
        self.changed.append(row)


class Answers:
    """`writing` is held by whoever writes to the tables of transfers: one at a time."""

    def __init__(
        self,
        pool: db.Pool,
        reader: stream.Reader,
        bucket: objects.Bucket,
        pace: Pace,
        *,
        position: LogPosition,
        writing: asyncio.Lock,
        wakes: Waking | None = None,
    ) -> None:
        self._pool, self._reader, self._bucket, self._pace = pool, reader, bucket, pace
        self._position, self._writing = position, writing
        self._waking = wakes or Waking()
        self._busy: set[UUID] = set()
        self._choosing = asyncio.Lock()
        self._greeted: dict[UUID, str] = {}
        self._news = [asyncio.Event() for _ in range(1 + ASSEMBLERS)]
        self.attempts = Attempts("images wait for the database")

    def wake(self, greeted: Sequence[tuple[UUID, str]] = ()) -> None:
        """Something was stored; `greeted` are cameras that wait for an answer to HELLO (C-117)."""
        self._greeted.update(greeted)
        for news in self._news:
            news.set()

    def workers(self) -> list[Coroutine[Any, Any, None]]:
        """Each runs without end."""
        rounds = [self.answer_round, *[self.assemble_round] * ASSEMBLERS]
        return [self._keep_doing(do, news) for do, news in zip(rounds, self._news, strict=True)]

    async def _keep_doing(self, do: Callable[[], Awaitable[bool]], news: asyncio.Event) -> None:
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
                await _first_of(news, await self._idle_s(do))

    async def _idle_s(self, do: Callable[[], Awaitable[bool]]) -> float:
        """How long until something is due; whole images are told of by `wake`."""
        if do != self.answer_round or self._reader.problem() is not None:
            return LOOK_S
        try:
            async with db.autocommit(self._pool) as tx:
                left_s = await store.next_due_s(tx)
        except db.UNAVAILABLE:
            return LOOK_S
        return LOOK_S if left_s is None else min(max(left_s, 0.02), LOOK_S)

    # --- answers

    async def answer_round(self) -> bool:
        """Tell cameras all that is due now; False if nothing is."""
        greeted, self._greeted = self._greeted, {}
        async with db.autocommit(self._pool) as tx:
            found = await store.due(tx, whole=False, most=MAX_ANSWERED)
        if not found and not greeted:
            return False
        try:
            mark = await self._position.catch_up()
            await self._greet(greeted, mark)
            greeted = {}
        finally:
            # Who is not answered yet is so in the next round, unless it has come again since.
            self._greeted = {**greeted, **self._greeted}
        try:
            await self._answer(found, mark)
        except psycopg.Error as error:
            if isinstance(error, db.UNAVAILABLE):
                raise
            await self._one_by_one(found, error)
        return True

    async def _one_by_one(self, found: Sequence[tuple[UUID, UUID]], error: psycopg.Error) -> None:
        """One image that the database refuses must not hold up the others."""
        if len(found) == 1:
            log.get(NAME).error("camera.step_refused", error=db.first_line(error))
            async with db.transaction(self._pool) as tx:
                await store.postpone(tx, [found[0][0]], wait_s=REJECTED_AGAIN_S)
            return
        for each in found:
            try:
                await self._answer([each], await self._position.catch_up())
            except psycopg.Error as one_error:
                if isinstance(one_error, db.UNAVAILABLE):
                    raise
                await self._one_by_one([each], one_error)

    async def _answer(self, found: Sequence[tuple[UUID, UUID]], mark: int) -> None:
        if not found:
            return
        async with self._writing, db.transaction(self._pool) as tx:
            await store.lock(tx, [device_id for _, device_id in found])
            plan = _Plan(await store.now(tx))
            rows = await store.transfers(tx, [transfer_id for transfer_id, _ in found])
            # What was due may have changed while the rest of the log was read.
            rows = [row for row in rows if row.due_at is not None and row.due_at <= plan.now]
            standings = await store.standings(tx, rows, days=self._pace.resume_days)
            for row in rows:
                await self._decide(tx, plan, row, standings[row.transfer_id])
            await store.save(tx, plan.changed)
            await store.note_asked(tx, [(row.device_id, row.transfer_id) for row in plan.asks])
            if plan.acks:
                await store.count_acknowledgements(tx, [row.transfer_id for row in plan.acks])
        # After the commit, which may take long: none may be in the past when it is sent.
        next_wakes = await self._next_wakes([row.device_id for row in plan.acks])
        # A process may be frozen in a commit: what was decided before it may not hold any more.
        if self._position.holds(mark):
            self._send(plan, next_wakes)
            await self._sent(plan)
        for row in plan.compares:
            await self._compare(row)

    async def _decide(self, tx: db.Connection, plan: _Plan, row: Row, standing: Standing) -> None:
        gap_s = self._pace.gap_s(row.transfer_id, row.transfer)
        now, pace, transfer = plan.now, self._pace, row.transfer
        step = chunks.next_step(transfer, now=now, pace=pace, gap_s=gap_s)
        if _waits_to_be_asked(row):
            step = Ask(chunks.missing(transfer))
        match step:
            case Ask():
                self._decide_ask(plan, row, standing)
            case Wait():
                plan.save(row, transfer, due_at=step.until)
            case Fail():
                await self._fail(tx, plan, row, step)
            case Expire():
                await self._expire(tx, plan, row)
            case Compare():
                plan.compares.append(row)
            case Acknowledge():
                self._decide_ack(plan, row, standing)

    def _decide_ask(self, plan: _Plan, row: Row, standing: Standing) -> None:
        due_at = plan.now + self._pace.round
        if standing.is_at_another:
            # Its answer may have no name, and would be taken for chunks of the other one.
            plan.save(row, row.transfer, due_at=due_at)
            return
        if _takes_command(row):
            plan.commanded.add(row.transfer_id)
        plan.save(row, chunks.asked(row.transfer, now=plan.now), due_at=due_at)
        if not standing.pending_ack.is_retired:
            plan.asks.append(row)

    def _decide_ack(self, plan: _Plan, row: Row, standing: Standing) -> None:
        """Decided while nothing of this camera is being stored; later, or never, if not now."""
        match chunks.acknowledgement(standing.pending_ack, now=plan.now, pace=self._pace):
            case Wait() as wait:
                plan.save(row, row.transfer, due_at=wait.until)
            case Withhold():
                WITHHELD.inc()
                plan.save(row, row.transfer, due_at=None)
            case Acknowledge():
                plan.acks.append(row)

    def _send(self, plan: _Plan, next_wakes: dict[UUID, tuple[datetime | None, str]]) -> None:
        for row in plan.asks:
            self._ask(row, as_command=row.transfer_id in plan.commanded)
        for row in plan.acks:
            answer = Stored(row.image_name, *next_wakes[row.device_id])
            self._publish(row.dialect, row.spelling, answer)
            ACKNOWLEDGED.inc()

    def _ask(self, row: Row, *, as_command: bool = False) -> None:
        ROUNDS.inc()
        missing = chunks.missing(row.transfer)
        self._pace.was_asked(row.transfer_id, missing[-1])
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
            await store.acknowledged(tx, ids, decided_at=plan.now)
            # Who was asked for another, and sent this one again, may be asked for the next.
            images = [row.image_id for row in plan.acks if row.image_id is not None]
            await commands.ended(tx, images, state="done")
            cameras = [row.device_id for row in plan.acks if row.dialect == dialects.ESP32CAM]
            if cameras:
                await commands.after_last_image(tx, cameras)

    async def _greet(self, greeted: dict[UUID, str], mark: int) -> None:
        """Who holds images, and has said nothing since HELLO, announces the oldest (C-117)."""
        if not greeted:
            return
        async with db.transaction(self._pool) as tx:
            waiting = await store.silent_since_hello(tx, list(greeted))
        next_wakes = await self._next_wakes(waiting)
        if self._position.holds(mark):
            for device_id in waiting:
                answer = Greeting(*next_wakes[device_id])
                self._publish(dialects.ESP32CAM, greeted[device_id], answer)

    async def _next_wakes(
        self, device_ids: Sequence[UUID]
    ) -> dict[UUID, tuple[datetime | None, str]]:
        if not device_ids:
            return {}
        async with db.autocommit(self._pool) as tx:
            return await waking.next_wakes(tx, device_ids, waking=self._waking)

    def _publish(self, dialect: str, spelling: str, answer: Answer) -> None:
        made = dialects.ANSWER[dialect](spelling, answer)
        if made is not None:
            topic, payload = made
            self._reader.publish(nats_users.subject(topic), payload)

    # --- bytes that nobody announced

    async def _compare(self, row: Row) -> None:
        """Chunks of whatever size, of an image that is stored: its camera hears so again."""
        async with db.transaction(self._pool) as tx:
            pieces = (await store.pieces(tx, [row.transfer_id]))[row.transfer_id]
            lately = await store.stored_lately(tx, row, recent_s=self._pace.timeout_s)
        same = None
        for transfer_id, key in lately:
            try:
                image = await self._bucket.find(key) or b""
            except objects.UNAVAILABLE as error:
                await self._postpone(row.transfer_id, error)
                return
            if chunks.is_part(image, pieces):
                same = transfer_id
                break
        async with self._writing, db.transaction(self._pool) as tx:
            await store.lock(tx, [row.device_id])
            again = await store.transfers(tx, [row.transfer_id])
            if not again or again[0].transfer != row.transfer:
                return
            now = await store.now(tx)
            if same is not None:
                heard_at = row.transfer.heard_at
                # No more came for a while: that is the quiet a repeat waits for.
                await store.schedule_acknowledgement(tx, same, heard_at=heard_at, due_at=now)
                await store.remove(tx, row.transfer_id)
                return
            again[0].transfer = replace(again[0].transfer, asked_at=now)
            again[0].due_at = row.transfer.heard_at + self._pace.timeout
            await store.save(tx, again)

    # --- whole images

    async def assemble_round(self) -> bool:
        """Assemble → verify → store → read back → commit; the acknowledgements are due then."""
        async with self._choosing:
            async with db.autocommit(self._pool) as tx:
                found = await store.due(tx, whole=True, most=MAX_ASSEMBLED, but=list(self._busy))
                rows = await store.transfers(tx, [each for each, _ in found], lock=False)
            rows = _within_bytes(rows)
            if not rows:
                return False
            ids = {row.transfer_id for row in rows}
            self._busy |= ids
        try:
            await self._store(rows)
        finally:
            self._busy -= ids
        self.wake()
        return True

    async def _store(self, rows: list[Row]) -> None:
        async with db.autocommit(self._pool) as tx:
            pieces = await store.pieces(tx, [row.transfer_id for row in rows])
        results = await asyncio.gather(
            *(self._upload(row, pieces[row.transfer_id]) for row in rows), return_exceptions=True
        )
        stored = []
        for row, result in zip(rows, results, strict=True):
            if isinstance(result, (NotStoredError, *objects.UNAVAILABLE)):
                await self._postpone(row.transfer_id, result)
            elif isinstance(result, BaseException):
                raise result
            elif isinstance(result, list):
                await self._spoiled(row.transfer_id, result)
            else:
                stored.append((row, result))
        if stored:
            await self._complete(stored)

    async def _upload(self, row: Row, pieces: list[bytes]) -> bytes | list[str]:
        """Digests of the chunks of an image that is in the bucket now; or what is wrong with it."""
        data = b"".join(pieces)
        if wrong := chunks.problems(row.transfer, data):
            return wrong
        stored = await self._bucket.put_verified(object_key(row), data, content_type="image/jpeg")
        crash.here("camera.after_put")
        if not stored:
            raise NotStoredError(f"image {row.image_id} is not in the bucket as it was put there")
        return chunks.digests(pieces)

    async def _complete(self, stored: Sequence[tuple[Row, bytes]]) -> None:
        try:
            await self._commit_complete(stored)
        except psycopg.Error as error:
            if isinstance(error, db.UNAVAILABLE):
                raise
            if len(stored) == 1:
                # One image that the database refuses must not hold up the others.
                log.get(NAME).error("camera.step_refused", error=db.first_line(error))
                async with db.transaction(self._pool) as tx:
                    ids = [row.transfer_id for row, _ in stored]
                    await store.postpone(tx, ids, wait_s=REJECTED_AGAIN_S)
                return
            for each in stored:
                await self._complete([each])

    async def _commit_complete(self, stored: Sequence[tuple[Row, bytes]]) -> None:
        digests = {row.transfer_id: found for row, found in stored}
        uploaded = {row.transfer_id: (row.image_id, row.transfer) for row, _ in stored}
        async with self._writing, db.transaction(self._pool) as tx:
            rows = await store.transfers(tx, list(digests))
            # It may have been announced otherwise meanwhile, and be whole again with other bytes.
            rows = [r for r in rows if (r.image_id, r.transfer) == uploaded[r.transfer_id]]
            now = await store.now(tx)
            ids = [row.transfer_id for row in rows]
            await store.complete(tx, [(r, object_key(r), digests[r.transfer_id]) for r in rows])
            await store.drop_chunks(tx, ids)
            for row in rows:
                row.ended_at, row.reason, row.due_at = now, None, now
                row.transfer = replace(row.transfer, state="complete")
            await store.save(tx, rows)
            images = [row.image_id for row in rows if row.image_id is not None]
            await commands.ended(tx, images, state="done")
            crash.here("camera.before_complete_commit")
        crash.here("camera.after_complete_commit")
        ENDED.labels(outcome="complete").inc(len(rows))
        for transfer_id in digests:
            self._pace.chunk_gaps.pop(transfer_id, None)

    async def _postpone(self, transfer_id: UUID, error: BaseException) -> None:
        log.get(NAME).warning("camera.step_waits", reason=db.first_line(error))
        async with db.transaction(self._pool) as tx:
            await store.postpone(tx, [transfer_id], wait_s=AGAIN_S)

    async def _spoiled(self, transfer_id: UUID, wrong: list[str]) -> None:
        """All chunks are here and the image is wrong: all are asked for again, or it has failed.

        It has when the camera is at another image of its name: that one's chunks would come.
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
            standing = (await store.standings(tx, rows, days=self._pace.resume_days))[transfer_id]
            await store.drop_chunks(tx, [transfer_id])
            row.transfer = chunks.spoiled(row.transfer, now=plan.now)
            row.reason = "; ".join(wrong)[:500]
            if row.transfer.spoiled > chunks.MAX_SPOILED or standing.is_overtaken:
                await self._fail(tx, plan, row, Fail(CORRUPT, row.reason))
            else:
                plan.save(row, row.transfer, due_at=plan.now + self._pace.round)
            await store.save(tx, plan.changed)
        is_open = row.transfer.state == "receiving" and not standing.is_at_another
        if is_open and self._position.holds(mark):
            self._ask(row)

    # --- the end without an image

    async def _fail(self, tx: db.Connection, plan: _Plan, row: Row, step: Fail) -> None:
        if row.image_id is not None:
            await store.fail(tx, row.image_id, code=step.code, message=step.message)
            await commands.ended(tx, [row.image_id], state="failed")
        row.ended_at, row.reason = plan.now, f"{step.code}: {step.message}"
        ENDED.labels(outcome=step.code.lower()).inc()
        until = row.transfer.heard_at + timedelta(days=self._pace.resume_days)
        plan.save(row, replace(row.transfer, state="failed"), due_at=until)

    @staticmethod
    async def _expire(tx: db.Connection, plan: _Plan, row: Row) -> None:
        if row.image_id is None:
            await store.remove(tx, row.transfer_id)
            return
        await store.drop_chunks(tx, [row.transfer_id])
        plan.save(row, chunks.bare(row.transfer), due_at=None)


def _takes_command(row: Row) -> bool:
    """Whether to ask by send_image: who waits for that (C-117) hears nothing else.

    Of whom nothing has come although it was asked so, missing chunks are asked for in turn.
    """
    transfer = row.transfer
    if row.dialect != dialects.ESP32CAM or transfer.received_count:
        return False
    return transfer.asked_at is None or transfer.rounds % 2 == 0


def _waits_to_be_asked(row: Row) -> bool:
    """A camera of this dialect announced an image and may wait to be asked for it (C-117)."""
    transfer = row.transfer
    is_open = transfer.state == "receiving" and transfer.is_announced and not transfer.is_whole
    return is_open and transfer.asked_at is None and _takes_command(row)


def _within_bytes(rows: Sequence[Row]) -> list[Row]:
    """As many as may be in memory at once, and one at least."""
    chosen: list[Row] = []
    left = MAX_ASSEMBLED_BYTES
    for row in rows:
        if chosen and row.transfer.received_bytes > left:
            break
        chosen.append(row)
        left -= row.transfer.received_bytes
    return chosen


async def _first_of(news: asyncio.Event, within_s: float) -> None:
    try:
        async with asyncio.timeout(within_s):
            await news.wait()
    except TimeoutError:
        return
