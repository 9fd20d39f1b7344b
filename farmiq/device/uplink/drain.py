"""The drain: events out over MQTT in order, receipts in; stored only when the edge says so (C-34).

events --20/s--> broker --> edge;  edge --iot/ack/…--> [drain] --> events: stored, refused
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from farmiq import crash
from farmiq.device import status
from farmiq.device.buffer import store
from farmiq.device.buffer.database import Buffer, DiskFullError
from farmiq.device.buffer.store import Sending, Tx
from farmiq.device.buffer.writer import Writer
from farmiq.device.uplink import rules
from farmiq.device.uplink.rules import Progress, RateLimiter
from farmiq.messages import check, envelope, receipt, topics
from farmiq.plumbing import log
from farmiq.plumbing.messaging import mqtt

T = TypeVar("T")

NAME = "iot-weighvision-agent"
PAGE = 20
TICK_S = 1.0
# Ticks between reports of the loss ledger: while it overflows, one line covers many.
REPORT_EVERY = 5
# An event that is older than this when it is first sent is a replay and gets a jitter.
LIVE_S = 5.0
_AFTER_FULL_S = 5.0


class StalledError(Exception):
    """Connected, and nothing moves: connect again."""


class Wakeup(asyncio.Event):
    """Set when there may be something to do."""

    async def wait(self, timeout_s: float) -> None:  # type: ignore[override] # it ends in time
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await super().wait()
            self.clear()


class SendGate:
    """All that the station sends passes here, one at a time, at the rate of its limiter."""

    def __init__(self, per_second: int) -> None:
        self._limiter = RateLimiter(per_second)
        # Two senders at the same time must not both get the last place of a second.
        self._lock = asyncio.Lock()

    async def wait(self, *, chance: float | None = None) -> None:
        """Returns when one message may leave; `chance` gives a replay its jitter."""
        async with self._lock:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(self._limiter.next_at(loop.time(), chance=chance) - loop.time())
            self._limiter.sent(loop.time())


@dataclass(frozen=True, slots=True)
class InFlight:
    seq: int
    sent_at: float
    attempts: int


@dataclass
class Drain:
    """State across connections; `run` serves one, until it stalls or is cancelled."""

    buffer: Buffer
    writer: Writer
    gate: SendGate
    window: int
    receipt_s: float
    stalled_s: float
    by_puback: bool
    alarm: Callable[[str, str | None], None]
    handle_command: Callable[[topics.CommandTopic, msgspec.Raw], Awaitable[None]]
    stalls: int = 0
    settled_at: float = 0.0
    last_receipt_at: datetime | None = None
    connected_at: float | None = None
    _in_flight: dict[str, InFlight] = field(default_factory=dict)
    _confirmed: list[tuple[int, str]] = field(default_factory=list)
    wakeup: Wakeup = field(default_factory=Wakeup)
    _has_confirmed: asyncio.Event = field(default_factory=asyncio.Event)
    _connection: int = -1

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    async def run(self, broker: mqtt.Client) -> None:
        """Raises StalledError."""
        self._connection = -1
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send(broker, group))
            group.create_task(self._mark_confirmed())
            group.create_task(self._listen(broker))
            group.create_task(self._tick(broker))

    # --- out

    async def _send(self, broker: mqtt.Client, group: asyncio.TaskGroup) -> None:
        while True:
            await self._until_connected(broker)
            limit = min(PAGE, self.window - len(self._in_flight))
            page = await self._do(lambda tx: store.take(tx, limit=limit)) if limit > 0 else []  # noqa: B023 - at once
            if not page:
                await self.wakeup.wait(TICK_S)
                continue
            crash.here("agent.after_take")
            for event in page:
                await self._wait_for_slot(event)
                if broker.problem() is not None:
                    break
                self._in_flight[event.event_id] = InFlight(
                    event.seq, self.buffer.clock.mono(), event.attempts
                )
                group.create_task(self._publish(broker, event))
            await asyncio.sleep(0)
            crash.here("agent.after_send")

    async def _until_connected(self, broker: mqtt.Client) -> None:
        """After a reconnect everything without a receipt is sent again, from the oldest on."""
        if broker.problem() is not None:
            self.connected_at = None
        await broker.until_up()
        if broker.connection == self._connection:
            return
        self._connection = broker.connection
        self.connected_at = self.buffer.clock.mono()
        self._in_flight.clear()
        self._confirmed.clear()

        def begin(tx: Tx) -> int:
            self.writer.report_drops(tx)
            return store.back_to_waiting(tx)

        log.get(NAME).info("drain.connected", count=await self._do(begin))

    async def _wait_for_slot(self, event: Sending) -> None:
        is_replay = event.attempts > 1 or self.buffer.now_s() - event.stored_s > LIVE_S
        chance = random.random() if is_replay else None  # noqa: S311 - jitter, not a secret
        await self.gate.wait(chance=chance)

    async def _publish(self, broker: mqtt.Client, event: Sending) -> None:
        try:
            await broker.publish(event.topic, event.raw)
        except mqtt.DisconnectedError:
            return  # the broker may have it or not: it is sent again
        crash.here("agent.after_puback")
        self._confirmed.append((event.seq, event.event_id))
        self._has_confirmed.set()

    # --- receipts

    async def _mark_confirmed(self) -> None:
        """PUBACKs are written together: a commit each would wear out the card."""
        while True:
            await self._has_confirmed.wait()
            self._has_confirmed.clear()
            confirmed, self._confirmed = self._confirmed, []
            if self.by_puback:
                await self._settle({event_id: None for _, event_id in confirmed})
            else:
                seqs = [seq for seq, _ in confirmed]
                await self._do(lambda tx: store.published(tx, seqs))  # noqa: B023 - at once

    async def _listen(self, broker: mqtt.Client) -> None:
        while True:
            messages = await broker.batch(max_messages=100, linger_s=0.02)
            for message in messages:
                await self._handle(message)
            crash.here("agent.after_receipt_commit")
            broker.ack(messages)

    async def _handle(self, message: mqtt.Message) -> None:
        try:
            topic = topics.parse(message.topic)
            body = envelope.read(message.payload)
            stored_receipt = (
                receipt.read(body.payload) if isinstance(topic, topics.ReceiptTopic) else None
            )
        except check.DECODE_ERRORS as error:
            log.get(NAME).warning("drain.odd_message", reason=str(error)[:200])
            return
        if stored_receipt is not None:
            outcome: dict[str, str | None] = {
                str(event_id): None for event_id in stored_receipt.event_ids
            }
            outcome |= {str(event.event_id): event.reason for event in stored_receipt.rejected}
            await self._settle(outcome)
            self.last_receipt_at = self.buffer.now()
        elif isinstance(topic, topics.CommandTopic):
            command = topic
            await self._patiently(lambda: self.handle_command(command, body.payload))

    async def _settle(self, outcome: dict[str, str | None]) -> None:
        """Mark events as stored, or rejected with a reason; either ends the sending."""
        now_s = self.buffer.now_s()

        def work(tx: Tx) -> list[dict[str, Any]]:
            settled = []
            for event_id, reason in outcome.items():
                state = "stored" if reason is None else "refused"
                if not store.settle(tx, event_id, state=state, now_s=now_s, reason=reason):
                    continue
                event = store.event(tx, event_id)
                if event is not None:
                    settled.append(event)
                    if reason is not None:
                        _note_rejection(tx, event, reason)
            crash.here("agent.before_receipt_commit")
            return settled

        changed = await self._do(work)
        stored = [event for event in changed if outcome[event["event_id"]] is None]
        named = ((event["event_id"], event["event_type"], _trace_id(event)) for event in stored)
        log.events(log.get(NAME), "drain.stored", named)
        for event_id in outcome:
            self._in_flight.pop(event_id, None)
        if changed:
            self.settled_at, self.stalls = self.buffer.clock.mono(), 0
            self.alarm(status.DRAIN_STALLED, None)
        self.wakeup.set()

    # --- the timer

    async def _tick(self, broker: mqtt.Client) -> None:
        for number in itertools.count(1):
            await asyncio.sleep(TICK_S)
            await self._send_overdue_again()
            if number % REPORT_EVERY == 0 and broker.problem() is None:
                await self._do(self.writer.report_drops)
            await self._check_progress(broker)

    async def _send_overdue_again(self) -> None:
        now = self.buffer.clock.mono()
        overdue = {
            event_id: flight.seq
            for event_id, flight in self._in_flight.items()
            if now - flight.sent_at > rules.receipt_wait_s(flight.attempts, base_s=self.receipt_s)
        }
        if overdue:
            await self._do(lambda tx: store.back_to_waiting(tx, [*overdue.values()]))
            for event_id in overdue:
                self._in_flight.pop(event_id, None)
            log.get(NAME).warning("drain.no_receipt", count=len(overdue))
            self.wakeup.set()

    async def _check_progress(self, broker: mqtt.Client) -> None:
        progress = Progress(
            connected_at=None if broker.problem() else self.connected_at,
            settled_at=self.settled_at,
            left=store.backlog(await self._do(store.tally)),
            stalls=self.stalls,
        )
        if rules.is_stalled(progress, self.buffer.clock.mono(), limit_s=self.stalled_s):
            self.stalls += 1
            self.alarm(
                status.DRAIN_STALLED,
                f"{progress.left} events wait and the edge confirms none although the broker "
                "answers: is the gateway running, and is this device registered for receipts?",
            )
            raise StalledError

    # --- both

    async def _do(self, work: Callable[[Tx], T]) -> T:
        return await self._patiently(lambda: self.buffer.do(work))

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat while the disk is full: nothing is lost by it, only delayed."""
        while True:
            try:
                result = await work()
            except DiskFullError as error:
                self.alarm(status.DISK_FULL, str(error))
                await asyncio.sleep(_AFTER_FULL_S)
            else:
                self.alarm(status.DISK_FULL, None)
                return result


class _Traced(msgspec.Struct):
    trace_id: str = "-"


def _trace_id(event: dict[str, Any]) -> str:
    """Of a message as it was sent, whatever a crash may have left of it."""
    try:
        return msgspec.json.decode(event["raw"], type=_Traced).trace_id
    except msgspec.DecodeError:
        return "-"


def _note_rejection(tx: Tx, event: dict[str, Any], reason: str) -> None:
    log.get(NAME).error(
        "event.refused",
        event_id=event["event_id"],
        event_type=event["event_type"],
        trace_id=_trace_id(event),
        reason=reason[:500],
    )
    if event["session_id"] is not None:
        problem = f"the edge refused {event['event_type']}: {reason[:300]}"
        store.set_session(tx, event["session_id"], problem=problem)
