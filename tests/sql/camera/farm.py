"""The farm that tests of the cameras' accounts work on; the fixture `farm` gives one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from farmiq.plumbing import ids
from tests.conftest import Database
from tests.sql import two_companies
from tests.support import databases

Instant = str | datetime

_COUNTERS = """
select completed_wake_count, failed_wake_count, extra_wake_count
from site_device_sessions where session_id = %s
"""

_RECOUNT = """
select count(*) filter (where payload_status = 'complete'),
  count(*) filter (where payload_status = 'failed'), count(*) filter (where overage_flag)
from device_wake_payloads where site_device_session_id = %s
"""

_SINCE_MIDNIGHT = """
update device_assignments a
set assigned_at = fn_midnight(s.timezone, fn_local_date(s.timezone, fn_now()))
from sites s where s.site_id = a.site_id and a.device_id = %s
"""


@dataclass(frozen=True, slots=True)
class Farm:
    """`owner` writes tables as it likes, `service` is the login of services; both autocommit."""

    database: Database
    owner: psycopg.Connection
    service: psycopg.Connection
    company: UUID
    program: UUID

    @staticmethod
    def make(
        database: Database, owner: psycopg.Connection, service: psycopg.Connection,
        *, name: str = "farm",
    ) -> "Farm":  # fmt: skip
        company = add_company(owner, name, name=f"Company {name}")
        program = ids.new()
        owner.execute(
            "insert into pilot_programs (program_id, company_id, program_name, program_type)"
            " values (%s, %s, 'trial', 'experimental')",
            (program, company),
        )
        return Farm(database, owner, service, company, program)

    @classmethod
    @contextmanager
    def connected(cls, database: Database, *, at: Instant | None = None) -> "Iterator[Farm]":
        """A farm with connections of its owner and of the services, at this instant."""
        with (
            databases.connected(database.admin_url, autocommit=True) as owner,
            databases.connected(database.url, autocommit=True) as service,
        ):
            farm = cls.make(database, owner, service)
            if at is not None:
                farm.at(at)
            yield farm

    def at(self, instant: Instant) -> None:
        """From here on it is this instant, and time goes on from it."""
        self.owner.execute(
            "insert into test_clock (ahead) values (%s::timestamptz - now())"
            " on conflict on constraint test_clock_pkey do update set ahead = excluded.ahead",
            (instant,),
        )

    def now(self) -> datetime:
        found: datetime = self.value("select fn_now()")
        return found

    def site(self, timezone: str = "Asia/Bangkok", **columns: Any) -> UUID:
        site = ids.new()
        named = {"site_name": f"site {site}", "timezone": timezone, "program_id": self.program}
        self._insert("sites", {"site_id": site, **named, **columns})
        return site

    def device(
        self, site: UUID | None, cron: str | None = "0 8,16 * * *", *, put_now: bool = False,
        **columns: Any,
    ) -> UUID:  # fmt: skip
        """A camera; it stands where it is put since the site's midnight, or from now on."""
        device = ids.new()
        named = {
            "device_id": device,
            "site_id": site,
            "mac": device.hex[-12:].upper(),
            "device_name": f"device {device}",
            "wake_schedule_cron": cron,
        }
        self._insert("devices", {**named, **columns})
        if not put_now:
            self.owner.execute(_SINCE_MIDNIGHT.encode(), (device,))
        return device

    def call(self, function: str, **named: Any) -> Any:
        """What a function answers to the services, by named notation."""
        return call(self.service, function, **named)

    def wake(
        self, device: UUID, captured_at: Instant | None, image_name: str = "IMG_001.jpg",
        **telemetry: Any,
    ) -> dict[str, Any]:  # fmt: skip
        answer: dict[str, Any] = self.call(
            "fn_wake_ingestion_handler",
            device_id=device,
            captured_at=captured_at,
            image_name=image_name,
            telemetry_data=Jsonb(telemetry),
        )
        return answer

    def value(self, query: str, *values: Any) -> Any:
        row = self.owner.execute(query.encode(), values).fetchone()
        assert row is not None, query
        return row[0] if len(row) == 1 else row

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.owner.execute(query.encode(), values).fetchall()

    def counters(self, session: UUID | str) -> tuple[int, int, int]:
        """Completed, failed, extra; fails if a recount of the session's wakes gives others."""
        counters: tuple[int, int, int] = self.value(_COUNTERS, session)
        assert counters == self.value(_RECOUNT, session)
        return counters

    def unguarded(self, query: str, *values: Any) -> None:
        """Written past every trigger: what only damage could leave behind."""
        with self.owner.transaction():
            self.owner.execute("set local session_replication_role = replica")
            self.owner.execute(query.encode(), values)

    def connect(self) -> psycopg.Connection:
        """One more connection of the services."""
        return psycopg.connect(self.database.url, autocommit=True)

    @contextmanager
    def person(self, company: UUID | None = None) -> Iterator[psycopg.Connection]:
        """A transaction of an operator of this company, as the console opens it."""
        email = f"{ids.new()}@example.com"
        add_user(
            self.owner,
            email,
            company_id=company or self.company,
            password=two_companies.PASSWORD,
            role="operator",
        )
        token = open_sign_in(self.owner, email, lasts=timedelta(hours=1))
        with two_companies.looking(self.database.url, token) as connection:
            yield connection

    def _insert(self, table: str, columns: dict[str, Any]) -> None:
        values = {"company_id": self.company, **columns}
        self.owner.execute(
            sql.SQL("insert into {} ({}) values ({})").format(
                sql.Identifier(table),
                sql.SQL(", ").join(map(sql.Identifier, values)),
                sql.SQL(", ").join(map(sql.Placeholder, values)),
            ),
            values,
        )


def call(connection: psycopg.Connection, function: str, **named: Any) -> Any:
    arguments = sql.SQL(", ").join(
        sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in named
    )
    query = sql.SQL("select {}({})").format(sql.Identifier(function), arguments)
    row = connection.execute(query, named).fetchone()
    return row[0] if row else None
