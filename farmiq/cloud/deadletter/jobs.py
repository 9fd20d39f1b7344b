"""Dead letters without a person: what may go back goes, the rest opens an episode (D-456, D-457).

dlq queues --> [deadletter] --their cause is over--> the queues they came from, dead_letter_actions
                            --all others--> alert_episodes, cause deadletters:{queue};
                                            dead_letter_groups, for pages
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import aiormq
import psycopg

from farmiq.cloud import bus, episodes
from farmiq.cloud.deadletter import handlers, rules, store
from farmiq.cloud.deadletter.handlers import Letters, Order
from farmiq.cloud.deadletter.rules import BusDeadLetter, BusFilter, Group, Remaining
from farmiq.cloud.episodes import Ending, NewEpisode
from farmiq.config import CloudSettings
from farmiq.plumbing import db, log
from farmiq.plumbing.bus import amqp, consume
from farmiq.plumbing.bus.consume import Inbox
from farmiq.plumbing.bus.delivery import Delivery

ACTOR = "system"
EVERY_S = 15.0
# In one look at one queue.
MAX_READ = 20_000
MAX_REDRIVEN = 1_000
RATE_PER_S = 50.0
# Letters that somebody just lists are not gone: an episode ends when none was seen for so long.
GONE_S = 60.0
# An episode that goes on is said to go on; one that was held back may then be told.
REFRESH_S = 300.0
# Renewed when it was returned so often: some brokers drop a message at twenty times.
RENEW_AT = 10
ORDER = Order(
    "redrive", BusFilter(), ACTOR, MAX_REDRIVEN, RATE_PER_S, dry_run=False, automatic=True
)


@dataclass(slots=True)
class Look:
    """What one look at a queue found. `depth` is how many it left there.

    `remaining` is by tenant, None for letters of no company here; `groups` are the same letters by
    tenant and kind; `unknown` are tenants that they name; `again_at` is when another look is worth
    it though nothing changed.
    """

    depth: int = 0
    whole: bool = True
    redriven: int = 0
    remaining: dict[str | None, Remaining] = field(default_factory=dict)
    groups: dict[tuple[str | None, str], Group] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    again_at: datetime | None = None

    def wait_until(self, at: datetime) -> None:
        self.again_at = min(self.again_at or at, at)


class DeadLetterJob:
    def __init__(self, settings: CloudSettings, pool: db.Pool) -> None:
        self._url, self._tls = settings.amqp_url.get_secret_value(), settings.tls
        self._operator, self._pool = settings.operator_tenant, pool
        self._looks: dict[str, Look] = {}
        self._gone_since: dict[tuple[str, str], datetime] = {}
        self._refreshed_at: dict[str, datetime] = {}
        self._log = log.get("cloud-deadletter-service")

    async def run_once(self) -> dict[str, object]:
        """Look at each queue in which something changed, or may have to be done."""
        try:
            async with store.exclusive(self._pool, wait_s=0.0):
                return {"redriven": await self._look_after_all()}
        except psycopg.errors.LockNotAvailable:
            return {}  # somebody moves letters now
        except amqp.UNAVAILABLE as error:
            self._log.warning("deadletter.bus_away", reason=amqp.why(error))
            return {}

    async def _look_after_all(self) -> int:
        async with db.transaction(self._pool) as tx:
            tenants = await store.tenants(tx)
        depths = await amqp.depths(self._url, rules.QUEUES, tls=self._tls)
        redriven = 0
        for queue, depth in depths.items():
            now = datetime.now(UTC)
            look = self._looks.get(queue)
            if look is None or self._has_changed(look, depth, tenants, now):
                look = await self._look(queue, depth, tenants, now)
                self._looks[queue] = look
                redriven += look.redriven
            elif not self._needs_report(queue, look, now):
                continue
            await self._report(queue, look, tenants, datetime.now(UTC))
        return redriven

    def _has_changed(self, look: Look, depth: int, tenants: Collection[str], now: datetime) -> bool:
        is_time = look.again_at is not None and look.again_at <= now
        return look.depth != depth or is_time or not look.unknown.isdisjoint(tenants)

    def _needs_report(self, queue: str, look: Look, now: datetime) -> bool:
        if any(of == queue for of, _ in self._gone_since):
            return True
        refreshed_at = self._refreshed_at.get(queue)
        is_old = refreshed_at is None or now - refreshed_at >= timedelta(seconds=REFRESH_S)
        return bool(look.remaining) and is_old

    async def _look(self, queue: str, depth: int, tenants: Collection[str], now: datetime) -> Look:
        """Read the letters, redrive what may go, count the rest by tenant."""
        look = Look()
        if queue == bus.UNROUTED_QUEUE:
            # Nothing is wrong with these: an operator of the cloud has to bind a queue.
            look.depth = depth
            if depth:
                look.remaining.setdefault(None, Remaining()).add(rules.UNWANTED, depth)
                look.groups[None, rules.UNWANTED] = Group(queue, rules.UNWANTED, depth)
            return look
        if not depth:
            return look
        read = 0
        async with amqp.connection(self._url, name="dead-letters", tls=self._tls) as opened:
            outbox = await consume.confirming(opened)
            async for inbox, window in consume.browse(opened, queue):
                letters = [(rules.read(queue, delivery), delivery) for delivery in window]
                go, stay = _divided(letters, look, tenants, now)
                failed = await self._redrive(outbox, inbox, go, look)
                for letter, delivery in (*stay, *failed):
                    _count(look, letter, delivery.body, tenants)
                    if delivery.returned >= RENEW_AT:
                        await handlers.renew(outbox, inbox, letter, delivery)
                read += len(window)
                if read >= MAX_READ:
                    look.whole = False
                    break
        look.depth = depth - look.redriven
        return look

    async def _redrive(
        self, outbox: aiormq.abc.AbstractChannel, inbox: Inbox, letters: Letters, look: Look
    ) -> Letters:
        """Redrive these letters; returns those that could not be sent."""
        failed = []
        moving = handlers.move_letters(outbox, inbox, self._pool, ORDER, letters)
        at = 0
        async for outcome in moving:
            if outcome.why is None:
                look.redriven += 1
            else:
                failed.append(letters[at])
                look.wait_until(datetime.now(UTC) + timedelta(seconds=REFRESH_S))
            at += 1
        return failed

    async def _report(
        self, queue: str, look: Look, tenants: Collection[str], now: datetime
    ) -> None:
        """Open or refresh an episode for each owner of letters, and end those of who has none."""
        cause = f"deadletters:{queue}"
        owners: dict[str, Remaining] = {}
        for tenant_id, remaining in look.remaining.items():
            owner = tenant_id or self._operator
            if owner is None or owner not in tenants:
                self._log.warning("deadletter.unowned", queue=queue, count=remaining.count)
                continue
            owned = owners.setdefault(owner, Remaining())
            for kind, count in remaining.kinds.items():
                owned.add(kind, count)
        async with db.transaction(self._pool) as tx:
            await store.replace_groups(tx, queue, self._owned(look, tenants), whole=look.whole)
            await episodes.raise_episodes(
                tx,
                [
                    _episode(
                        queue,
                        cause,
                        owner,
                        remaining,
                        now,
                        all_tenants=owner == self._operator and None in look.remaining,
                    )
                    for owner, remaining in owners.items()
                ],
            )
            gone = (await store.open_episodes(tx, cause)) - owners.keys() if look.whole else ()
            await episodes.resolve_all(tx, self._endings(queue, cause, gone, look, now))
        self._refreshed_at[queue] = now

    def _owned(self, look: Look, tenants: Collection[str]) -> list[tuple[str, Group, bool]]:
        """The groups, each with the tenant whose people see it, and whether it is of no company."""
        operator = self._operator if self._operator in tenants else None
        owned = []
        for (tenant_id, _), group in look.groups.items():
            if owner := tenant_id or operator:
                owned.append((owner, group, tenant_id is None))
        return owned

    def _endings(
        self, queue: str, cause: str, gone: Collection[str], look: Look, now: datetime
    ) -> list[Ending]:
        """The episodes of tenants without a letter for long enough."""
        for key in [key for key in self._gone_since if key[0] == queue and key[1] not in gone]:
            del self._gone_since[key]
        endings = []
        for tenant_id in gone:
            since = self._gone_since.setdefault((queue, tenant_id), now)
            if now - since >= timedelta(seconds=GONE_S):
                endings.append(Ending(tenant_id, cause, now, 0.0))
                del self._gone_since[queue, tenant_id]
            else:
                look.wait_until(since + timedelta(seconds=GONE_S))
        return endings


def _divided(
    letters: Letters, look: Look, tenants: Collection[str], now: datetime
) -> tuple[Letters, Letters]:
    """The letters that go now, and those that wait for a person; others wait for their time."""
    go: list[tuple[BusDeadLetter, Delivery]] = []
    stay: list[tuple[BusDeadLetter, Delivery]] = []
    for item in letters:
        at = rules.redrive_at(item[0], tenants)
        if at is None:
            stay.append(item)
        elif at <= now and look.redriven + len(go) < MAX_REDRIVEN:
            go.append(item)
        else:
            look.wait_until(max(at, now))
    return go, stay


def _count(look: Look, letter: BusDeadLetter, body: bytes, tenants: Collection[str]) -> None:
    owner = letter.tenant_id if letter.tenant_id in tenants else None
    kind = look.remaining.setdefault(owner, Remaining()).add(letter.kind)
    group = look.groups.setdefault((owner, kind), Group(letter.queue, kind))
    group.add(letter)
    # Operators of the cloud learn nothing about other companies.
    if owner is not None:
        group.show(letter, body)
    if owner is None and letter.tenant_id is not None and len(look.unknown) < MAX_READ:
        look.unknown.add(letter.tenant_id)


def _episode(
    queue: str, cause: str, owner: str, remaining: Remaining, now: datetime, *, all_tenants: bool
) -> NewEpisode:
    tenant_id = None if all_tenants else owner
    return NewEpisode(
        tenant_id=owner,
        cause=cause,
        source="cloud",
        severity="warning",
        subject=queue,
        message=remaining.message(queue, tenant_id=tenant_id),
        opened_at=now,
        last_at=now,
        value=float(remaining.count),
    )
