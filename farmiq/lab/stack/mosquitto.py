"""Mosquitto out of Debian's packages: a second broker for the MQTT tests, and its command line.

Not an engine of a stack: `edge-mqtt-broker` is NATS. Whoever promises "any MQTT 3.1.1 broker" and
"any MQTT client" has to try another one; the bench takes its C client for a ceiling.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from farmiq.lab.stack import debian
from farmiq.lab.stack.engine import HOST, SYSTEM_PATH, Say, StackError, plain_environment

PACKAGES = ("mosquitto", "mosquitto-clients")
HOW_TO_GET_ONE = (
    "Mosquitto is not installed, and this is no Debian system to take it from: "
    "install mosquitto and its clients (mosquitto_pub, mosquitto_sub) so that they are on the PATH."
)


@dataclass(frozen=True, kw_only=True)
class Installation:
    """Programs that can be started, with the libraries they bring."""

    broker: Path
    publisher: Path
    subscriber: Path
    passwords: Path
    libraries: tuple[Path, ...] = field(default=())

    def environment(self, home: Path) -> dict[str, str]:
        """What to start any of the programs with; `home` is a folder of the caller's."""
        variables = plain_environment(home)
        if self.libraries:
            variables["LD_LIBRARY_PATH"] = ":".join(str(folder) for folder in self.libraries)
        return variables


def find(downloads: Path, *, say: Say = lambda _: None) -> Installation:
    """Return a Mosquitto, downloading it if that is the way to have one."""
    installation = installed() or extracted(downloads)
    if installation is not None:
        return installation
    if not debian.usable():
        raise StackError(HOW_TO_GET_ONE)
    debian.extract(PACKAGES, home(downloads), say=say)
    installation = extracted(downloads)
    if installation is None:
        raise StackError(
            f"Debian's mosquitto was unpacked into {home(downloads)} but lacks its programs."
        )
    return installation


def installed() -> Installation | None:
    """Return the Mosquitto of this system, if it has the broker and both clients."""
    search = f"{os.defpath}:{SYSTEM_PATH}"
    names = ("mosquitto", "mosquitto_pub", "mosquitto_sub", "mosquitto_passwd")
    return _of([shutil.which(name, path=search) for name in names])


def extracted(downloads: Path) -> Installation | None:
    """Return the Mosquitto that was unpacked there before."""
    top = home(downloads)
    programs = ("sbin/mosquitto", "bin/mosquitto_pub", "bin/mosquitto_sub", "bin/mosquitto_passwd")
    paths = [top / "usr" / program for program in programs]
    libraries = tuple(debian.library_folders(top)) if top.exists() else ()
    return _of([str(path) if path.exists() else None for path in paths], libraries)


def home(downloads: Path) -> Path:
    return downloads.resolve() / "mosquitto"


def configuration(*, port: int, data: Path, more: Sequence[str] = ()) -> str:
    """Return the text of a small broker's configuration: loopback only, sessions kept on disk.

    As root it stays root: the data lies in folders of whoever started it.
    """
    lines = (
        "user root",
        f"listener {port} {HOST}",
        "persistence true",
        f"persistence_location {data}/",
        "max_queued_messages 0",
        "max_inflight_messages 1000",
        "log_dest stderr",
        *more,
    )
    return "\n".join(lines) + "\n"


def _of(paths: Sequence[str | None], libraries: tuple[Path, ...] = ()) -> Installation | None:
    programs = [Path(path) for path in paths if path is not None]
    if len(programs) < len(paths):
        return None
    broker, publisher, subscriber, passwords = programs
    return Installation(
        broker=broker,
        publisher=publisher,
        subscriber=subscriber,
        passwords=passwords,
        libraries=libraries,
    )
