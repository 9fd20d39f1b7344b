"""Dead letters of the bus, for people to list, redrive and discard; how full the queues are.

farmiq.*.dlq.queue, unrouted.queue --> [deadletter] --the queues they came from,
dead_letter_actions--> consumers
"""

from datetime import timedelta

from farmiq.cloud.deadletter.api import Api
from farmiq.cloud.deadletter.watch import Watch
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http

NAME = "cloud-deadletter-service"


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    url = settings.db_url.get_secret_value()
    async with db.pool(url, name=NAME, min_size=0, timeout_s=3.0) as pool:
        sign_ins = SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))
        Api(settings.amqp_url.get_secret_value(), pool, sign_ins, settings.tls).add_to(server.app)
        watch = Watch(settings)
        server.ready("deadletter.bus", watch.problem)
        await watch.run()
