"""What was refused of cameras: looked at, tried again, given up; and what people tell cameras."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from farmiq.cli import app
from farmiq.cloud.camera.gateway import batches, jobs
from farmiq.cloud.camera.gateway.chunks import Timing
from farmiq.cloud.camera.protocol import wire
from farmiq.plumbing import db
from tests.conftest import Database
from tests.sql.camera.farm import Farm

MAC = "AABBCCDDEEFF"
DATA, STATUS = f"device/{MAC}/data", f"device/{MAC}/status"


@pytest.fixture
def farm(cloud_db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Farm]:
    monkeypatch.setenv("FARMIQ_CLOUD_DB_URL", cloud_db.url)
    with Farm.connected(cloud_db) as made:
        yield made


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["camera-gateway", *words])
    assert result.exit_code == code, result.output
    return result.output


def heard(farm: Farm, *sent: tuple[str, Any]) -> None:
    """As the gateway takes it."""

    async def take() -> None:
        async with db.pool(farm.database.url, name="test", max_size=2) as pool:
            raw = [wire.RawMessage(topic, json.dumps(body).encode()) for topic, body in sent]
            await batches.commit_bisecting(pool, raw, Timing())

    asyncio.run(take())


def registered(farm: Farm, **more: Any) -> None:
    device = farm.device(farm.site(), "0 * * * *", **more)
    farm.owner.execute("update devices set mac = %s where device_id = %s", (MAC, device))


def announcement(captured_at: str | None) -> dict[str, Any]:
    return {"image_name": "a.jpg", "total_chunks": 2, "captured_at": captured_at}


@pytest.mark.req("DB2-12", "DB2-20")
def test_messages_of_a_camera_registered_later_are_redriven(farm: Farm) -> None:
    assert "nothing" in run("quarantine", "ls")
    assert "nothing" in run("quarantine")
    assert "nothing" in run("quarantine", "ls", "--unknown")
    at = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    chunk = {"chunk_id": 0, "payload": [1, 2, 3], "image_name": "a.jpg"}
    heard(farm, (STATUS, {"alive": 1, "pending_count": 2}), (DATA, announcement(at)), (DATA, chunk))
    assert f"{MAC}  3 messages" in run("quarantine", "ls", "--unknown", code=3)
    assert "--all" in run("quarantine", "redrive", code=2)
    assert "3 of 3 would be tried" in run("quarantine", "redrive", "--all", "--dry-run")
    assert "0 accepted, 3 refused again" in run("quarantine", "redrive", "--all", code=3)
    ((id_,),) = farm.rows("select quarantine_id from camera_quarantine where topic = %s", STATUS)
    assert "redriven  1 times" in run("quarantine", "show", str(id_))
    registered(farm)
    said = json.loads(run("quarantine", "redrive", "--mac", MAC, "--json"))
    assert (said["accepted"], said["refused"]) == (3, 0)
    assert farm.rows("select captured_at from device_wake_payloads") == [
        (datetime.fromisoformat(at),)
    ]
    assert farm.rows("select received_count from camera_transfers") == [(1,)]
    # A HELLO of then is none of now: nobody is asked for images, nobody was seen.
    assert farm.rows("select count(*) from camera_commands") == [(0,)]
    assert farm.rows("select hello_at from camera_states") == []
    assert farm.rows("select count(*) from dead_letter_actions where actor like %s", "cli%") == [
        (6,)
    ]


def test_redriven_wake_without_a_time_counts_for_when_it_was_received(farm: Farm) -> None:
    heard(farm, (DATA, announcement(None)))
    farm.owner.execute(
        "update camera_quarantine set first_received_at = first_received_at - interval '30 hours'"
    )
    registered(farm)
    run("quarantine", "redrive", "--all")
    ((age,),) = farm.rows("select now() - captured_at from device_wake_payloads")
    assert age > timedelta(hours=30)


def test_discarded_message_leaves_its_bytes_and_the_actor(farm: Farm) -> None:
    heard(farm, (DATA, {"no": "image"}))
    assert "1 would go" in run("quarantine", "discard", "--kind", "unknown", "--dry-run")
    assert "1 discarded" in run("quarantine", "discard", "--kind", "unknown")
    assert farm.rows("select count(*) from camera_quarantine") == [(0,)]
    assert farm.rows("select action, body from dead_letter_actions") == [
        ("discard", b'{"no": "image"}')
    ]
    assert "is no kind" in run("quarantine", "discard", "--kind", "odd", code=2)
    assert "no message" in run("quarantine", "show", str(farm.company), code=1)


def test_more_bytes_are_stored_of_a_registered_camera_than_of_an_unknown_one(farm: Farm) -> None:
    registered(farm)
    large = {"no": "image", "note": "n" * 100_000}
    heard(farm, (DATA, large), ("device/112233445566/data", large))
    assert farm.rows(
        "select mac, octet_length(raw) = raw_size_bytes from camera_quarantine order by mac"
    ) == [("112233445566", False), (MAC, True)]


@pytest.mark.req("DB2-11", "DB2-20")
def test_message_with_implausible_fields_is_stored_and_the_rest_is_noted(farm: Farm) -> None:
    registered(farm)
    odd = {"battery_voltage": 1e300, "firmware": "v" * 200_000, "wifi_rssi": -61}
    at = datetime.now(UTC).isoformat()
    heard(
        farm,
        (STATUS, {"alive": 1, "pending_count": 0, **odd}),
        (DATA, {**announcement(at), **odd, "note": "n" * 400_000, "temperature": 21}),
    )
    assert farm.rows("select battery_voltage, wifi_rssi, firmware from devices") == [
        (None, -61, None)
    ]
    assert farm.rows(
        "select battery_voltage, temperature, octet_length(telemetry_data::text) < 9000 "
        "from device_wake_payloads"
    ) == [(None, 21, True)]
    with farm.person() as somebody:
        seen = somebody.execute("select kind, reasons from camera_quarantine").fetchall()
    assert {kind for kind, _ in seen} == {"limits"}
    assert any("note has 400000 characters" in reason for _, said in seen for reason in said)


def test_thousand_unknown_cameras_are_counted_and_leave_few_rows(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MAX_UNKNOWN", 100)
    heard(farm, *((f"device/{n:012X}/status", {"alive": 1}) for n in range(1000)))

    async def look() -> None:
        async with db.pool(farm.database.url, name="test", max_size=2) as pool:
            await jobs.BrokerWatch().check_unknown(pool)
            await jobs.purge(pool, days=1)

    asyncio.run(look())
    assert jobs.UNKNOWN._value.get() == 1000
    assert farm.rows("select count(*) from camera_quarantine") == [(100,)]
    assert farm.rows("select count(*) from device_alerts") == [(0,)]


@pytest.mark.req("DB2-20")
def test_next_wake_accepts_an_instant_in_any_zone(farm: Farm) -> None:
    registered(farm, dialect="esp32cam")
    at = (datetime.now(UTC) + timedelta(hours=3)).replace(microsecond=0)
    plain = at.strftime("%Y-%m-%dT%H:%M:%S")
    for said in (plain, f"{plain}Z", at.isoformat(), f"{at + timedelta(hours=7):%FT%T}+07:00"):
        run("tell", MAC, "next_wake", "--at", said)
    assert farm.rows("select distinct wake_at from camera_commands") == [(at,)]
    assert "is not a time" in run("tell", MAC, "next_wake", "--at", "soon", code=2)
    assert "next 24 hours" in run("tell", MAC, "next_wake", "--at", "2099-01-01T00:00:00Z", code=2)
    assert "is missing" in run("tell", MAC, "send_image", code=2)
    run("tell", MAC, "capture_image")
