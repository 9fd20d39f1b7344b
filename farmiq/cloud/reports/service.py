"""Reports: what is due is made as PDF and handed to the outbox of messages.

report_subscriptions, kpi_daily, batch_days, alert_episodes, barn_events --> [reports]
--reports, alert_messages--> cloud-notification-service --> mail servers
"""

import asyncio

from farmiq.cloud import retentions
from farmiq.cloud.reports.jobs import ReportJob
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http, retention
from farmiq.plumbing.runtime import schedule

NAME = "cloud-reports-service"


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    async with db.pool(
        settings.db_url.get_secret_value(), name=NAME, min_size=0, max_size=2
    ) as pool:
        server.ready("reports.database", lambda: db.problem(pool))
        async with asyncio.TaskGroup() as group:
            for job in (
                ReportJob(pool).job(),
                retention.job(pool, retentions.reports(settings), name="reports.forget"),
            ):
                group.create_task(schedule.run_repeatedly(job))
