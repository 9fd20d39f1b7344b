"""Alerts reach people: steps of episodes become messages, messages are sent over channels.

alert_steps --> [notification] --alert_messages--> mail, webhooks, ntfy, Telegram, short messages,
web push; people --/alerts/ack/…--> alert_episodes; people --PUT--> alert_channels, alert_contacts
"""

import asyncio
import ssl
from datetime import timedelta

from farmiq.cloud import retentions
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.cloud.notification.acknowledgement import AckPage
from farmiq.cloud.notification.api import Api
from farmiq.cloud.notification.sending.jobs import EVERY_S, Delivery, Routing
from farmiq.cloud.notification.sending.senders import Senders
from farmiq.config import CloudSettings
from farmiq.config.settings import secret
from farmiq.plumbing import db, http, retention, sealing
from farmiq.plumbing.addresses import Allowed
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.schedule import Job
from farmiq.plumbing.tls import Tls

NAME = "cloud-notification-service"
ESCALATE_EVERY_S = 5.0
CLOCK_S = 5.0


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    key_file = settings.secrets_key_file
    sealer = None if key_file is None else sealing.read(key_file)
    allowed = Allowed.read(settings.alert_private_hosts)
    async with db.pool(
        settings.db_url.get_secret_value(), name=NAME, min_size=0, max_size=8
    ) as pool:
        sign_ins = SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))
        Api(sign_ins, sealer, allowed).add_to(server.app)
        AckPage(pool, sealer).add_to(server.app)
        server.ready("notification.database", lambda: db.problem(pool))
        routing = Routing(pool)
        delivery = Delivery(
            pool,
            Senders(
                secret(settings.alert_smtp_url),
                settings.alert_mail_from,
                allowed,
                _trusting(settings.tls),
            ),
            sealer,
            settings.public_url,
            settings.alert_mails_per_hour,
        )
        old = retentions.alert_messages(settings)
        async with asyncio.TaskGroup() as group:
            group.create_task(delivery.run())
            for job in (
                Job("notification.route", EVERY_S, routing.route),
                Job("notification.escalate", ESCALATE_EVERY_S, routing.escalate),
                Job("notification.clock", CLOCK_S, routing.reset_far_future),
                retention.job(pool, old, name="notification.forget"),
                retention.job(
                    pool, retentions.alert_mail_counts(), name="notification.forget_counts"
                ),
            ):
                group.create_task(schedule.run_repeatedly(job))


def _trusting(tls: Tls) -> ssl.SSLContext:
    """Receivers are on the internet: the authority of our own servers is trusted besides."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.ca_file is not None:
        context.load_verify_locations(tls.ca_file)
    return context
