"""The drain: events out over MQTT in order, receipts in; stored only when the edge says so (C-34).

events --20/s--> broker --> edge;  edge --iot/ack/…--> [drain] --> events: stored, refused
"""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import msgspec

from farmiq import crash
from farmiq.device import alarms, pace, store
from farmiq.device.buffer import Buffer, DiskFullError
from farmiq.device.gate import Gate
from farmiq.device.pace import Progress
from farmiq.device.store import Sending, Tx
from farmiq.device.writing import Writer
from farmiq.messages import check, envelope, receipt, topics
from farmiq.plumbing import log, mqtt

T = TypeVar("T")

NAME = "iot-weighvision-agent"
PAGE = 20
TICK_S = 1.0
# Ticks between lines of the loss ledger: while it overflows, one line tells of many.
TELL_EVERY = 5
# Older than this when it is sent for the first time, an event is a replay and gets a jitter.
LIVE_S = 5.0
_AFTER_FULL_S = 5.0


class StalledError(Exception):
    """Connected, and nothing moves: the connection is to be made anew."""


@dataclass(frozen=True, slots=True)
class Flight:
    seq: int
    sent_at: float
    attempts: int


@dataclass
class Drain:
    """State across connections; `run` serves one, until it stalls or is cancelled."""

    buffer: Buffer
    writer: Writer
    gate: Gate
    window: int
    receipt_s: float
    stalled_s: float
    by_puback: bool
    alarm: Callable[[str, str | None], None]
    obey: Callable[[topics.CommandTopic, msgspec.Raw], Awaitable[None]]
    stalls: int = 0
    settled_at: float = 0.0
    last_receipt_at: datetime | None = None
    connected_at: float | None = None
    _flying: dict[str, Flight] = field(default_factory=dict)
    _confirmed: list[tuple[int, str]] = field(default_factory=list)
    _more: asyncio.Event = field(default_factory=asyncio.Event)
    _marks: asyncio.Event = field(default_factory=asyncio.Event)
    _connection: int = -1

    def wake(self) -> None:
        self._more.set()

    @property
    def flying(self) -> int:
        return len(self._flying)

    async def run(self, broker: mqtt.Client) -> None:
        """Raises StalledError."""
        self._connection = -1
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send(broker, group))
            group.create_task(self._mark())
            group.create_task(self._listen(broker))
            group.create_task(self._tick(broker))

    # --- out

    async def _send(self, broker: mqtt.Client, group: asyncio.TaskGroup) -> None:
        while True:
            await self._until_connected(broker)
            page = await self._patiently(self._take)
            if not page:
                await self._rest()
                continue
            crash.here("agent.after_take")
            for event in page:
                await self._wait_for_slot(event)
                if broker.problem() is not None:
                    break
                self._flying[event.event_id] = Flight(
                    event.seq, self.buffer.clock.mono(), event.attempts
                )
                group.create_task(self._publish(broker, event))
            await asyncio.sleep(0)
            crash.here("agent.after_send")

    async def _until_connected(self, broker: mqtt.Client) -> None:
        """After a loss everything that has no receipt is sent again, from the oldest on."""
        if broker.problem() is not None:
            self.connected_at = None
        await broker.until_up()
        if broker.connection == self._connection:
            return
        self._connection = broker.connection
        self.connected_at = self.buffer.clock.mono()
        self._flying.clear()
        self._confirmed.clear()

        def begin(tx: Tx) -> int:
            self._tell_drops(tx)
            return store.back_to_waiting(tx)

        again = await self._patiently(lambda: self.buffer.do(begin))
        log.get(NAME).info("drain.connected", count=again)

    def _tell_drops(self, tx: Tx) -> int:
        return self.writer.tell_drops(tx, now=self.buffer.now(), now_s=self.buffer.now_s())

    async def _take(self) -> list[Sending]:
        most = min(PAGE, self.window - len(self._flying))
        if most <= 0:
            return []
        return await self.buffer.do(lambda tx: store.take(tx, most=most))

    async def _wait_for_slot(self, event: Sending) -> None:
        late = event.attempts > 1 or self.buffer.now_s() - event.kept_s > LIVE_S
        chance = random.random() if late else None  # noqa: S311 - jitter, not a secret
        await self.gate.wait(chance=chance)

    async def _publish(self, broker: mqtt.Client, event: Sending) -> None:
        try:
            await broker.publish(event.topic, event.raw)
        except mqtt.Disconnected:
            return  # whether the broker has it nobody knows: it is sent again
        crash.here("agent.after_puback")
        self._confirmed.append((event.seq, event.event_id))
        self._marks.set()

    async def _rest(self) -> None:
        """Until there may be something to do."""
        try:
            async with asyncio.timeout(TICK_S):
                await self._more.wait()
        except TimeoutError:
            return
        self._more.clear()

    # --- what became of them

    async def _mark(self) -> None:
        """PUBACKs are written down together: a commit each would wear out the card."""
        while True:
            await self._marks.wait()
            self._marks.clear()
            confirmed, self._confirmed = self._confirmed, []
            if self.by_puback:
                await self._settle({event_id: None for _, event_id in confirmed})
            else:
                await self._published([seq for seq, _ in confirmed])

    async def _published(self, seqs: list[int]) -> None:
        await self._patiently(lambda: self.buffer.do(lambda tx: store.published(tx, seqs)))

    async def _listen(self, broker: mqtt.Client) -> None:
        while True:
            messages = await broker.batch(most=100, linger_s=0.02)
            for message in messages:
                await self._hear(message)
            crash.here("agent.after_receipt_commit")
            broker.ack(messages)

    async def _hear(self, message: mqtt.Message) -> None:
        try:
            where = topics.parse(message.topic)
            worn = envelope.read(message.payload)
            told = receipt.read(worn.payload) if isinstance(where, topics.ReceiptTopic) else None
        except check.REFUSED as error:
            log.get(NAME).warning("drain.odd_message", reason=str(error)[:200])
            return
        if told is not None:
            outcome: dict[str, str | None] = {str(each): None for each in told.event_ids}
            outcome |= {str(each.event_id): each.reason for each in told.rejected}
            await self._settle(outcome)
            self.last_receipt_at = self.buffer.now()
        elif isinstance(where, topics.CommandTopic):
            command, said = where, worn.payload
            await self._patiently(lambda: self.obey(command, said))

    async def _settle(self, outcome: dict[str, str | None]) -> None:
        """Stored, or refused with a reason; either ends the sending."""
        now_s = self.buffer.now_s()

        def work(tx: Tx) -> int:
            changed = 0
            for event_id, reason in outcome.items():
                state = "stored" if reason is None else "refused"
                ours = store.settle(tx, event_id, state=state, now_s=now_s, reason=reason)
                changed += ours
                if ours and reason is not None:
                    _note_refusal(tx, event_id, reason)
            crash.here("agent.before_receipt_commit")
            return changed

        changed = await self._patiently(lambda: self.buffer.do(work))
        for event_id in outcome:
            self._flying.pop(event_id, None)
        if changed:
            self.settled_at, self.stalls = self.buffer.clock.mono(), 0
            self.alarm(alarms.DRAIN_STALLED, None)
        self._more.set()

    # --- the timer

    async def _tick(self, broker: mqtt.Client) -> None:
        for number in itertools.count(1):
            await asyncio.sleep(TICK_S)
            await self._send_overdue_again()
            if number % TELL_EVERY == 0 and broker.problem() is None:
                await self._patiently(lambda: self.buffer.do(self._tell_drops))
            await self._watch(broker)

    async def _send_overdue_again(self) -> None:
        now = self.buffer.clock.mono()
        overdue = {
            event_id: flight.seq
            for event_id, flight in self._flying.items()
            if now - flight.sent_at > pace.receipt_wait_s(flight.attempts, base_s=self.receipt_s)
        }
        if overdue:
            await self._patiently(
                lambda: self.buffer.do(lambda tx: store.back_to_waiting(tx, [*overdue.values()]))
            )
            for event_id in overdue:
                self._flying.pop(event_id, None)
            log.get(NAME).warning("drain.no_receipt", count=len(overdue))
            self._more.set()

    async def _watch(self, broker: mqtt.Client) -> None:
        counts = await self._patiently(lambda: self.buffer.do(store.tally))
        progress = Progress(
            connected_at=None if broker.problem() else self.connected_at,
            settled_at=self.settled_at,
            left=counts["waiting"] + counts["sending"] + counts["published"],
            stalls=self.stalls,
        )
        if pace.stalled(progress, self.buffer.clock.mono(), limit_s=self.stalled_s):
            self.stalls += 1
            self.alarm(
                alarms.DRAIN_STALLED,
                f"{progress.left} events wait and the edge confirms none although the broker "
                "answers: is the gateway running, and is this device registered for receipts?",
            )
            raise StalledError

    # --- both

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Again and again while the disk is full: nothing is lost by it, only later."""
        while True:
            try:
                done = await work()
            except DiskFullError as error:
                self.alarm(alarms.DISK_FULL, str(error))
                await asyncio.sleep(_AFTER_FULL_S)
            else:
                self.alarm(alarms.DISK_FULL, None)
                return done


def _note_refusal(tx: Tx, event_id: str, reason: str) -> None:
    event = store.event_about(tx, event_id)
    if event is None:
        return
    log.get(NAME).error(
        "event.refused", event_id=event_id, event_type=event["event_type"], reason=reason[:500]
    )
    if event["session_id"] is not None:
        problem = f"the edge refused {event['event_type']}: {reason[:300]}"
        store.set_session(tx, event["session_id"], problem=problem)
