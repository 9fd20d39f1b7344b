"""A farm with a batch and its figures, a company beside it, and a mail server on loopback."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import psycopg
import pytest

from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from farmiq.cloud.reports import periods
from farmiq.cloud.reports.periods import Period
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.support.mail_server import MailServer, mail_server

ANN = "ann@hill.farm"
ZONE = ZoneInfo("Asia/Bangkok")
AGE_DAYS = 30


@dataclass
class Site:
    """`tokens` by person: ann, viewer of hill; other, admin of dale."""

    database: Database
    tokens: dict[str, str]
    now: datetime

    @property
    def week(self) -> Period:
        """The newest week whose report is due."""
        return periods.latest_due("week", now=self.now, zone=ZONE)

    def run(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        """As the service."""
        with psycopg.connect(self.database.url) as connection:
            cursor = connection.execute(query.encode(), args or None)
            return cursor.fetchall() if cursor.description else []

    def ahead(self, text: str) -> None:
        """Move the clock of the database."""
        with psycopg.connect(self.database.admin_url) as connection:
            connection.execute(
                "insert into test_clock (ahead) values (%s) "
                "on conflict on constraint test_clock_pkey do update set ahead = excluded.ahead",
                (text,),
            )

    def fill(self, tenant_id: str) -> None:
        """A month of figures up to the end of the week: rows as cloud-analytics-service writes."""
        first = self.week.last - timedelta(days=AGE_DAYS)
        self.run(
            "insert into farms (tenant_id, farm_id, name, timezone) "
            "values (%s, 'f', 'Hillside', %s)",
            tenant_id, ZONE.key,
        )  # fmt: skip
        self.run(
            "insert into barns (tenant_id, farm_id, barn_id, name) values (%s, 'f', '1', 'Barn 1')",
            tenant_id,
        )
        self.run(
            "insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count, "
            "placed_on, age_at_placing_days) values (%s, 'b', 'f', '1', 'broiler', 1000, %s, 0)",
            tenant_id, first,
        )  # fmt: skip
        for age in range(AGE_DAYS + 1):
            self.day(tenant_id, first + timedelta(days=age), age)

    def day(self, tenant_id: str, on: date, age: int) -> None:
        figures = {
            "head_count": 1000.0 - age, "weight_mean": 0.05 + 0.05 * age, "weight_cv": 10.0,
            "intake_kg": 20.0 + age, "data_coverage": 90.0, "mortality_pct": age / 10,
        }  # fmt: skip
        for kind, value in figures.items():
            self.run(
                "insert into kpi_daily (tenant_id, farm_id, barn_id, batch_id, kpi_date, kpi_type, "
                "value, unit, source_event_count, expected_value, difference) "
                "values (%s, 'f', '1', 'b', %s, %s, %s, 'x', 20, %s, %s)",
                tenant_id, on, kind, value, value * 1.1, -value * 0.1,
            )  # fmt: skip
        self.run(
            "insert into batch_days (tenant_id, batch_id, kpi_date, dead, weighed_count, hours) "
            "values (%s, 'b', %s, %s, 20, 24)",
            tenant_id, on, float(age % 3),
        )  # fmt: skip

    def subscribe(self, address: str = ANN, *, batch_id: str | None = "b") -> UUID:
        """Long enough ago that the report of the week is due."""
        subscription_id = ids.new()
        self.run(
            "insert into report_subscriptions (tenant_id, subscription_id, farm_id, batch_id, "
            "period, address, language, created_at, created_by) "
            "values ('hill', %s, 'f', %s, 'week', %s, 'en', %s, 'ann')",
            subscription_id, batch_id, address, self.now - timedelta(days=20),
        )  # fmt: skip
        return subscription_id


@pytest.fixture
def site(cloud_db: Database) -> Site:
    tokens = {}
    with psycopg.connect(cloud_db.admin_url) as owner:
        for tenant_id, email, role in (
            ("hill", ANN, "viewer"),
            ("dale", "other@dale.farm", "admin"),
        ):
            company = add_company(owner, tenant_id, name=tenant_id.title())
            add_user(owner, email, company_id=company, password="long enough 1", role=role)
            name = email.partition("@")[0]
            tokens[name] = open_sign_in(owner, email, lasts=timedelta(days=1))
    with psycopg.connect(cloud_db.url) as connection:
        (now,) = connection.execute("select fn_now()").fetchone() or (None,)
    assert isinstance(now, datetime)
    made = Site(cloud_db, tokens, now)
    made.fill("hill")
    return made


@pytest.fixture
async def pool(site: Site) -> AsyncIterator[db.Pool]:
    async with db.pool(site.database.url, name="test", max_size=3) as made:
        yield made


@pytest.fixture
async def mailbox() -> AsyncIterator[MailServer]:
    async with mail_server() as made:
        yield made
