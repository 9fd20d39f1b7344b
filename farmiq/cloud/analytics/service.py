"""Analytics in the cloud: key figures of the day, as announced.

farmiq.kpi.exchange --kpi.queue--> [analytics] --kpi_events-->
"""

from farmiq.cloud import bus, landing
from farmiq.cloud.landing import Landing
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-analytics-service"

LANDING = Landing("kpi", bus.KPI, landing.in_table("kpi_events"))


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    await landing.run(settings, server, LANDING)
