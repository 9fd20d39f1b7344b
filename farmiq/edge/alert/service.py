"""Local alerts: rules on the edge's own readings, a siren, the edge's own mail. No internet needed.

telemetry_raw, cloud_contexts --> [alert] --alerts, sync_outbox--> sync --> cloud
                                     |---> mqtt ALERT_SIREN_TOPIC, ALERT_SIREN_COMMAND
                                     '---> ALERT_SMTP_URL

Rules come with the cloud's master data (C-114); before the first copy those that ship are used.
"""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from zoneinfo import ZoneInfo

from farmiq.config import EdgeSettings
from farmiq.edge.alert import siren
from farmiq.edge.alert.evaluation import Evaluation
from farmiq.edge.alert.mails import Post
from farmiq.edge.daily import retention_job
from farmiq.plumbing import db, http, ids
from farmiq.plumbing.messaging import mqtt
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime.clock import AgeGuard
from farmiq.plumbing.runtime.schedule import Job, run_repeatedly

NAME = "edge-alert-rules"


async def run(settings: EdgeSettings, server: http.HttpServer) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME) as pool,
        AsyncExitStack() as opened,
        asyncio.TaskGroup() as group,
    ):
        server.ready("alert.database", lambda: db.problem(pool))
        broker = None
        if settings.siren_topic is not None:
            broker = await opened.enter_async_context(
                mqtt.connected(
                    settings.mqtt_url.get_secret_value(),
                    client_id=f"{NAME}-{ids.new().hex[-12:]}",
                    persistent_session=False,
                    tls=settings.tls,
                )
            )
            server.note("alert.broker", broker.problem)
        for job in _jobs(settings, pool, broker):
            group.create_task(run_repeatedly(job))


def _jobs(settings: EdgeSettings, pool: db.Pool, broker: mqtt.Client | None) -> list[Job]:
    post = Post(settings)
    evaluation = Evaluation(pool, ZoneInfo(settings.timezone), post)
    jobs = [
        Job("alert.rules", settings.alert_round_s, evaluation.look),
        Job("alert.siren", siren.ROUND_S, siren.Siren(pool, settings, broker).look),
        retention_job(
            pool,
            settings,
            "alert.retention",
            Retention("alert_mails", "created_at", settings.alert_days),
        ),
    ]
    if post.is_configured:
        jobs.append(
            Job(
                "alert.mail",
                siren.ROUND_S,
                partial(post.send_due, pool, AgeGuard(pool, "alert.mail")),
            )
        )
    return jobs
