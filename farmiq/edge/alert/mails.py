"""The edge's own mail: one when a local alert opens, one when it resolves; tried until accepted.

Each receiver has a mail of their own: an address that is refused keeps it from nobody else, and is
not tried again if it is refused for good. A mail that was sent, but not marked as sent before a
crash, is sent again with the same Message-ID.
"""

from dataclasses import dataclass

from prometheus_client import Counter

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.config.settings import secret
from farmiq.edge.alert import store
from farmiq.plumbing import db, ids, log, mail
from farmiq.plumbing.backoff import chance
from farmiq.plumbing.retry import RetryPolicy
from farmiq.plumbing.runtime.clock import NO_AGE_DAYS, AgeGuard

# People at other times know more than a mail of yesterday.
GIVE_UP_HOURS = 24.0
RETRY = RetryPolicy(5.0, 300.0)
RESOLVED = "resolved: "
SEVERITIES = ("info", "warning", "critical")

MAILS = Counter("farmiq_local_alert_mails_total", "Attempts to mail a local alert", ["outcome"])


def at_least(severity: str) -> tuple[str, ...]:
    """The severity and the more urgent ones."""
    return SEVERITIES[SEVERITIES.index(severity) :]


@dataclass(frozen=True)
class Post:
    """Writes mails in the transaction of what they are about, and sends them later."""

    settings: EdgeSettings

    @property
    def is_configured(self) -> bool:
        return self.settings.alert_smtp_url is not None

    async def call(self, tx: db.Connection) -> None:
        """Write what is due about what is open: at once, or when what held it back is over."""
        if self.is_configured:
            for alert in await store.note_mailed(tx, at_least(self.settings.alert_mail_severity)):
                headline = f"{alert.severity}: {alert.message}"
                await self._add(tx, alert.kind, alert.subject, headline, alert.message)

    async def resolved(self, tx: db.Connection, *, kind: str, subject: str, message: str) -> None:
        """Write that what people were mailed about is over."""
        if self.is_configured:
            rule = message.partition(": ")[0]
            await self._add(tx, kind, subject, f"{RESOLVED}{rule}", f"Resolved: {message}")

    async def _add(
        self, tx: db.Connection, kind: str, subject: str, headline: str, message: str
    ) -> None:
        body = (
            f"{message}\n\nAlert {kind} of {subject}\n"
            f"From the edge {self.settings.edge_cluster_id} itself, with or without internet.\n"
            "The siren is silenced at the edge: farmiq alert silence\n"
        )
        for receiver in dict.fromkeys(self.settings.alert_mail_receivers):
            await store.add_mail(
                tx, ids.new(), receiver=receiver, kind=kind, subject=subject, headline=headline,
                body=body,
            )  # fmt: skip

    async def send_due(self, pool: db.Pool, guard: AgeGuard) -> dict[str, object]:
        """Send what is due, one after the other, until one has to be tried again."""
        sent = 0
        while (accepted := await self._send_one(pool, guard)) is not None:
            sent += accepted
        return {"sent": sent} if sent else {}

    async def _send_one(self, pool: db.Pool, guard: AgeGuard) -> bool | None:
        """Whether a mail was accepted or refused for good; None if there is nothing to do now."""
        async with db.transaction(pool) as tx:
            due = await store.next_mail(tx)
            if due is None:
                return None
            problem = await self._attempt(due)
            if problem is None:
                crash.here("alert.after_mail")
                await store.mail_sent(tx, due.mail_id)
                MAILS.labels(outcome="sent").inc()
                return True
            # Nothing is old by a clock that has jumped.
            hours = NO_AGE_DAYS * 24 if await guard.look() else GIVE_UP_HOURS
            wait_s = RETRY.delay_s(due.attempts, chance=chance())
            has_given_up = await store.mail_failed(
                tx, due.mail_id, error=str(problem), is_permanent=problem.permanent,
                wait_s=wait_s, give_up_hours=hours,
            )  # fmt: skip
        outcome = "given_up" if has_given_up else "failed"
        MAILS.labels(outcome=outcome).inc()
        log.get("alert").warning(f"alert.mail_{outcome}", error=str(problem))
        return False if problem.permanent else None

    async def _attempt(self, due: store.Mail) -> mail.MailError | None:
        """Why the mail was not accepted, or None."""
        settings = self.settings
        url = secret(settings.alert_smtp_url)
        assert url is not None  # noqa: S101 - is_configured
        try:
            await mail.send(
                url,
                sender=settings.alert_mail_from or "",
                # One that was written before receivers had mails of their own is for all of them.
                to=[due.receiver] if due.receiver else settings.alert_mail_receivers,
                subject=f"[FarmIQ {settings.edge_cluster_id}] {due.headline}",
                text=due.body,
                message_id=str(due.mail_id),
            )
        except mail.MailError as error:
            return error
        except ValueError as error:
            return mail.MailError(str(error))
        return None
