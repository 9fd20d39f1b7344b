"""Dead letters of the bus, for people to list, redrive and discard; how full the queues are.

farmiq.*.dlq.queue, unrouted.queue --> [deadletter] --the queues they came from,
dead_letter_actions--> consumers; --alert_episodes--> people
"""

import asyncio
from datetime import timedelta

from farmiq.cloud.deadletter import jobs
from farmiq.cloud.deadletter.api import Api
from farmiq.cloud.deadletter.jobs import DeadLetterJob
from farmiq.cloud.deadletter.watch import Watch
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.schedule import Job

NAME = "cloud-deadletter-service"


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    url = settings.db_url.get_secret_value()
    async with db.pool(url, name=NAME, min_size=0, timeout_s=3.0) as pool:
        sign_ins = SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))
        Api(settings.amqp_url.get_secret_value(), pool, sign_ins, settings.tls).add_to(server.app)
        watch = Watch(settings)
        server.ready("deadletter.bus", watch.problem)
        job = Job("deadletter.redrive", jobs.EVERY_S, DeadLetterJob(settings, pool).run_once)
        async with asyncio.TaskGroup() as group:
            group.create_task(watch.run())
            group.create_task(schedule.run_repeatedly(job))
