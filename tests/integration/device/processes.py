"""Agents as processes of their own, killed and started at will; and what they kept."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farmiq.config import DeviceSettings
from farmiq.lab.stack import processes
from tests.integration.device.conftest import Edge
from tests.support import preloaded, station
from tests.support.small_edge import Arrived

ROOT = Path(__file__).parents[3]


@dataclass
class Station:
    """One buffer and its notes; `start` runs an agent on it."""

    folder: Path
    edge: Edge
    running: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(
        self,
        *,
        crash_at: str = "",
        sessions: int = 3,
        weights: int = 3,
        pictures: int = 1,
        **others: object,
    ) -> "subprocess.Popen[bytes]":
        script = [str(self.notes), str(sessions), str(weights), str(pictures)]
        command = ("-m", "tests.support.agent_process", *script)
        return self._spawn(command, crash_at=crash_at, **others)

    def start_command(self, **others: object) -> "subprocess.Popen[bytes]":
        """`farmiq agent run`, as systemd starts it."""
        return self._spawn(("-m", "farmiq", "agent", "run"), crash_at="", **others)

    def ask(self, *words: str, **others: object) -> "subprocess.CompletedProcess[str]":
        return preloaded.command(
            "agent", *words, environment=self._environment(**others), timeout_s=60
        )

    def _environment(self, **others: object) -> dict[str, str]:
        settings = station.settings(
            self.folder / "buffer",
            mqtt_url=self.edge.mqtt_url,
            edge_url=self.edge.media.url,
            **others,
        )
        return {**os.environ, **_given(settings)}

    def _spawn(
        self, command: tuple[str, ...], *, crash_at: str = "", **others: object
    ) -> "subprocess.Popen[bytes]":
        launch = processes.Launch(
            argv=(sys.executable, *command),
            environment={**self._environment(**others), "FARMIQ_CRASH_AT": crash_at},
            folder=ROOT,
            log=self.folder / "agent.log",
        )
        process = preloaded.spawn(launch)
        self.running.append(process)
        return process

    def stop(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.terminate()
                process.wait(60)

    @property
    def notes(self) -> Path:
        return self.folder / "notes.jsonl"

    def kept(self) -> list[dict[str, Any]]:
        """Every capture that was acknowledged; a torn last line was not."""
        if not self.notes.exists():
            return []
        lines = self.notes.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def missing(self) -> list[dict[str, Any]]:
        """What was acknowledged and is not at the edge."""
        there = {_name(each) for each in self.edge.gateway.distinct().values()}
        return [each for each in self.kept() if (name := _wanted(each)) and name not in there]

    def doubled(self) -> list[tuple[object, ...]]:
        """What became two events."""
        names = [_name(each) for each in self.edge.gateway.distinct().values()]
        return [name for name in set(names) if names.count(name) > 1]

    def log(self) -> str:
        return (self.folder / "agent.log").read_text()


def killed(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() == -signal.SIGKILL


def _name(arrived: Arrived) -> tuple[object, ...]:
    body = arrived.body
    payload = body["payload"]
    what = payload.get("weight_kg", payload.get("media_id", payload.get("command_id")))
    # A ledger line is about seqs that no other line is about.
    return body["event_type"], arrived.session_id, what, payload.get("first_seq")


def _wanted(kept: dict[str, Any]) -> tuple[object, ...] | None:
    family = "weighvision"
    match kept["kept"]:
        case "open":
            return f"{family}.session.created", kept["session"], None, None
        case "weight":
            return f"{family}.weight.recorded", kept["session"], kept["weight_kg"], None
        case "close":
            return f"{family}.session.finalized", kept["session"], None, None
    return None


def _given(settings: DeviceSettings) -> dict[str, str]:
    """The settings as environment again."""
    found = {}
    for name, spec in DeviceSettings.model_fields.items():
        value = getattr(settings, name)
        if value is not None:
            values = value if isinstance(value, tuple) else (value,)
            found[str(spec.alias)] = ",".join(
                each.get_secret_value() if hasattr(each, "get_secret_value") else str(each)
                for each in values
            )
    return found
