"""Console: sign-in, and live pages of the latest readings, weighings and sites.

telemetry_latest, telemetry_readings, telemetry_agg,
device_events, weight_sessions, weighvision_events, media_objects,
site_device_sessions, expected_wakes, device_wake_payloads, device_images, devices
--with the rights of the person--> [console] --HTML, SSE, JSON--> browsers, programs
"""

import asyncio
from datetime import timedelta

from farmiq.cloud import camera_images
from farmiq.cloud.console import pages
from farmiq.cloud.console.account.routes import AccountPages
from farmiq.cloud.console.alerts.routes import AlertPages
from farmiq.cloud.console.alerts.rule_routes import RulePages
from farmiq.cloud.console.batches.routes import BatchPages
from farmiq.cloud.console.company.cookies import Cookies
from farmiq.cloud.console.company.routes import CompanyPages
from farmiq.cloud.console.dead_letters.routes import DeadLetterPages
from farmiq.cloud.console.delivery.routes import DeliveryPages
from farmiq.cloud.console.design.routes import DesignPages
from farmiq.cloud.console.devices.routes import DevicePages
from farmiq.cloud.console.dishes.routes import DishPages
from farmiq.cloud.console.entry.barns import BarnForms
from farmiq.cloud.console.entry.batches import BatchForms
from farmiq.cloud.console.entry.routes import EntryPages
from farmiq.cloud.console.feed.routes import FeedPages
from farmiq.cloud.console.notifications.routes import NotificationPages
from farmiq.cloud.console.programs.routes import ProgramPages
from farmiq.cloud.console.reports.routes import ReportPages
from farmiq.cloud.console.schedules.routes import SchedulePages
from farmiq.cloud.console.settings.audit.routes import AuditPages
from farmiq.cloud.console.settings.companies.routes import CompaniesPages
from farmiq.cloud.console.settings.edges.routes import EdgePages
from farmiq.cloud.console.settings.farms.routes import FarmPages
from farmiq.cloud.console.settings.people.routes import PeoplePages
from farmiq.cloud.console.settings.routes import SettingsPages
from farmiq.cloud.console.sites.routes import SitePages
from farmiq.cloud.console.telemetry.routes import TelemetryPages
from farmiq.cloud.console.today.routes import TodayPages
from farmiq.cloud.console.weighings.routes import WeighingPages
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http, sealing
from farmiq.plumbing.addresses import Allowed
from farmiq.plumbing.runtime.schedule import run_repeatedly
from farmiq.ui import live

NAME = "cloud-console"


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    url = settings.db_url.get_secret_value()
    hub = live.Hub()
    async with db.pool(url, name=NAME, timeout_s=3) as pool:
        lasts = timedelta(hours=settings.sign_in_hours)
        key_file = settings.secrets_key_file
        sealer = None if key_file is None else sealing.read(key_file)
        sign_ins = SignIns(pool, lasts=lasts, sealer=sealer)
        cookies = Cookies(settings.cookie_secure, int(lasts.total_seconds()))
        console_pages = pages.Pages(sign_ins, hub)
        patience_s = 60 * settings.weighvision_incomplete_min
        for area in (
            console_pages,
            DesignPages(console_pages),
            EntryPages(console_pages),
            BarnForms(console_pages),
            BatchForms(console_pages),
            BatchPages(console_pages),
            FeedPages(console_pages),
            TodayPages(console_pages),
            CompanyPages(console_pages, cookies),
            AccountPages(console_pages, cookies),
            ReportPages(console_pages),
            TelemetryPages(console_pages),
            WeighingPages(console_pages, patience_s),
            SitePages(console_pages, camera_images.gallery(settings)),
            DishPages(console_pages, camera_images.gallery(settings)),
            SchedulePages(console_pages),
            DevicePages(console_pages),
            ProgramPages(console_pages),
            DeliveryPages(console_pages),
            DeadLetterPages(console_pages),
            SettingsPages(console_pages, settings),
            PeoplePages(console_pages),
            FarmPages(console_pages),
            CompaniesPages(console_pages),
            EdgePages(console_pages, settings.public_url),
            AuditPages(console_pages),
            RulePages(console_pages),
            AlertPages(console_pages),
            NotificationPages(console_pages, sealer, Allowed.read(settings.alert_private_hosts)),
        ):
            area.add_to(server.app)
        server.ready("console.database", lambda: db.problem(pool))
        server.ready("console.live", lambda: None if hub.listening else "hears no changes")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(live.run(url, hub, name=NAME))
                group.create_task(hub.close_when(server.stopping))
                group.create_task(run_repeatedly(sign_ins.purge_job()))
        finally:
            hub.close()
