"""The tables of cameras have the columns and the words that document 004 names."""

from typing import Any

import psycopg
import pytest

from tests.conftest import Database
from tests.sql import catalog
from tests.sql.camera.farm import Farm

SESSIONS = (
    "session_id", "site_id", "program_id", "company_id", "session_date", "expected_wake_count",
    "completed_wake_count", "failed_wake_count", "extra_wake_count", "status",
    "config_changed_flag", "locked_at",
)  # fmt: skip
PAYLOADS = (
    "payload_id", "company_id", "program_id", "site_id", "site_device_session_id", "device_id",
    "captured_at", "received_at", "wake_window_index", "image_id", "temperature", "humidity",
    "pressure", "gas_resistance", "battery_voltage", "wifi_rssi", "telemetry_data",
    "payload_status", "overage_flag", "resent_received_at",
)  # fmt: skip
CHANGES = (
    "company_id", "device_id", "new_wake_schedule_cron", "requested_at", "effective_date",
    "applied_at", "applied_by_function",
)  # fmt: skip
IMAGES = (
    "status", "image_url", "image_name", "captured_at", "received_at", "original_capture_date",
    "error_code", "error_message", "retry_count", "resent_received_at", "observation_id",
)  # fmt: skip
DEVICES = ("last_seen_at", "wake_schedule_cron", "slot_index", "x_position", "y_position")


@pytest.mark.parametrize(
    ("table", "documented"),
    [
        pytest.param("site_device_sessions", SESSIONS, marks=pytest.mark.req("DS-03")),
        pytest.param("device_wake_payloads", PAYLOADS, marks=pytest.mark.req("DS-07")),
        pytest.param("device_schedule_changes", CHANGES, marks=pytest.mark.req("DS-11")),
        pytest.param("device_images", IMAGES, marks=pytest.mark.req("DS-13")),
        pytest.param(
            "petri_observations", ("is_device_generated",), marks=pytest.mark.req("DS-13")
        ),
        pytest.param("devices", DEVICES, marks=pytest.mark.req("DS-13")),
        pytest.param(
            "pilot_programs", ("program_name", "program_type"), marks=pytest.mark.req("DS-13")
        ),
    ],
)
def test_a_table_has_the_documented_columns(
    cloud_db: Database, table: str, documented: tuple[str, ...]
) -> None:
    assert set(documented) <= set(catalog.columns(cloud_db.url, table))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        pytest.param(
            "site_device_sessions.status",
            {"pending", "in_progress", "locked"},
            marks=pytest.mark.req("DS-03"),
        ),
        pytest.param(
            "device_wake_payloads.payload_status",
            {"pending", "complete", "failed"},
            marks=pytest.mark.req("DS-07"),
        ),
        pytest.param(
            "device_images.status",
            {"receiving", "complete", "failed"},
            marks=pytest.mark.req("DS-13"),
        ),
        pytest.param(
            "pilot_programs.program_type",
            {"control", "experimental"},
            marks=pytest.mark.req("DS-13"),
        ),
    ],
)
def test_a_column_takes_the_documented_words_and_no_others(
    cloud_db: Database, column: str, words: set[str]
) -> None:
    table, _, name = column.partition(".")
    with psycopg.connect(cloud_db.admin_url) as connection:
        checks = connection.execute(
            """
            select pg_get_constraintdef(c.oid) from pg_constraint c
            where c.conrelid = to_regclass(%s) and c.contype = 'c'
              and pg_get_constraintdef(c.oid) like %s
            """,
            (table, f"%({name} = ANY%"),
        ).fetchall()
    (check,) = checks
    assert {part for part in check[0].split("'") if part.isidentifier() and part != "text"} == words


@pytest.mark.req("DS-07")
def test_what_a_camera_measures_stands_in_its_columns(farm: Farm) -> None:
    said: dict[str, Any] = {
        "temperature": 21.5, "humidity": 60.0, "pressure": 1008.5, "gas_resistance": 51234.0,
        "battery_voltage": 3.9, "wifi_rssi": -61,
    }  # fmt: skip
    device = farm.device(farm.site())
    farm.at("2026-03-10T18:00:00+07:00")
    wake = farm.wake(device, "2026-03-10T08:00:00+07:00", **said)
    row = farm.value(
        "select temperature, humidity, pressure, gas_resistance, battery_voltage, wifi_rssi "
        "from device_wake_payloads where payload_id = %s",
        wake["payload_id"],
    )
    assert row == tuple(said.values())
