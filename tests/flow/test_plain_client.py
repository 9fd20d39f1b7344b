"""A plain MQTT client publishes by the page in docs, and the row shows through the API."""

from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from farmiq.edge import api_keys
from farmiq.lab import stack
from farmiq.plumbing import ids
from farmiq.services import SITES
from tests.support import plain_client
from tests.support.farm import Farm
from tests.support.until import until


@pytest.fixture
async def farm(two_sites: Farm) -> Farm:
    for site in SITES:
        two_sites.start(site)
    await two_sites.until_ready()
    return two_sites


def publish(farm: Farm, heading: str, language: str = "sh") -> None:
    done = plain_client.run(
        heading,
        language,
        devices_url=farm.environment["FARMIQ_DEVICES_MQTT_URL"],
        folder=farm.folder,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def key(farm: Farm) -> str:
    made = api_keys.new_key()
    with psycopg.connect(farm.edge_db.admin_url) as connection:
        connection.execute(
            "insert into api_keys (api_key_id, name, role, key_sha256) values (%s, %s, %s, %s)",
            (ids.new(), "reader", "viewer", api_keys.digest(made)),
        )
    return made


def ask(farm: Farm, path: str, key: str) -> Any:
    answer = httpx2.get(
        f"{farm.url('edge')}{path}", headers={"Authorization": f"Bearer {key}"}, timeout=30
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.req("SC-04", "FB-01", "FB-17")
async def test_what_the_page_publishes_is_stored_and_seen(farm: Farm, key: str) -> None:
    publish(farm, "A reading")
    latest, intakes = plain_client.questions()
    shown = await until(lambda: ask(farm, latest, key)["readings"])
    assert [(each["metric_type"], each["metric_value"]) for each in shown] == [
        ("temperature", 23.5)
    ]
    publish(farm, "Feed")
    publish(farm, "How the device is")
    publish(farm, "The same in Python", "python")
    readings = "select metric_type, metric_value, unit, device_id from telemetry_raw order by 1"
    expected = [
        ("humidity", 61.0, "%", plain_client.DEVICE),
        ("temperature", 23.5, "°C", plain_client.DEVICE),
    ]
    await until(lambda: farm.edge(readings) == expected)
    found = await until(lambda: ask(farm, intakes, key)["intakes"])
    assert [(each["quantity_kg"], each["feed_lot_id"]) for each in found] == [(25.5, "lot-001")]
    in_cloud = "select metric_type, metric_value from telemetry_readings order by 1"
    await until(lambda: farm.cloud(in_cloud) == [row[:2] for row in expected])
    told = "select device_id, told_state from device_state where told_state is not null"
    await until(lambda: farm.edge(told) == [(plain_client.DEVICE, "online")])
    assert farm.edge("select count(*) from quarantine") == [(0,)]


def test_a_wrong_password_is_told_to_the_client(broker: stack.Stack, tmp_path: Path) -> None:
    url = broker.environment["FARMIQ_DEVICES_MQTT_URL"]
    _, _, address = url.rpartition("@")
    done = plain_client.run(
        "A reading",
        devices_url=f"mqtt://nobody:wrong@{address}",
        folder=tmp_path,
    )
    assert done.returncode != 0
    assert "not authorised" in done.stderr
