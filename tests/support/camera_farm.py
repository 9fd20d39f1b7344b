"""A fleet of cameras before a real gateway, database, store and broker, and the account of it."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from farmiq.cloud.identity.accounts import add_company
from farmiq.lab import stack
from farmiq.lab.simulate import camera_account, camera_faults, fleet
from farmiq.lab.simulate.camera import Firmware
from farmiq.lab.simulate.camera_account import Cloud
from farmiq.lab.simulate.camera_faults import Faults
from farmiq.lab.simulate.camera_wire import DIALECTS, Dialect
from farmiq.lab.simulate.captures import Account
from farmiq.lab.simulate.fleet import SimulatedCamera, Timing
from farmiq.lab.simulate.journal import Journal
from farmiq.lab.stack import processes
from farmiq.plumbing.storage.objects import Bucket
from tests.conftest import Database
from tests.support.farm import TENANT, Farm
from tests.support.until import until

GATEWAY = "cloud-camera-gateway"
# What is missing is asked for at once, and who is silent is tried again: a test is short.
IMPATIENT = {
    "CAMERA_MISSING_SECONDS": "1",
    "CAMERA_LEASE_SECONDS": "2",
}
FIRMWARE = Firmware(answer_s=15.0, awake_s=90.0)
NO_DATABASE = Database("", "")


@dataclass(frozen=True)
class Watched:
    """The most that was seen of each."""

    memory_bytes: int = 0
    awake: int = 0


@dataclass
class CameraFarm:
    """`engines` may be killed if they are this farm's own."""

    farm: Farm
    engines: stack.Stack
    folder: Path

    @property
    def journal(self) -> Path:
        return self.folder / "captures.jsonl"

    @property
    def cloud(self) -> Cloud:
        return Cloud(
            self.farm.cloud_db.admin_url, Bucket(self.farm.environment["FARMIQ_CLOUD_S3_URL"])
        )

    async def start(self) -> None:
        self.farm.start(GATEWAY)
        await self.farm.until_ready(GATEWAY)

    def account(self) -> Account:
        return camera_account.read(self.journal)

    def memory_bytes(self) -> int:
        found = processes.look(self.farm.running[GATEWAY].pid)
        return processes.memory_bytes(found) if found else 0

    def register(self, kits: list[camera_faults.Kit]) -> None:
        with psycopg.connect(self.farm.cloud_db.admin_url) as connection:
            camera_account.register(connection, kits, tenant_id=TENANT)

    @contextlib.asynccontextmanager
    async def cameras(
        self,
        count: int,
        faults: Faults,
        *,
        firmware: Firmware = FIRMWARE,
        timing: Timing | None = None,
        dialects: tuple[Dialect, ...] = DIALECTS,
    ) -> AsyncIterator[list[SimulatedCamera]]:
        kits = camera_faults.fleet(count, faults=faults, dialects=dialects)
        self.register(kits)
        with contextlib.closing(Journal(self.journal)) as journal:
            yield fleet.cameras(
                kits,
                self.farm.environment["FARMIQ_CAMERAS_MQTT_URL"],
                self.folder / "cards",
                journal,
                faults=faults,
                timing=timing or Timing(every_s=0.5),
                firmware=firmware,
                witness=self.cloud.witness,
            )

    async def watched(self, made: list[SimulatedCamera], *, wakes: int) -> Watched:
        """The fleet's life, while the gateway's memory and the awake cameras are looked at."""
        living = asyncio.create_task(fleet.simulate(made, wakes=wakes))
        seen = Watched()
        while not living.done():
            awake = sum(each.is_awake for each in made)
            seen = Watched(max(seen.memory_bytes, self.memory_bytes()), max(seen.awake, awake))
            await asyncio.wait([living], timeout=0.2)
        living.result()
        return seen

    async def check(self, *, captured: int) -> None:
        """Every image once, whole and byte for byte; every wake counted once."""
        verdict = await self.cloud.report(self.journal)
        assert verdict.clean, json.dumps(verdict.as_json(), indent=1)
        assert verdict.waiting == 0
        assert (verdict.findings.sent, verdict.findings.stored) == (captured, captured)
        (wakes,) = self.farm.cloud("select count(*)::integer from device_wake_payloads")
        assert wakes == (captured,)

    async def kill(self, name: str) -> None:
        """The gateway, or an engine: without a goodbye; then it is there again."""
        if name == GATEWAY:
            self.farm.kill(GATEWAY)
            await self.start()
        else:
            await asyncio.to_thread(self.engines.kill, name)
            await asyncio.to_thread(self.engines.restart, name)

    @contextlib.contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        running = self.farm.running[name]
        running.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            running.send_signal(signal.SIGCONT)

    async def until_in_mid_image(self, *, beyond: int = 0) -> None:
        """Some image is announced, some of its chunks are here, and not all."""
        await until(lambda: self.in_mid_image() > beyond, within_s=60)

    def in_mid_image(self) -> int:
        try:
            (count,) = self.farm.cloud(_IN_MID_IMAGE)
        except psycopg.OperationalError:
            return 0
        return int(count[0])


_IN_MID_IMAGE = """
    select count(*) from device_images i
    where i.status = 'receiving' and exists (
      select from camera_transfers t join camera_chunks c on c.transfer_id = t.transfer_id
      where t.image_id = i.image_id)
"""


@contextlib.contextmanager
def farm_of(
    engines: stack.Stack,
    folder: Path,
    database: Database,
    environment: dict[str, str],
    free_port: Callable[[], int],
) -> Iterator[CameraFarm]:
    with psycopg.connect(database.admin_url) as connection:
        add_company(connection, TENANT, name="Hillside Farm")
    settings = {
        **engines.environment,
        **environment,
        **IMPATIENT,
        "FARMIQ_CLOUD_DB_URL": database.url,
        "FARMIQ_CLOUD_DB_ADMIN_URL": database.admin_url,
    }
    farm = Farm(settings, folder, NO_DATABASE, database, {GATEWAY: free_port()})
    try:
        yield CameraFarm(farm, engines, folder)
    finally:
        farm.stop()
