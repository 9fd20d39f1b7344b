"""The handlers called by many connections at once: nothing twice, nobody waits for ever."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.sql.camera.farm import Farm, call
from tests.sql.camera.verbs import URL, fail

EIGHT = "2026-03-10T08:00:00+07:00"
MANY = 8
STEPS = 100

Call = Callable[[psycopg.Connection], Any]


MOVE = "update devices set site_id = %s, device_name = 'moved ' || device_id || random()"


def together(farm: Farm, calls: list[Call]) -> list[Any]:
    """The answers to calls that all start at the same moment, each on a connection of its own."""
    start = Barrier(len(calls), timeout=120)

    def one(make: Call) -> Any:
        with farm.connect() as connection:
            start.wait()
            return make(connection)

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


def ingestion(device: UUID, captured_at: str | None = EIGHT, name: str = "a.jpg") -> Call:
    return lambda connection: call(
        connection,
        "fn_wake_ingestion_handler",
        device_id=device,
        captured_at=captured_at,
        image_name=name,
        telemetry_data=Jsonb({"temperature": 20}),
    )


def failure(wake: dict[str, Any]) -> Call:
    return lambda connection: call(
        connection,
        "fn_image_failure_handler",
        image_id=wake["image_id"],
        error_code="X",
        error_message="x",
    )


@pytest.mark.req("FN-05", "DS-10", "XC-06")
@pytest.mark.parametrize("captured_at", [EIGHT, None, "1970-01-01T00:00:00Z"])
def test_concurrent_metadata_of_one_wake_makes_one_wake(
    farm: Farm, captured_at: str | None
) -> None:
    device = farm.device(farm.site())
    answers = together(farm, [ingestion(device, captured_at)] * MANY)
    assert all(answer == answers[0] for answer in answers)
    assert farm.value("select count(*) from device_wake_payloads") == 1
    assert farm.value("select count(*) from site_device_sessions") == 1


@pytest.mark.req("DS-02")
def test_one_window_is_taken_by_one_wake(farm: Farm) -> None:
    device = farm.device(farm.site())
    answers = together(farm, [ingestion(device, EIGHT, f"{n}.jpg") for n in range(MANY)])
    assert sorted(answer["is_overage"] for answer in answers) == [False] + [True] * (MANY - 1)
    assert farm.counters(answers[0]["session_id"]) == (0, 0, MANY - 1)


@pytest.mark.req("FN-06", "FN-07", "FN-08", "DB2-03")
def test_completions_failures_and_retries_of_one_image_agree(farm: Farm) -> None:
    device = farm.device(farm.site())
    wake = farm.wake(device, EIGHT)
    number = wake["image_id"]
    calls: list[Call] = [
        lambda c: call(c, "fn_image_completion_handler", image_id=number, image_url=URL),
        failure(wake),
        lambda c: call(
            c,
            "fn_retry_by_id_handler",
            device_id=device,
            image_name="IMG_001.jpg",
            new_image_url=URL,
        ),
    ]
    together(farm, calls * 3)
    assert farm.counters(wake["session_id"]) == (1, 0, 0)
    assert farm.value("select count(*), count(distinct image_id) from petri_observations") == (1, 1)
    assert farm.value("select status, retry_count <= 1 from device_images") == ("complete", True)


def test_failures_of_one_day_open_one_alert(farm: Farm) -> None:
    device = farm.device(farm.site(), "0 * * * *")
    wakes = [farm.wake(device, f"2026-03-10T{h:02}:00:00+07:00") for h in range(MANY)]
    answers = together(farm, [failure(wake) for wake in wakes])
    assert sorted(answer["alert_created"] for answer in answers) == [False] * (MANY - 1) + [True]
    assert farm.counters(wakes[0]["session_id"]) == (0, MANY, 0)
    assert fail(farm, wakes[0])["alert_created"] is False


def test_cameras_of_one_site_bring_several_days_at_once(farm: Farm) -> None:
    farm.at("2026-03-01T12:00:00+07:00")
    site = farm.site()
    devices = [farm.device(site) for _ in range(4)]
    farm.at("2026-03-10T12:00:00+07:00")
    days = [f"2026-03-0{day}T08:00:00+07:00" for day in (7, 8, 9)]
    calls = [ingestion(device, day) for day in days for device in devices]
    answers = together(farm, calls)
    assert len({answer["session_id"] for answer in answers}) == len(days)
    assert not any(answer["is_overage"] for answer in answers)
    assert farm.value("select count(*) from device_wake_payloads") == len(calls)


def test_settings_of_a_camera_change_while_it_wakes(farm: Farm) -> None:
    site, other = farm.site(), farm.site()
    device = farm.device(site)
    farm.wake(device, EIGHT, "first.jpg")

    def move(connection: psycopg.Connection) -> None:
        for place in (other, site) * 5:
            connection.execute(
                "update devices set site_id = %s where device_id = %s", (place, device)
            )

    wakes = [ingestion(device, f"2026-03-10T09:00:{n:02}+07:00", f"{n}.jpg") for n in range(MANY)]
    together(farm, [move, move, *wakes])
    assert farm.value("select count(*) from device_wake_payloads") == MANY + 1


@pytest.mark.req("FN-05")
def test_names_and_places_change_while_cameras_wake(farm: Farm) -> None:
    """Nobody waits in a ring: PostgreSQL would end one of them, and the call would raise."""
    site, other = farm.site(), farm.site()
    devices = [farm.device(site, "* * * * *") for _ in range(3)]
    for device in devices:
        farm.wake(device, EIGHT, "first.jpg")

    def waking(device: UUID) -> Call:
        def wake(connection: psycopg.Connection) -> None:
            for n in range(STEPS):
                ingestion(device, f"2026-03-10T09:{n % 60:02}:00+07:00", f"{n}.jpg")(connection)

        return wake

    def changing(query: str, *values: Any) -> Call:
        def change(connection: psycopg.Connection) -> None:
            for n in range(STEPS):
                connection.execute(query.encode(), (values[n % len(values)] or f"name {n}",))

        return change

    together(
        farm,
        [
            *map(waking, devices),
            changing("update devices set device_name = %s || device_id", None),
            changing("update sites set site_name = %s || site_id", None),
            changing("update pilot_programs set program_name = %s || program_id", None),
            *(changing(f"{MOVE} where device_id = '{each}'", other, site) for each in devices[:2]),
        ],
    )
    assert farm.value("select count(*) from device_wake_payloads") == len(devices) * (STEPS + 1)


def test_a_camera_gets_name_and_site_while_its_wake_waits(farm: Farm) -> None:
    """The edit waits for the day that a wake holds, and the wake needs the edited camera."""
    site, other = farm.site(), farm.site()
    first, second = farm.device(site), farm.device(site)
    farm.call("fn_midnight_session_opener", site_id=site)
    with ThreadPoolExecutor(1) as pool, farm.connect() as waking, farm.connect() as editing:
        with waking.transaction():
            ingestion(first)(waking)
            edit = pool.submit(editing.execute, MOVE.encode(), (other,))
            while not farm.value("select pg_blocking_pids(%s)", editing.info.backend_pid):
                assert not edit.done()
            ingestion(second)(waking)
        edit.result()


def test_a_rename_does_not_hold_up_a_wake(farm: Farm) -> None:
    site = farm.site()
    device = farm.device(site)
    farm.wake(device, EIGHT)
    for query in (
        "update devices set device_name = 'renamed'",
        "update sites set site_name = 'renamed'",
        "update pilot_programs set program_name = 'renamed'",
    ):
        with farm.connect() as connection, connection.transaction():
            connection.execute(query.encode())
            farm.service.execute("set lock_timeout = '20s'")
            farm.wake(device, "2026-03-10T09:00:00+07:00", f"{query}.jpg")
