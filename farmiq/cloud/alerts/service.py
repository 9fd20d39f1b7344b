"""Alerts: rules over what arrives and what does not, edges' and cameras' alerts, as episodes.

telemetry_readings --alert_readings--> [alerts] --alert_states, alert_rechecks, alert_episodes-->
farmiq.telemetry.exchange (buckets), farmiq.kpi.exchange --signals.queue--> [alerts] --alert_states,
alert_rechecks, alert_episodes-->
farmiq.edge.exchange --edge.queue--> [alerts] --alert_episodes-->
the clock, edge_heartbeats, device_alerts, weighvision_events, fn_feed_stock, dead_letter_groups
--> [alerts] --alert_values, alert_episodes, alert_steps--> people, cloud-notification-service

A value is taken into the state of its series in the transaction that acknowledges it, a reading in
the one that deletes its row of alert_readings. After late readings a series is evaluated again from
the tables. One job decides whom to notify.
"""

import asyncio
from datetime import timedelta
from functools import partial

from farmiq.cloud import bus, retentions, sink
from farmiq.cloud.alerts import jobs
from farmiq.cloud.alerts.api import Api
from farmiq.cloud.alerts.episodes import edge_alerts
from farmiq.cloud.alerts.evaluating.book import RuleBook
from farmiq.cloud.alerts.evaluating.readings import Readings
from farmiq.cloud.alerts.evaluating.rechecks import Rechecks
from farmiq.cloud.alerts.evaluating.signals import Signals
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.cloud.sink import Sink
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http, retention
from farmiq.plumbing.runtime import clock, schedule
from farmiq.plumbing.runtime.schedule import Job

NAME = "cloud-alerts-service"
RECHECK_S = 0.5
CLOCK_S = 5.0
# Readings of a second are evaluated together: a series costs about the same for one and for ten.
READINGS_S = 1.0

EDGE = Sink("edge", bus.EDGE, edge_alerts.store_edge_alerts)


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    url = settings.db_url.get_secret_value()
    async with db.pool(url, name=NAME, min_size=0, max_size=8) as pool:
        book = RuleBook(pool)
        signals = Signals(book)
        work = Sink("alerts", bus.ALERTS, signals.store, select=signals.select)
        Api(SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))).add_to(server.app)
        async with asyncio.TaskGroup() as group:
            group.create_task(sink.run(settings, server, work, EDGE))
            group.create_task(book.listen(url, name=NAME))
            rechecks = Job("alerts.rechecks", RECHECK_S, Rechecks(pool, book).run)
            readings = Job("alerts.readings", READINGS_S, Readings(pool, book).run)
            waits = ("alert_readings", "due_at"), ("alert_rechecks", "due_at")
            reset = Job("alerts.clock", CLOCK_S, partial(clock.reset_far_future, pool, *waits))
            for job in (readings, rechecks, reset, *jobs.Looks(pool, book).all()):
                group.create_task(schedule.run_repeatedly(job))
            for rows in retentions.alerts(settings):
                job = retention.job(pool, rows, name=f"alerts.forget_{rows.table}")
                group.create_task(schedule.run_repeatedly(job))
