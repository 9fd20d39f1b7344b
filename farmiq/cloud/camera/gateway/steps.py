"""What is due: rounds of missing chunks, images stored and acknowledged, images given up.

camera_transfers, camera_chunks --> [steps] --the cloud's bucket, fn_image_…, mqtt …/ack-->

An image is acknowledged after it was read back from the bucket and its completion is committed, and
never before (C-64). Everything starts from the tables: whoever has the turn goes on with it.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import prometheus_client
import psycopg

from farmiq import crash
from farmiq.cloud.camera import waking as next_wakes
from farmiq.cloud.camera.gateway import cameras, chunks, commands, dialects, store
from farmiq.cloud.camera.gateway.chunks import (
    Acknowledge,
    Ask,
    Assemble,
    Compare,
    Fail,
    Forget,
    Pace,
    Transfer,
    Wait,
    Withhold,
)
from farmiq.cloud.camera.gateway.store import Row
from farmiq.cloud.camera.gateway.wire import Answer, Missing, Stored
from farmiq.cloud.camera.waking import Waking
from farmiq.plumbing import db, log, mqtt, objects
from farmiq.plumbing.attempts import Attempts
from farmiq.plumbing.backoff import Backoff, end_if_cancelled

NAME = "cloud-camera-gateway"
# Each may hold a whole image, more than once while it is sent.
WORKERS = 4
LOOK_S = 0.25
AGAIN_S = 5.0
REFUSED_AGAIN_S = 60.0
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


class NotStored(Exception):  # noqa: N818 - a state
    """The bucket does not give back what it was given."""


class Steps:
    """Workers that do what is due; of one camera one thing at a time."""

    def __init__(
        self,
        pool: db.Pool,
        broker: mqtt.Client,
        bucket: objects.Bucket,
        pace: Pace,
        *,
        in_hand: Callable[[], Iterable[str]],
        is_behind: Callable[[], bool],
        waking: Waking | None = None,
    ) -> None:
        """`in_hand`: topics of what was received and is not committed yet.

        `is_behind`: cameras may have said more than has been received.
        """
        self._pool, self._broker, self._bucket, self._pace = pool, broker, bucket, pace
        self._waking = waking or Waking()
        self.in_hand, self.is_behind = in_hand, is_behind
        self._busy: set[UUID] = set()
        self._choosing = asyncio.Lock()
        self.news = asyncio.Event()
        self.attempts = Attempts("images wait for the database")

    async def work(self) -> None:
        """One worker, without end."""
        backoff = Backoff(cap_s=5.0)
        while True:
            end_if_cancelled()
            try:
                with self.attempts:
                    did_something = await self._one()
            except db.UNAVAILABLE as error:
                log.get(NAME).warning("camera.database_away", error=db.first_line(error))
                await backoff.wait()
                continue
            if not did_something:
                await self._rest()

    async def _rest(self) -> None:
        self.news.clear()
        try:
            async with asyncio.timeout(LOOK_S):
                await self.news.wait()
        except TimeoutError:
            return

    async def _one(self) -> bool:
        """Do what has been due for longest; False if nothing is."""
        if self._broker.problem() is not None:
            return False
        async with self._choosing:
            async with db.transaction(self._pool) as tx:
                # Hundreds of answers that nobody may have yet would keep us from catching up.
                found = await store.next_due(
                    tx, busy=list(self._busy), answering=not self.is_behind()
                )
            if found is None:
                return False
            transfer_id, device_id = found
            self._busy.add(device_id)
        try:
            await self.step(transfer_id)
        except (mqtt.Disconnected, NotStored, *objects.UNAVAILABLE) as error:
            log.get(NAME).warning("camera.step_waits", reason=db.first_line(error))
            async with db.transaction(self._pool) as tx:
                await store.postpone(tx, transfer_id, wait_s=AGAIN_S)
        except psycopg.Error as error:
            if isinstance(error, db.UNAVAILABLE):
                raise
            # One image that the database refuses must not hold up the others.
            log.get(NAME).error("camera.step_refused", error=db.first_line(error))
            async with db.transaction(self._pool) as tx:
                await store.postpone(tx, transfer_id, wait_s=REFUSED_AGAIN_S)
        finally:
            self._busy.discard(device_id)
        return True

    async def step(self, transfer_id: UUID) -> None:
        async with db.transaction(self._pool) as tx:
            row = await store.transfer(tx, transfer_id)
            if row is None or row.due_at is None:
                return
            now = await store.now(tx)
            step = chunks.next_step(row.transfer, now=now, pace=self._pace)
            if isinstance(step, Ask) and await store.is_at_another(tx, row):
                # Its answer may have no name, and would be taken for chunks of the other one.
                step = Wait(now + self._pace.round)
            await self._within(tx, row, step, now)
        match step:
            case Ask():
                await self._ask(row, step)
            case Assemble():
                await self._store(row)
            case Acknowledge():
                await self._acknowledge(row)
            case Compare():
                await self._compare(row)

    async def _within(self, tx: db.Connection, row: Row, step: chunks.Step, now: datetime) -> None:
        """What of a step is the database's alone; a message that follows is made of it."""
        match step:
            case Wait():
                await self._keep(tx, row, row.transfer, due_at=step.until)
            case Ask():
                after = chunks.asked(row.transfer, now=now)
                await self._keep(tx, row, after, due_at=now + self._pace.round)
            case Fail():
                await self._fail(tx, row, step, now)
            case Forget():
                await self._forget(tx, row)

    # --- missing chunks

    async def _ask(self, row: Row, step: Ask) -> None:
        async with db.transaction(self._pool) as tx:
            if not await cameras.is_in_use(tx, row.device_id):
                return
            await cameras.asked_of(tx, row.device_id, row.transfer_id)
        ROUNDS.inc()
        for numbers in chunks.in_messages(step.numbers):
            await self._tell(row, Missing(row.image_name, numbers))

    # --- bytes that nobody announced

    async def _compare(self, row: Row) -> None:
        """Chunks of whatever size, of an image that is stored: its camera hears so again."""
        async with db.transaction(self._pool) as tx:
            pieces = await store.pieces(tx, row.transfer_id)
            lately = await store.stored_lately(tx, row, recent_s=self._pace.timeout_s)
        same = None
        for transfer_id, key in lately:
            if chunks.is_part(await self._bucket.find(key) or b"", pieces):
                same = transfer_id
                break
        async with db.transaction(self._pool) as tx:
            if same is not None:
                await cameras.lock(tx, [row.device_id])
            again = await store.transfer(tx, row.transfer_id)
            if again is None or again.transfer != row.transfer:
                return
            if same is not None:
                heard_at = row.transfer.heard_at
                # No more came for a while: that is the quiet a repeat waits for.
                await store.owe_acknowledgement(
                    tx, same, heard_at=heard_at, due_at=await store.now(tx)
                )
                await store.remove(tx, row.transfer_id)
                return
            after = replace(again.transfer, asked_at=await store.now(tx))
            await self._keep(tx, again, after, due_at=after.heard_at + self._pace.timeout)

    # --- a whole image

    async def _store(self, row: Row) -> None:
        """Assemble → verify → store → read back → commit; the acknowledgement is due then."""
        async with db.transaction(self._pool) as tx:
            pieces = await store.pieces(tx, row.transfer_id)
        data = b"".join(pieces)
        if wrong := chunks.problems(row.transfer, data):
            await self._spoiled(row.transfer_id, wrong)
            return
        digests = chunks.digests(pieces)
        del pieces
        key = object_key(row)
        await self._bucket.put(key, data, content_type="image/jpeg")
        crash.here("camera.after_put")
        if await self._bucket.find(key) != data:
            raise NotStored(f"image {row.image_id} is not in the bucket as it was put there")
        async with db.transaction(self._pool) as tx:
            again = await store.transfer(tx, row.transfer_id)
            if again is None or again.transfer.state != "receiving" or not again.transfer.is_whole:
                return
            now = await store.now(tx)
            await store.complete(tx, again, key=key, digests=digests)
            await store.drop_chunks(tx, row.transfer_id)
            again.ended_at, again.reason = now, None
            after = replace(again.transfer, state="complete")
            await self._keep(tx, again, after, due_at=now)
            if again.image_id is not None:
                await commands.ended(tx, again.image_id, state="done")
            crash.here("camera.before_complete_commit")
        crash.here("camera.after_complete_commit")
        ENDED.labels(outcome="complete").inc()
        await self._acknowledge(again)

    async def _spoiled(self, transfer_id: UUID, wrong: list[str]) -> None:
        """All chunks are here and the image is wrong: all are asked for again, or it has failed.

        It has when the camera is at another image of its name: that one's chunks would come.
        """
        async with db.transaction(self._pool) as tx:
            row = await store.transfer(tx, transfer_id)
            if row is None or row.transfer.state != "receiving" or not row.transfer.is_whole:
                return
            now = await store.now(tx)
            await store.drop_chunks(tx, transfer_id)
            after = chunks.spoiled(row.transfer, now=now)
            row.reason = "; ".join(wrong)[:500]
            if after.spoiled > chunks.MOST_SPOILED or await store.is_overtaken(tx, row):
                row.transfer = after
                await self._fail(tx, row, Fail(CORRUPT, row.reason), now)
                return
            await self._keep(tx, row, after, due_at=now + self._pace.round)
            if await store.is_at_another(tx, row):
                return
        await self._ask(row, Ask(chunks.missing(after)))

    async def _acknowledge(self, row: Row) -> None:
        async with db.transaction(self._pool) as tx:
            now = await store.now(tx)
            if not await self._may_acknowledge(tx, row, now):
                return
            await store.telling(tx, row.transfer_id)
        # Not before the commit, which may take long: it must not be in the past when it is told.
        async with db.transaction(self._pool) as tx:
            next_wake, timezone = await next_wakes.next_wake(tx, row.device_id, waking=self._waking)
        # A process may be frozen in a commit: what was decided before it may not hold any more.
        if self.is_behind() or self._is_in_hand(row):
            return
        await self._tell(row, Stored(row.image_name, next_wake, timezone))
        ACKNOWLEDGED.inc()
        crash.here("camera.after_ack")
        async with db.transaction(self._pool) as tx:
            await store.told(tx, row.transfer_id, owed_since=now)
            if row.image_id is not None:
                # Who was asked for another, and sent this one again, may be asked for the next.
                await commands.ended(tx, row.image_id, state="done")

    async def _may_acknowledge(self, tx: db.Connection, row: Row, now: datetime) -> bool:
        """Decided while nothing of this camera is being taken; later, or never, if not now."""
        await cameras.lock(tx, [row.device_id])
        again = await store.transfer(tx, row.transfer_id)
        if again is None or again.due_at is None:
            return False
        owed = await store.owed(
            tx,
            again,
            in_hand=self._is_in_hand(again),
            behind=self.is_behind(),
            days=self._pace.resume_days,
        )
        match chunks.acknowledgement(owed, now=now, pace=self._pace):
            case Wait() as wait:
                await self._keep(tx, again, again.transfer, due_at=wait.until)
            case Withhold():
                WITHHELD.inc()
                await self._keep(tx, again, again.transfer, due_at=None)
            case Acknowledge():
                return True
        return False

    def _is_in_hand(self, row: Row) -> bool:
        """Whether something of its camera was received and is not committed yet."""
        return any(f"/{row.spelling}/" in topic for topic in self.in_hand())

    # --- the end without an image

    async def _fail(self, tx: db.Connection, row: Row, step: Fail, now: datetime) -> None:
        if row.image_id is not None:
            await store.fail(tx, row.image_id, code=step.code, message=step.message)
            await commands.ended(tx, row.image_id, state="failed")
        row.ended_at, row.reason = now, f"{step.code}: {step.message}"
        ENDED.labels(outcome=step.code.lower()).inc()
        until = row.transfer.heard_at + timedelta(days=self._pace.resume_days)
        await self._keep(tx, row, replace(row.transfer, state="failed"), due_at=until)

    async def _forget(self, tx: db.Connection, row: Row) -> None:
        if row.image_id is None:
            await store.remove(tx, row.transfer_id)
            return
        await store.drop_chunks(tx, row.transfer_id)
        await self._keep(tx, row, chunks.bare(row.transfer), due_at=None)

    @staticmethod
    async def _keep(
        tx: db.Connection, row: Row, transfer: Transfer, *, due_at: datetime | None
    ) -> None:
        row.transfer, row.due_at = transfer, due_at
        await store.keep(tx, row)

    async def _tell(self, row: Row, answer: Answer) -> None:
        made = dialects.ANSWER[row.dialect](row.spelling, answer)
        if made is not None:
            await self._broker.publish(*made)
