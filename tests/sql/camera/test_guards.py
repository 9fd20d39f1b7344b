"""What the database itself refuses, also to its owner, and counters that stay a recount."""

from typing import Any

import psycopg
import pytest

from tests.sql.camera.farm import Farm
from tests.sql.camera.verbs import complete, image

EIGHT = "2026-03-10T08:00:00+07:00"


@pytest.mark.req("DS-08", "DS-09", "DS-10", "XC-06")
@pytest.mark.parametrize(
    "attempt",
    [
        "update device_wake_payloads set temperature = 1",
        "update device_wake_payloads set telemetry_data = '{}'",
        "update device_wake_payloads set captured_at = now()",
        "update device_wake_payloads set company_id = null",
        "update device_wake_payloads set overage_flag = true",
        "update device_wake_payloads set payload_status = 'pending'",
        "update device_wake_payloads set payload_status = 'failed'",
        "delete from device_wake_payloads",
        "update device_images set captured_at = now()",
        "update device_images set image_name = 'x'",
        "update device_images set status = 'failed'",
        "update device_images set observation_id = null",
        "delete from device_images",
        "update site_device_sessions set status = 'pending'",
        "update site_device_sessions set expected_wake_count = 9",
        "delete from site_device_sessions",
        "update site_device_sessions set completed_wake_count = 99",
        "update site_device_sessions set failed_wake_count = 99",
        "update site_device_sessions set extra_wake_count = 99",
        "update site_device_sessions set late_updates = 99",
        "update expected_wakes set expected_at = now()",
        "update expected_wakes set wake_window_index = 9",
        "delete from expected_wakes",
    ],
)
def test_what_a_camera_said_and_what_came_of_it_stay(farm: Farm, attempt: str) -> None:
    complete(farm, farm.wake(farm.device(farm.site()), EIGHT, temperature=20))
    with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.RestrictViolation)):
        farm.owner.execute(attempt.encode())


@pytest.mark.req("DB2-03")
@pytest.mark.parametrize("counter", ["completed", "failed", "extra"])
def test_a_day_opens_with_nothing_counted(farm: Farm, counter: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="opens with nothing counted"):
        farm.owner.execute(
            f"""
            insert into site_device_sessions (session_id, company_id, program_id, site_id,
              session_date, timezone, expected_wake_count, opened_at, {counter}_wake_count)
            select gen_random_uuid(), company_id, program_id, site_id, '2026-03-10', timezone, 0,
              now(), 1 from sites where site_id = %s
            """.encode(),  # noqa: S608
            (farm.site(),),
        )


@pytest.mark.req("DS-09")
@pytest.mark.parametrize(
    "attempt",
    [
        "update device_images set status = 'complete', image_url = 'x', received_at = now()",
        "update device_images set status = 'failed'",
        "update device_wake_payloads set payload_status = 'complete'",
        "update device_wake_payloads set payload_status = 'failed'",
    ],
)
def test_an_image_and_its_wake_say_the_same(farm: Farm, attempt: str) -> None:
    wake = farm.wake(farm.device(farm.site()), EIGHT)
    with pytest.raises(psycopg.errors.CheckViolation, match="say the same"):
        farm.owner.execute(attempt.encode())
    assert complete(farm, wake)["payload_id"] == wake["payload_id"]


def test_completion_gives_an_image_the_observation_that_it_lacks(farm: Farm) -> None:
    wake = farm.wake(farm.device(farm.site()), EIGHT)
    with farm.owner.transaction():
        farm.owner.execute(
            "update device_images set status = 'complete', image_url = 'old', received_at = now()"
        )
        farm.owner.execute("update device_wake_payloads set payload_status = 'complete'")
    made = complete(farm, wake)
    assert complete(farm, wake) == made
    assert image(farm, wake, "observation_id::text, image_url") == (made["observation_id"], "old")
    assert farm.counters(wake["session_id"]) == (1, 0, 0)


@pytest.mark.parametrize("table", ["device_wake_payloads", "device_images", "petri_observations"])
def test_services_write_no_accounts_past_the_functions(farm: Farm, table: str) -> None:
    for attempt in (
        f"update {table} set created_at = now()",  # noqa: S608
        f"insert into {table} default values",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            farm.service.execute(attempt.encode())


def write(farm: Farm, wake: dict[str, Any], status: str) -> None:
    with farm.owner.transaction():
        farm.owner.execute(
            "update device_images set status = %s, image_url = 'x', received_at = now()"
            " where image_id = %s",
            ("receiving" if status == "pending" else status, wake["image_id"]),
        )
        farm.owner.execute(
            "update device_wake_payloads set payload_status = %s where payload_id = %s",
            (status, wake["payload_id"]),
        )


@pytest.mark.req("DB2-03")
def test_counters_are_a_recount_also_after_the_owner_wrote(farm: Farm) -> None:
    device = farm.device(farm.site(), "0 * * * *")
    wakes = [farm.wake(device, f"2026-03-10T{hour:02}:00:00+07:00") for hour in range(12)]
    session = wakes[0]["session_id"]
    for statuses in (("failed", "complete", "pending"), ("complete",)):
        for number, wake in enumerate(wakes):
            write(farm, wake, statuses[number % len(statuses)])
            farm.counters(session)
    assert farm.counters(session) == (12, 0, 0)


def test_people_may_call_none_of_the_handlers(farm: Farm) -> None:
    calls = (
        "fn_wake_ingestion_handler(null, null, null, null)",
        "fn_image_completion_handler(null, null)",
        "fn_complete_images(null, null)",
        "fn_image_failure_handler(null, null, null)",
        "fn_retry_by_id_handler(null, null, null)",
        "fn_retry_image(null, null)",
    )
    for call in calls:
        with farm.person() as ann, pytest.raises(psycopg.errors.InsufficientPrivilege):
            ann.execute(f"select {call}".encode())
