"""Gateways as processes of their own, killed and started at will."""

import contextlib
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx2

from tests.integration.cloud.camera_gateway.conftest import Site
from tests.support import preloaded
from tests.support.until import until


class Gateways:
    """Processes by name, each behind a port of its own."""

    def __init__(self, site: Site, folder: Path, free_port: Callable[[], int]) -> None:
        self._site, self._folder, self._free_port = site, folder, free_port
        self.running: dict[str, tuple[subprocess.Popen[bytes], int]] = {}

    def start(self, name: str, *, crash_at: str = "", port: int | None = None) -> None:
        port = port or self._free_port()
        environment = {
            **self._site.environment,
            "FARMIQ_CLOUD_HTTP_PORT": str(port),
            "FARMIQ_CRASH_AT": crash_at,
        }
        log = self._folder / f"{name}.log"
        process = preloaded.run("cloud-camera-gateway", environment, log=log)
        self.running[name] = (process, port)

    def state(self, name: str) -> str:
        process, port = self.running[name]
        assert process.poll() is None, (self._folder / f"{name}.log").read_text()
        try:
            answer = httpx2.get(f"http://127.0.0.1:{port}/readyz", timeout=10)
        except httpx2.HTTPError:
            return "away"
        if answer.status_code != 200:
            return f"not ready: {answer.text}"
        return "standby" if "standby" in answer.text else "active"

    async def until(self, name: str, state: str) -> None:
        seen: list[str] = []

        def reached() -> bool:
            seen.append(self.state(name))
            return seen[-1] == state

        try:
            await until(reached, within_s=90)
        except AssertionError:
            raise AssertionError(f"{name} is {seen[-1]}, not {state}") from None

    def kill(self, name: str) -> None:
        self.running[name][0].send_signal(signal.SIGKILL)
        self.running[name][0].wait()

    def stop(self) -> None:
        for process, _ in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()

    def resident_mb(self, name: str) -> float:
        """What the process holds in memory now."""
        pid = self.running[name][0].pid
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError(pid)
