"""The commands of docs/plain-client.md, for a device that is registered already."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.support import pages

PAGE = "docs/plain-client.md"
TENANT, FARM, BARN, DEVICE = "hillside", "hill-farm", "barn-1", "barn-1-feeder"


def questions() -> list[str]:
    """What the page asks of the edge, behind its address, for our device."""
    asked = re.findall(r'"\$EDGE(/[^"]+)"', pages.block(PAGE, "Seeing it").text)
    return [each.replace("$TENANT", TENANT).replace("$DEVICE", DEVICE) for each in asked]


def run(
    heading: str, language: str = "sh", *, devices_url: str, folder: Path
) -> "subprocess.CompletedProcess[str]":
    """Run the block below a heading, as a person would who has set what the page says to set."""
    parts = urlsplit(devices_url)
    shell = pages.Shell(
        folder,
        {
            "BROKER": str(parts.hostname),
            "PORT": str(parts.port),
            "MQTT_USER": unquote(parts.username or ""),
            "MQTT_PASSWORD": unquote(parts.password or ""),
            "TENANT": TENANT,
            "DEVICE": DEVICE,
            "PLACE": f"{TENANT}/{FARM}/{BARN}/{DEVICE}",
        },
    )
    text = pages.block(PAGE, heading, language).text
    if language == "python":
        (folder / "client.py").write_text(text)
        text = f"{sys.executable} client.py"
    return shell.run(text)
