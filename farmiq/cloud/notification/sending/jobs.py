"""Steps become messages, and messages are sent: at least once, each on its own.

A step is routed and its messages are committed together. A message is claimed, sent, and then
noted as sent. Who dies in between leaves a claim that ends, and the message is sent once more, with
the same message id: between `notification.after_send` and the commit is the only place where one
can go out twice.
"""

import asyncio
import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

import prometheus_client
import psycopg

from farmiq import crash
from farmiq.cloud.notification import acknowledgement, contacts, rules, words
from farmiq.cloud.notification.sending import steps, store
from farmiq.cloud.notification.sending.channels import Channel
from farmiq.cloud.notification.sending.senders import DeliveryError, Senders
from farmiq.cloud.notification.sending.store import Claimed, Limits
from farmiq.plumbing import backoff, db, log
from farmiq.plumbing.retry import RetryPolicy
from farmiq.plumbing.runtime.clock import AgeGuard
from farmiq.plumbing.sealing import Sealer, SealError

EVERY_S = 0.5
MAX_STEPS = 100
# Longer than sending takes at most, and than a commit.
CLAIM_S = 60.0
# How long we wait for messages on their way when we are to stop; ten seconds are given.
DRAIN_S = 8.0
# In flight at once: for a channel that works, for one whose last message failed, for a company,
# and for all.
PER_CHANNEL = 4
PER_FAILING_CHANNEL = 1
PER_TENANT = 20
MAX_IN_FLIGHT = 200
RETRY = RetryPolicy(base_s=5.0, cap_s=900.0, max_retry_after_s=3600.0)
# When a step that could not be routed is looked at again.
ROUTE_AGAIN_S = 60.0
GIVE_UP_AFTER_S = 24 * 3600.0

ROUTED = prometheus_client.Counter("farmiq_alert_steps_routed_total", "Steps of alerts routed")
NOBODY = prometheus_client.Counter(
    "farmiq_alert_steps_without_contact_total", "Alerts of which nobody was told"
)
MESSAGES = prometheus_client.Counter(
    "farmiq_alert_messages_total", "Attempts to send a message", ["kind", "outcome"]
)
BEHIND = prometheus_client.Gauge(
    "farmiq_alert_messages_behind_seconds", "How long the longest due message waits to be sent"
)


@dataclass(frozen=True)
class Routing:
    pool: db.Pool

    async def escalate(self) -> dict[str, object]:
        async with db.transaction(self.pool) as tx:
            return {"escalated": await steps.escalate(tx, limit=MAX_STEPS)}

    async def reset_far_future(self) -> dict[str, object]:
        async with db.transaction(self.pool) as tx:
            count = await store.reset_far_future(tx, claim_s=CLAIM_S, route_s=ROUTE_AGAIN_S)
        return {"count": count}

    async def route(self) -> dict[str, object]:
        """Make the messages of steps that nobody was told of yet."""
        async with db.transaction(self.pool) as tx:
            taken = await steps.take_steps(tx, limit=MAX_STEPS)
            made = 0
            for pending in taken:
                try:
                    async with tx.transaction():
                        made += await self._route_one(tx, pending)
                except (
                    ArithmeticError, LookupError, TypeError, ValueError, psycopg.Error,
                ) as error:  # fmt: skip
                    # The others go on; this one is tried again. If the database is away, this
                    # fails too, and nothing was done.
                    delay_s = EVERY_S if isinstance(error, db.PASSING) else ROUTE_AGAIN_S
                    await steps.put_off_step(tx, pending.facts, delay_s=delay_s)
                    log.get("notification").error(
                        "notification.not_routed", tenant_id=pending.facts.tenant_id,
                        name=str(pending.facts.episode_id), error=db.first_line(error),
                        exc_info=True,
                    )  # fmt: skip
            crash.here("notification.before_route_commit")
        crash.here("notification.after_route_commit")
        ROUTED.inc(len(taken))
        return {"steps": len(taken), "messages": made}

    async def _route_one(self, tx: db.Connection, pending: steps.PendingStep) -> int:
        step, facts = pending.step, pending.facts
        tenant_id, episode_id = facts.tenant_id, facts.episode_id
        planned = rules.plan(
            step,
            await contacts.contacts(tx, tenant_id),
            await steps.earlier_messages(tx, tenant_id, episode_id),
            channels=await contacts.usable_channels(tx, tenant_id),
            now=await store.now(tx),
        )
        if planned.dropped:
            what = "worse" if step.step == "worsened" else "over"
            reason = f"it was {what} before the quiet hours ended"
            await store.drop(tx, tenant_id, planned.dropped, reason=reason)
        made = 0
        for language in {message.language for message in planned.messages}:
            group = [message for message in planned.messages if message.language == language]
            made += await store.add_messages(tx, facts, words.render(facts, language), group)
        await steps.routed(tx, tenant_id, episode_id, facts.step)
        if step.step == "opened" and not planned.messages:
            NOBODY.inc()
            log.get("notification").warning(
                "notification.nobody", tenant_id=tenant_id, name=str(episode_id)
            )
        return made


Key = tuple[str, str]


@dataclass
class Delivery:
    """Sends what is due: a few of each company and channel, so that none waits for another's."""

    pool: db.Pool
    senders: Senders
    sealer: Sealer | None
    public_url: str | None
    # Mails of a company over the mail server of the platform.
    mails_per_hour: int
    # Messages on their way, by id.
    sending: dict[UUID, "asyncio.Task[None]"] = field(default_factory=dict)
    in_flight: Counter[Key] = field(default_factory=Counter)
    failing: set[Key] = field(default_factory=set)
    guard: AgeGuard = field(init=False)

    def __post_init__(self) -> None:
        self.guard = AgeGuard(self.pool, "notification.give_up")

    async def run(self) -> None:
        """Run for ever; a database that is away only delays messages."""
        waits = backoff.Backoff(cap_s=10.0)
        before = backoff.cancelled_so_far()
        try:
            while True:
                backoff.end_if_cancelled(beyond=before)
                try:
                    claimed = await self._claim()
                except (*db.PASSING, psycopg.Error) as error:
                    log.get("notification").warning(
                        "notification.database_away", error=db.first_line(error)
                    )
                    await waits.wait()
                    continue
                for message in claimed:
                    self._start(message)
                if not claimed:
                    await asyncio.sleep(EVERY_S)
        finally:
            await self._drain()

    async def _drain(self) -> None:
        """What is being sent is noted before we stop: else it would be sent again."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + DRAIN_S
        while self.sending and loop.time() < ends_at:
            # The process that stops us asks again each second.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(self.sending.values(), timeout=ends_at - loop.time())
        for task in self.sending.values():
            task.cancel()

    def _start(self, message: Claimed) -> None:
        key, message_id = (message.tenant_id, message.channel_id), message.message_id
        self.in_flight[key] += 1

        def ended(_: "asyncio.Task[None]") -> None:
            del self.sending[message_id]
            self.in_flight[key] -= 1
            if not self.in_flight[key]:
                del self.in_flight[key]

        self.sending[message_id] = asyncio.create_task(self._deliver(message))
        self.sending[message_id].add_done_callback(ended)

    async def _claim(self) -> list[Claimed]:
        free = MAX_IN_FLIGHT - len(self.sending)
        if free <= 0:
            return []
        async with db.transaction(self.pool) as tx:
            BEHIND.set(await store.behind_s(tx))
            await store.hold_mails(tx, per_hour=self.mails_per_hour)
            due = await store.due(
                tx,
                [
                    (*key, self.in_flight[key], key in self.failing)
                    for key in self.failing | self.in_flight.keys()
                ],
                # Its claim may have ended while the database was away.
                sending=list(self.sending),
                limits=Limits(PER_CHANNEL, PER_FAILING_CHANNEL, PER_TENANT, self.mails_per_hour),
                limit=free,
            )
            if not due:
                return []
            claimed = await store.claim(tx, due, for_s=CLAIM_S)
            await store.count_mails(tx, claimed)
        crash.here("notification.after_claim")
        return claimed

    async def _deliver(self, message: Claimed) -> None:
        """Whatever happens to it, the others go on."""
        try:
            await self._attempt(message)
        except (*db.PASSING, psycopg.Error) as error:
            # Nothing was sent. The claim ends by itself, and it is tried again.
            log.get("notification").warning(
                "notification.not_tried", tenant_id=message.tenant_id,
                name=str(message.message_id), error=db.first_line(error),
            )  # fmt: skip

    async def _attempt(self, message: Claimed) -> None:
        async with db.transaction(self.pool) as tx:
            now = await store.now(tx)
            if await store.is_over(tx, message):
                reason = "it was over before the quiet hours ended"
                await store.finish(tx, message, state="dropped", error=reason)
                return
        began = time.monotonic()
        try:
            channel = self._channel(message)
            await self.senders.send(channel, message, link=self._link(message), now=now)
        except DeliveryError as error:
            await self._failed(message, error)
            return
        except SealError as error:
            await self._failed(message, DeliveryError(f"the secrets cannot be read: {error}"))
            return
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            log.get("notification").error(
                "notification.broken", tenant_id=message.tenant_id,
                name=str(message.message_id), exc_info=True,
            )  # fmt: skip
            await self._failed(message, DeliveryError(f"it broke: {type(error).__name__}"))
            return
        crash.here("notification.after_send")
        await self._sent(message)
        crash.here("notification.after_sent_commit")
        self.failing.discard((message.tenant_id, message.channel_id))
        MESSAGES.labels(kind=message.kind, outcome="sent").inc()
        log.get("notification").info(
            "notification.sent", tenant_id=message.tenant_id, name=str(message.message_id),
            duration_ms=round((time.monotonic() - began) * 1000, 1),
        )  # fmt: skip

    async def _sent(self, message: Claimed) -> None:
        """Note it, however long the database is away: forgotten, it would be sent again."""
        waits = backoff.Backoff(cap_s=5.0)
        while True:
            try:
                async with db.transaction(self.pool) as tx:
                    await store.finish(tx, message, state="sent")
            except db.PASSING as error:
                log.get("notification").warning(
                    "notification.not_noted", tenant_id=message.tenant_id,
                    name=str(message.message_id), error=db.first_line(error),
                )  # fmt: skip
                await waits.wait()
            else:
                return

    def _channel(self, message: Claimed) -> Channel:
        channel = message.channel(self.sealer)
        if channel is None:
            raise DeliveryError("the channel was removed", permanent=True)
        if not message.is_enabled and message.step != "test":
            raise DeliveryError("the channel is switched off", permanent=True)
        return channel

    def _link(self, message: Claimed) -> str | None:
        wanted = message.step in rules.NOTIFYING and message.episode_id and message.contact_id
        if not wanted or self.sealer is None or self.public_url is None:
            return None
        return acknowledgement.link(
            self.sealer,
            self.public_url,
            tenant_id=message.tenant_id,
            episode_id=message.episode_id,  # type: ignore[arg-type]
            contact_id=message.contact_id,  # type: ignore[arg-type]
            created_at=message.created_at,
        )

    async def _failed(self, message: Claimed, error: DeliveryError) -> None:
        text, permanent = str(error), error.permanent
        # A test shows whether the channel works now.
        if not permanent:
            is_old = message.age_s >= GIVE_UP_AFTER_S and not await self.guard.look()
            permanent = is_old or message.step == "test"
        if not error.permanent:
            self.failing.add((message.tenant_id, message.channel_id))
        MESSAGES.labels(kind=message.kind or "none", outcome="failed").inc()
        log.get("notification").warning(
            "notification.failed", tenant_id=message.tenant_id, name=str(message.message_id),
            error=text, attempt=message.attempts,
        )  # fmt: skip
        async with db.transaction(self.pool) as tx:
            if permanent:
                await store.finish(tx, message, state="failed", error=text)
                return
            delay_s = RETRY.delay_s(
                message.attempts - 1, chance=backoff.chance(), retry_after_s=error.retry_after_s
            )
            await store.put_off(tx, message, delay_s=delay_s, error=text)
