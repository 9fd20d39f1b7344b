"""Reports: what is due is made as PDF and handed to the outbox of messages.

report_subscriptions, kpi_daily, batch_days, alert_episodes, barn_events --> [reports]
--reports, alert_messages--> cloud-notification-service --> mail servers
"""

import asyncio

from farmiq.cloud.reports.jobs import EVERY_S, Making
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http, retention
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.schedule import Job

NAME = "cloud-report-service"


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    async with db.pool(
        settings.db_url.get_secret_value(), name=NAME, min_size=0, max_size=2
    ) as pool:
        server.ready("reports.database", lambda: db.problem(pool))
        old = Retention("reports", "created_at", settings.report_days)
        async with asyncio.TaskGroup() as group:
            for job in (
                Job("reports.make", EVERY_S, Making(pool).make_due),
                retention.job(pool, old, name="reports.forget"),
            ):
                group.create_task(schedule.run_repeatedly(job))
