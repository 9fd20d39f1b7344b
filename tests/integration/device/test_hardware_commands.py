"""`farmiq agent scale` and `camera` as a technician types them: a real cable, a real server."""

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from farmiq.config import DeviceSettings, SettingsError
from farmiq.device.capture import sources
from tests.integration.device import barn
from tests.integration.device.barn import Cable
from tests.support import preloaded, station


async def farmiq(*words: str, **environment: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(preloaded.command, *words, environment=environment)
    return done.returncode, done.stdout, done.stderr


async def _talking(cable: Cable, line: bytes) -> None:
    os.set_blocking(cable.master, False)
    while True:
        with contextlib.suppress(BlockingIOError):
            cable.send(line)
        await asyncio.sleep(0.05)


async def looked(cable: Cable, line: bytes, *words: str) -> tuple[int, dict[str, Any]]:
    talking = asyncio.create_task(_talking(cable, line))
    code, out, _ = await farmiq(
        "agent", "scale", f"serial://{cable.path}", "--seconds", "1.5", "--json", *words
    )
    talking.cancel()
    await asyncio.gather(talking, return_exceptions=True)
    return code, json.loads(out)


async def test_technician_sees_what_the_scale_says(tmp_path: Path) -> None:
    cable = Cable(tmp_path / "ttyUSB0")
    code, found = await looked(cable, b"ST,GS,+0012.34kg\r\n")
    assert code == 0
    assert found["readings"] > 5
    assert found["malformed"] <= 1  # half a line, at most the first


async def test_wrong_format_is_named_with_those_that_fit(tmp_path: Path) -> None:
    cable = Cable(tmp_path / "ttyUSB0")
    code, found = await looked(cable, b"   12.34 kg\r\n", "--format", "and")
    assert code == 3
    assert "ohaus" in found["formats_that_fit"]
    assert "a line of another format" in found["problems"]


async def test_scale_command_without_a_scale_exits_3(tmp_path: Path) -> None:
    code, out, _ = await farmiq("agent", "scale", str(tmp_path / "no"), "--seconds", "0.5")
    assert code == 3
    assert "is the cable in" in out
    code, _, error = await farmiq("agent", "scale", "gopher://x")
    assert code == 2
    assert "AGENT_SCALE_URL" in error


async def test_camera_command_takes_one_picture(tmp_path: Path) -> None:
    async with barn.snapshots() as there:
        file = tmp_path / "one.jpg"
        code, out, _ = await farmiq("agent", "camera", there.url, "--out", str(file), "--json")
        assert code == 0
        said = json.loads(out)
        assert said["size_bytes"] == len(there.given[0])
        assert (said["content_type"], said["width"]) == ("image/jpeg", 64)
        assert file.read_bytes() == there.given[0]
        there.failing = True
        code, _, error = await farmiq("agent", "camera", there.url)
        assert code == 1
        assert "it answers 503" in error


def settings(tmp_path: Path, **others: str) -> DeviceSettings:
    return station.settings(tmp_path, mqtt_url="mqtt://h:1", edge_url="http://h", **others)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"AGENT_SCALE_URL": "/dev/ttyUSB0"}, "AGENT_CAMERA_URL is not set"),
        ({"AGENT_CAMERA_URL": "http://h/"}, "AGENT_SCALE_URL is not set"),
        ({"AGENT_SCALE_URL": "x:y", "AGENT_CAMERA_URL": "http://h/"}, "AGENT_SCALE_URL"),
        ({"AGENT_SCALE_URL": "/dev/x", "AGENT_CAMERA_URL": "rtsp://h/"}, "AGENT_CAMERA_URL"),
        (
            {
                "AGENT_SCALE_URL": "/dev/x",
                "AGENT_CAMERA_URL": "http://h/",
                "AGENT_SCALE_FORMAT": "regex",
                "AGENT_SCALE_PATTERN": "(",
            },
            "AGENT_SCALE_PATTERN",
        ),
        (
            {
                "AGENT_SCALE_URL": "/dev/x",
                "AGENT_CAMERA_URL": "folder:/x",
                "AGENT_CAPTURE": "both",
            },
            "AGENT_CAPTURE=both",
        ),
    ],
)
def test_impossible_hardware_is_rejected_before_the_agent_runs(
    tmp_path: Path, given: dict[str, str], why: str
) -> None:
    with pytest.raises(SettingsError, match=why):
        sources.configured(settings(tmp_path, **given))


@pytest.mark.req("WV-06")
def test_station_may_have_a_camera_alone(tmp_path: Path) -> None:
    given = {"AGENT_CAMERA_URL": "http://h/", "AGENT_CAPTURE": "schedule"}
    assert len(sources.configured(settings(tmp_path, **given))) == 1
    assert sources.configured(settings(tmp_path)) == ()
    assert settings(tmp_path, AGENT_SCHEDULE_MINUTES="10").schedule_minutes == 10
