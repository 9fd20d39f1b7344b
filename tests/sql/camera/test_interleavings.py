"""All handlers in random order on several connections: the accounts are right throughout."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from farmiq.cloud.identity.accounts import add_user, open_sign_in
from tests.sql import two_companies
from tests.sql.camera.farm import Farm, call
from tests.sql.camera.verbs import URL

START = datetime(2026, 3, 28, 12, tzinfo=UTC)
CONNECTIONS = 5
ZONES = ("Asia/Bangkok", "Europe/Berlin", "Pacific/Apia")

# Each finds rows that break one promise.
BROKEN = {
    "counters are a recount": """
        select s.session_id
        from site_device_sessions s left join device_wake_payloads p
          on p.site_device_session_id = s.session_id
        group by s.session_id
        having (s.completed_wake_count, s.failed_wake_count, s.extra_wake_count) <>
          (count(*) filter (where p.payload_status = 'complete'),
          count(*) filter (where p.payload_status = 'failed'),
          count(*) filter (where p.overage_flag))""",
    "expected is what was expected at opening": """
        select s.session_id from site_device_sessions s
        where s.expected_wake_count <>
          (select count(*) from expected_wakes e where e.session_id = s.session_id)""",
    "an image and its wake say the same": """
        select i.image_id from device_images i full join device_wake_payloads p
          on p.image_id = i.image_id
        where (i.device_id, i.company_id, i.captured_at, replace(i.status, 'receiving', 'pending'))
          is distinct from (p.device_id, p.company_id, p.captured_at, p.payload_status)""",
    "what is complete has its one observation, nothing else has": """
        select i.image_id from device_images i full join petri_observations o
          on o.image_id = i.image_id
        where (i.status = 'complete', i.observation_id) is distinct from
          (o.image_id is not null, o.observation_id)""",
    "a day with a wake has begun": """
        select s.session_id from site_device_sessions s join device_wake_payloads p
          on p.site_device_session_id = s.session_id where s.status = 'pending'""",
    # Where zones changed there are hours that no day has: then a zone of the site tells the date.
    "a believed wake is in the day of its capture": """
        select p.payload_id from device_wake_payloads p join site_device_sessions s
          on s.session_id = p.site_device_session_id
        where not p.clock_suspect
          and s.session_date <> (p.captured_at at time zone s.timezone)::date
          and (
            s.session_date not in (
              select (p.captured_at at time zone zone)::date
              from (values ('Asia/Bangkok'), ('Europe/Berlin'), ('Pacific/Apia')) z(zone))
            or exists (
              select from site_device_sessions o
              where o.site_id = s.site_id and o.session_id < p.payload_id
                and o.session_date = (p.captured_at at time zone o.timezone)::date))""",
    "what a day expects is of its date, and no other day expects it": """
        select s.session_id from expected_wakes e
        join site_device_sessions s on s.session_id = e.session_id
        where s.session_date <> (e.expected_at at time zone s.timezone)::date
        union all
        select a.site_id from expected_wakes e
        join site_device_sessions a on a.session_id = e.session_id
        group by a.site_id, e.device_id, e.expected_at having count(*) > 1""",
    "telemetry is what the camera said": """
        select p.payload_id from device_wake_payloads p
        where p.temperature is distinct from (p.telemetry_data ->> 'temperature')::float8""",
    "a resend came only where one was asked for or had failed": """
        select i.image_id from device_images i
        where i.resent_received_at is not null and i.status <> 'complete'""",
}


@dataclass
class Play:
    """What the connections share: the farm and the wakes that are known to it."""

    farm: Farm
    sites: list[UUID]
    devices: list[UUID]
    token: str
    wakes: list[dict[str, Any]] = field(default_factory=list)
    done: Event = field(default_factory=Event)


@pytest.fixture
def play(farm: Farm) -> Play:
    """Sites on both sides of a night in which clocks change."""
    farm.at(START)
    sites = [farm.site(zone) for zone in ZONES]
    crons = ("0 8,16 * * *", "*/30 * * * *")
    devices = [farm.device(site, cron) for site in sites for cron in crons]
    add_user(
        farm.owner,
        "ann@example.com",
        company_id=farm.company,
        password=two_companies.PASSWORD,
        role="operator",
    )
    token = open_sign_in(farm.owner, "ann@example.com", lasts=timedelta(days=90))
    return Play(farm, sites, devices, token)


@pytest.mark.req("DB2-03", "FN-09", "DS-01", "DS-09")
@pytest.mark.parametrize("steps", [300, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.timeout(3600)
def test_any_order_on_any_connection_keeps_the_accounts(play: Play, steps: int) -> None:
    with ThreadPoolExecutor(CONNECTIONS + 1) as pool:
        watched = pool.submit(watch, play)
        try:
            runs = [
                pool.submit(act, play, seed, steps // CONNECTIONS) for seed in range(CONNECTIONS)
            ]
            tallies = [run.result() for run in runs]
        finally:
            play.done.set()
        assert watched.result() > 0
    assert broken(play.farm.owner) == {}
    assert all(any(tally[name] for tally in tallies) for name in ACTS)
    statuses = play.farm.rows("select distinct payload_status from device_wake_payloads order by 1")
    assert statuses == [("complete",), ("failed",), ("pending",)]


def broken(connection: psycopg.Connection) -> dict[str, list[Any]]:
    found = {
        promise: connection.execute(query.encode()).fetchall() for promise, query in BROKEN.items()
    }
    return {promise: rows for promise, rows in found.items() if rows}


def watch(play: Play) -> int:
    """Looks from outside while the others work: no committed state may break a promise."""
    looks = 0
    with psycopg.connect(play.farm.database.admin_url, autocommit=True) as connection:
        while not (looks and play.done.is_set()):
            assert broken(connection) == {}
            looks += 1
    return looks


def act(play: Play, seed: int, steps: int) -> dict[str, int]:
    """One connection's share; how often it did what."""
    chance = random.Random(seed)
    tally = dict.fromkeys(ACTS, 0)
    with play.farm.connect() as connection:
        for _ in range(steps):
            name = chance.choices(list(ACTS), [weight for weight, _ in ACTS.values()])[0]
            if play.wakes or name == "wake":
                ACTS[name][1](play, connection, chance)
                tally[name] += 1
    return tally


def wake(play: Play, connection: psycopg.Connection, chance: random.Random) -> None:
    minutes = chance.randrange(0, 3 * 24 * 60, 15)
    captured_at = chance.choice(
        [START - timedelta(minutes=minutes)] * 8 + [None, datetime(1970, 1, 1, tzinfo=UTC)]
    )
    answer = call(
        connection,
        "fn_wake_ingestion_handler",
        device_id=chance.choice(play.devices),
        captured_at=captured_at,
        image_name=f"IMG_{chance.randrange(3)}.jpg",
        telemetry_data=Jsonb({"temperature": chance.randrange(3), "image_size": 1}),
    )
    play.wakes.append(answer)


def again(play: Play, connection: psycopg.Connection, chance: random.Random) -> None:
    """What is known comes again, a little later, and is found."""
    known = chance.choice(play.wakes)
    row = connection.execute(
        """
        select p.device_id, p.captured_at, i.image_name, p.telemetry_data
        from device_wake_payloads p join device_images i on i.image_id = p.image_id
        where p.payload_id = %s and not p.clock_suspect
        """,
        (known["payload_id"],),
    ).fetchone()
    if row is not None:
        device, captured_at, name, said = row
        answer = call(
            connection,
            "fn_wake_ingestion_handler",
            device_id=device,
            captured_at=captured_at,
            image_name=name,
            telemetry_data=Jsonb({**said, "temperature": 99}),
        )
        assert answer == known


def complete(play: Play, connection: psycopg.Connection, chance: random.Random) -> None:
    known = chance.choice(play.wakes)
    call(connection, "fn_image_completion_handler", image_id=known["image_id"], image_url=URL)


def fail(play: Play, connection: psycopg.Connection, chance: random.Random) -> None:
    call(
        connection,
        "fn_image_failure_handler",
        image_id=chance.choice(play.wakes)["image_id"],
        error_code="X",
        error_message="x",
    )


def retry(play: Play, connection: psycopg.Connection, chance: random.Random) -> None:
    call(
        connection,
        "fn_retry_by_id_handler",
        device_id=chance.choice(play.devices),
        image_name=f"IMG_{chance.randrange(3)}.jpg",
        new_image_url=chance.choice([URL, None]),
    )


def resend(play: Play, _: psycopg.Connection, chance: random.Random) -> None:
    known = chance.choice(play.wakes)
    with two_companies.looking(play.farm.database.url, play.token) as person:
        call(person, "fn_request_resend", image_id=known["image_id"])


def day(play: Play, connection: psycopg.Connection, chance: random.Random) -> None:
    """Days open and lock while their wakes come."""
    function = chance.choice(["fn_midnight_session_opener", "fn_end_of_day_locker"])
    call(connection, function, site_id=chance.choice(play.sites))


def recount(_: Play, connection: psycopg.Connection, __: random.Random) -> None:
    """The job that mends counters finds none to mend, whoever counts at this moment."""
    assert call(connection, "fn_alert_counters_differing") == 0


def rezone(play: Play, connection: psycopg.Connection, chance: random.Random) -> None:
    connection.execute(
        "update sites set timezone = %s where site_id = %s",
        (chance.choice(ZONES), chance.choice(play.sites)),
    )


ACTS = {
    "wake": (8, wake),
    "again": (4, again),
    "complete": (5, complete),
    "fail": (5, fail),
    "retry": (3, retry),
    "resend": (1, resend),
    "day": (2, day),
    "rezone": (1, rezone),
    "recount": (1, recount),
}
