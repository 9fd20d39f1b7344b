"""The commands of docs/plain-client.md, run as they stand there."""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from farmiq.stack import mosquitto
from tests.engines import state_dir

PAGE = Path(__file__).parent.parent / "docs" / "plain-client.md"
TENANT, FARM, BARN, DEVICE = "hillside", "hill-farm", "barn-1", "barn-1-feeder"


def block(heading: str, language: str = "sh") -> str:
    """The code below a heading of the page."""
    _, _, below = PAGE.read_text().partition(f"\n## {heading}\n")
    found = re.search(rf"```{language}\n(.*?)```", below.partition("\n## ")[0], re.DOTALL)
    assert found, f"no {language} below {heading!r} in {PAGE}"
    return found.group(1)


def questions() -> list[str]:
    """What the page asks of the edge, behind its address, for our device."""
    asked = re.findall(r'"\$EDGE(/[^"]+)"', block("Seeing it"))
    return [each.replace("$TENANT", TENANT).replace("$DEVICE", DEVICE) for each in asked]


def run(
    program: str, language: str, *, devices_url: str, folder: Path
) -> "subprocess.CompletedProcess[str]":
    """The program as a person would run it who has set what the page says to set."""
    parts = urlsplit(devices_url)
    found = mosquitto.find(state_dir() / "engines")
    plain = found.environment(folder)
    environment: Mapping[str, str] = {
        **plain,
        "PATH": f"{found.publisher.parent}:{plain['PATH']}",
        "BROKER": str(parts.hostname),
        "PORT": str(parts.port),
        "MQTT_USER": unquote(parts.username or ""),
        "MQTT_PASSWORD": unquote(parts.password or ""),
        "TENANT": TENANT,
        "DEVICE": DEVICE,
        "PLACE": f"{TENANT}/{FARM}/{BARN}/{DEVICE}",
        "LC_ALL": "C.UTF-8",
    }
    command = {"sh": ["bash", "-ec", program], "python": [sys.executable, "-c", program]}
    return subprocess.run(
        command[language], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
