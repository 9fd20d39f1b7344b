"""Accounts: programs, sites and cameras, their wakes and figures, for people and programs.

programs, sites, devices, site_device_sessions, device_wake_payloads, device_images, device_alerts
--as the person who asks--> [accounts] --JSON--> pages, programs
people --programs, sites, devices, schedule changes, resends--> [accounts] --> the same tables
"""

from datetime import timedelta

from farmiq.cloud import camera_images
from farmiq.cloud.camera.accounts.api import Api
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http

NAME = "cloud-camera-accounts"


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    url = settings.db_url.get_secret_value()
    async with db.pool(url, name=NAME, min_size=0, timeout_s=3.0) as pool:
        sign_ins = SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))
        Api(sign_ins, camera_images.gallery(settings)).add_to(server.app)
        server.ready("camera.accounts", lambda: db.problem(pool))
        await server.stopping.wait()
