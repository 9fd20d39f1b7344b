"""Daily figures of batches: events mark days, marked days are computed again from tables.

farmiq.*.exchange --days.queue--> [analytics] --analytics_dirty_days, analytics_pending-->
weight_sessions, feed_events, barn_events, telemetry_agg, master data --> [analytics] --batch_days,
kpi_daily--> people, pages; --kpi.daily.updated--> farmiq.kpi.exchange --kpi.queue--> kpi_events
"""

import asyncio
from datetime import timedelta
from functools import partial

from farmiq.cloud import bus, sink
from farmiq.cloud.analytics import handlers
from farmiq.cloud.analytics.api import Api
from farmiq.cloud.analytics.forecast import ForecastApi
from farmiq.cloud.analytics.jobs import Recomputation
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.cloud.sink import Sink
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime import clock, schedule
from farmiq.plumbing.runtime.schedule import Job

NAME = "cloud-analytics-service"
EVERY_S = 1.0
CLOCK_S = 5.0
# An event that its own service has not stored by then is among the dead letters for good.
PENDING_DAYS = 90

KPI = Sink("kpi", bus.KPI, sink.insert_into("kpi_events"))
DAYS = Sink(
    "days",
    bus.DAYS,
    handlers.mark_events,
    retention=lambda _: Retention("analytics_pending", "received_at", PENDING_DAYS),
)


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    amqp_url = settings.amqp_url.get_secret_value()
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME, min_size=0, max_size=6) as pool,
        amqp.publisher(
            amqp_url, name=NAME, topology=bus.part(bus.KPI, settings.bus_retry_s), tls=settings.tls
        ) as publisher,
    ):
        sign_ins = SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))
        Api(sign_ins).add_to(server.app)
        ForecastApi(sign_ins).add_to(server.app)
        work = Recomputation(pool, publisher, settings.bus_timeout_s)
        async with asyncio.TaskGroup() as group:
            group.create_task(sink.run(settings, server, KPI, DAYS))
            for name, do in (("pending", work.mark_pending), ("recompute", work.recompute)):
                job = Job(f"analytics.{name}", EVERY_S, do)
                group.create_task(schedule.run_repeatedly(job))
            waits = ("analytics_dirty_days", "due_at"), ("analytics_pending", "next_look_at")
            reset = partial(clock.reset_far_future, pool, *waits)
            group.create_task(schedule.run_repeatedly(Job("analytics.clock", CLOCK_S, reset)))
