"""Which simulated stations there are: those of the logins that have a station and a token."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from farmiq.lab.simulate import farm, runner, stations
from farmiq.lab.simulate.life import files, flocks, history
from farmiq.lab.simulate.weighings import Visited
from farmiq.messages import weighvision

LOGIN = {
    "tenant_id": "hillside",
    "farm_id": "hill-farm",
    "barn_id": "barn-1",
    "device_id": "barn-1-station",
    "station_id": "barn-1-scale",
    "user": "hillside/barn-1-station",
    "password": "p@ss",
    "token": "t0ken",
}


def write(folder: Path, *logins: object) -> Path:
    file = folder / "logins.json"
    file.write_text(json.dumps({"devices": logins}))
    return file


def test_stations_are_those_with_a_station_id(tmp_path: Path) -> None:
    sensor = {**LOGIN, "device_id": "barn-1-water", "station_id": None}
    (post,) = runner.read_posts(
        write(tmp_path, sensor, LOGIN), mqtt_url="mqtt://127.0.0.1:1883", edge_url="http://edge"
    )
    assert post.station_id == "barn-1-scale"
    assert post.mqtt_url == "mqtt://hillside%2Fbarn-1-station:p%40ss@127.0.0.1:1883"
    assert post.environment["AGENT_TOKEN"] == "t0ken"


@pytest.mark.parametrize("bad", [{"station_id": "s"}, "station", None, {**LOGIN, "password": None}])
def test_a_file_of_something_else_is_refused(tmp_path: Path, bad: object) -> None:
    with pytest.raises(ValueError, match="is not a file of logins"):
        runner.read_posts(write(tmp_path, bad), mqtt_url="mqtt://h:1", edge_url="http://edge")


@pytest.mark.parametrize("barns", [1, 9])
def test_every_barn_with_a_flock_has_the_scale_of_its_history(barns: int) -> None:
    life = flocks.broiler_farm(
        "t", until=datetime(2026, 5, 4, 12, tzinfo=UTC), timezone="UTC", barns=barns
    )
    weighed = {
        (event.barn_id, event.device_id)
        for day in history.lived(life, files.standard())
        for event in day.events
        if event.event_type == weighvision.SESSION_CREATED
    }
    scales = farm.stations("t", barns=barns)
    assert {(each.place.barn_id, each.place.device_id) for each in scales} == weighed


def test_half_a_line_of_a_journal_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / stations.JOURNAL
    assert stations.read(file) == []
    file.write_text(
        '{"visit_id":"v","station_id":"s","animal":1,"weight_kg":60.5,"due":true}\n{"visit_id":'
    )
    assert stations.read(file) == [
        Visited(visit_id="v", station_id="s", animal=1, weight_kg=60.5, due=True)
    ]
