"""Dead letters of the bus, for people to list, redrive and discard; how full the queues are.

farmiq.*.dlq.queue, unrouted.queue, dead_letter_orders --> [deadletter] --the queues they came from,
dead_letter_actions--> consumers; --alert_episodes, dead_letter_groups, bus_queues--> people
"""

import asyncio
from datetime import timedelta

from farmiq.cloud import retentions
from farmiq.cloud.deadletter import jobs, orders
from farmiq.cloud.deadletter.api import Api
from farmiq.cloud.deadletter.jobs import DeadLetterJob
from farmiq.cloud.deadletter.orders import Orders
from farmiq.cloud.deadletter.watch import Watch
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http, retention
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.schedule import Job

NAME = "cloud-deadletter-service"


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    url = settings.db_url.get_secret_value()
    async with db.pool(url, name=NAME, min_size=0, timeout_s=3.0) as pool:
        sign_ins = SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))
        Api(settings.amqp_url.get_secret_value(), pool, sign_ins, settings.tls).add_to(server.app)
        watch = Watch(settings, pool)
        server.ready("deadletter.bus", watch.problem)
        letters = DeadLetterJob(settings, pool)
        async with asyncio.TaskGroup() as group:
            group.create_task(watch.run())
            for job in (
                Job("deadletter.redrive", jobs.EVERY_S, letters.run_once),
                Job("deadletter.orders", orders.EVERY_S, Orders(settings, pool, letters).run_once),
                retention.job(pool, retentions.dead_letter_orders(), name="deadletter.forget"),
            ):
                group.create_task(schedule.run_repeatedly(job))
