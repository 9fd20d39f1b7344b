"""Makes the reports that are due and puts them into the outbox: each once.

A report and its mail are committed together, one for each subscription and period. Who dies before
that makes it again; after that the mail is in the outbox, which sends it (cloud/notification).
"""

import time
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import prometheus_client

from farmiq import crash
from farmiq.cloud.clocks import edges_agree
from farmiq.cloud.reports import files, periods, store
from farmiq.cloud.reports.periods import Period
from farmiq.cloud.reports.store import Subscription
from farmiq.plumbing import db, log
from farmiq.plumbing.runtime.clock import AgeGuard
from farmiq.plumbing.runtime.schedule import Job
from farmiq.ui import words

EVERY_S = 30.0
# Of one round: the others come in the next one.
MAX_AT_ONCE = 50
# When one that could not be made is tried again.
AGAIN_S = 600.0

MADE = prometheus_client.Counter("farmiq_reports_total", "Reports that were due", ["outcome"])


@dataclass
class ReportJob:
    pool: db.Pool
    # By subscription: when it is tried again.
    failed: dict[UUID, float] = field(default_factory=dict)

    def job(self) -> Job:
        """Not after the clock has jumped: a period that is not over would have its report."""
        guard = AgeGuard(self.pool, "reports.make")
        return Job("reports.make", EVERY_S, guard.guard(self.make_due, agrees=edges_agree))

    async def make_due(self) -> dict[str, object]:
        async with db.transaction(self.pool) as tx:
            listed, now = await store.subscriptions(tx), await store.now(tx)
        began_s = time.monotonic()
        self.failed = {key: at_s for key, at_s in self.failed.items() if at_s > began_s}
        wanted = [
            (subscription, period)
            for subscription in listed
            if subscription.subscription_id not in self.failed
            and (period := due(subscription, now=now)) is not None
        ]
        made = 0
        for subscription, period in wanted[:MAX_AT_ONCE]:
            try:
                made += await self._make(subscription, period, now)
            except db.UNAVAILABLE:
                raise
            except Exception as error:  # noqa: BLE001 - logged, and tried again
                MADE.labels(outcome="failed").inc()
                self.failed[subscription.subscription_id] = began_s + AGAIN_S
                log.get("reports").error(
                    "reports.not_made", tenant_id=subscription.tenant_id,
                    name=str(subscription.subscription_id), error=db.first_line(error),
                    exc_info=True,
                )  # fmt: skip
        return {"made": made}

    async def _make(self, subscription: Subscription, period: Period, now: datetime) -> bool:
        tenant_id, subject = subscription.tenant_id, subscription.subject
        async with db.transaction(self.pool) as tx:
            gathered = await files.gather(tx, tenant_id, subject, period, now=now)
        file = None
        if gathered is not None and not gathered.is_empty:
            file = await files.drawn(gathered, language=subscription.language)
        crash.here("reports.after_draw")
        async with db.transaction(self.pool) as tx:
            report_id = await store.add_report(
                tx,
                tenant_id,
                subject,
                period,
                file=file,
                address=subscription.address,
                language=subscription.language,
                subscription_id=subscription.subscription_id,
                by=subscription.created_by,
            )
            crash.here("reports.before_commit")
        crash.here("reports.after_commit")
        MADE.labels(outcome="made" if file else "empty").inc()
        return report_id is not None and file is not None


def due(subscription: Subscription, *, now: datetime) -> Period | None:
    """The period whose report this subscription waits for.

    After a long outage only the newest: nobody wants the reports of ten weeks at once.
    """
    zone = words.zone(subscription.timezone)
    period = periods.latest_due(subscription.period, now=now, zone=zone)
    if period.due_at(zone) <= subscription.created_at:
        return None
    if subscription.made_of is not None and subscription.made_of >= period.first:
        return None
    return period
