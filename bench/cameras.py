"""Battery cameras: memory and CPU of the gateway when many send at once (P12), and speed (P13).

Twenty cameras with one gateway, then two hundred with another. Each has its own image and loses a
third of its chunks; every image has to be stored byte for byte. P13 compares two hundred cameras
without loss with COPY of all chunks as plain rows and one PUT for each image, with QoS 0 as
docs/integrate/camera-protocol.md advises and with QoS 1; then the same two hundred while two
thousand are connected; then six hundred that wake within twenty seconds.
"""

import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import psycopg

from bench import ingest, machine, results
from bench.results import Result
from farmiq import config
from farmiq.cloud.identity.accounts import add_company
from farmiq.lab import stack
from farmiq.lab.simulate import camera_account, camera_faults, camera_wire, fleet
from farmiq.lab.simulate.camera import Firmware
from farmiq.lab.simulate.camera_account import Cloud
from farmiq.lab.simulate.camera_faults import Faults
from farmiq.lab.simulate.fleet import SimulatedCamera, Timing
from farmiq.lab.simulate.journal import Journal
from farmiq.lab.stack import Stack
from farmiq.plumbing import migrations
from farmiq.plumbing.storage.objects import Bucket
from farmiq.services import SQL

ENGINES = ("postgres-cloud", "mqtt-cloud", "s3")
GATEWAY = "cloud-camera-gateway"
TENANT = "bench"
MAX_MORE_MB = 64
PROGRESS_S = 10.0
# A whole fleet on a few cores: its cameras wait longer for answers before they repeat an image.
PATIENT = Firmware(answer_s=40.0, awake_s=1200.0)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rounds: int = 3
    few: int = 20
    many: int = 200
    connected: int = 2000
    burst: int = 600
    burst_s: float = 20.0
    loss: float = 0.3
    qos: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What a fleet needed: maximum memory of the gateway, and CPU per chunk by process."""

    cameras: int
    resident_mb: float
    images_per_s: float
    chunks: int
    bytes_each: int
    us_per_chunk: dict[str, float]
    took_s: float
    awake_s: float
    broker_errors: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Floor:
    """The baseline: COPY of a fleet's chunks and one PUT for each image."""

    took_s: float
    us_per_chunk: dict[str, float]


async def measure(plan: Plan, say: Say) -> list[Result]:
    """P12 and all of P13; saved to bench/results.json and docs/develop/bench.md."""
    here = machine.description()
    root = config.state_dir() / "stacks" / "bench-cameras"
    stack.remove(root)  # what an interrupted run has left
    rounds: list[tuple[Fleet, Fleet]] = []
    lossless: dict[int, list[tuple[Fleet, Floor]]] = {0: [], 1: []}
    bursts: list[Fleet] = []
    crowded: list[tuple[Fleet, Fleet]] = []
    with stack.start(root, engines=ENGINES, say=say) as engines:
        admin_url = engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
        migrations.apply(admin_url, SQL["cloud"])
        with psycopg.connect(admin_url) as connection:
            add_company(connection, TENANT, name="Bench")
        for number in range(plan.rounds):
            seeds = iter(range(6 * number, 6 * number + 6))
            few = await _fleet(engines, plan, count=plan.few, seed=next(seeds), say=say)
            many = await _fleet(engines, plan, count=plan.many, seed=next(seeds), say=say)
            rounds.append((few, many))
            plain = replace(plan, loss=0.0)
            for qos, pairs in lossless.items():
                sent = replace(plain, qos=qos)
                fast = await _fleet(engines, sent, count=plan.many, seed=next(seeds), say=say)
                pairs.append((fast, await _floor(engines, fast, say)))
            seed = next(seeds)
            async with _connected(engines, plan.connected - plan.many, qos=plan.qos, seed=seed):
                beside = await _fleet(engines, plain, count=plan.many, seed=seed, say=say)
            crowded.append((lossless[plan.qos][-1][0], beside))
            bursts.append(
                await _fleet(
                    engines,
                    plain,
                    count=plan.burst,
                    seed=next(seeds),
                    spread_s=plan.burst_s,
                    say=say,
                )
            )
    stack.remove(root)
    measured = [
        result(plan, rounds),
        speed(plan, lossless[plan.qos]),
        replace(speed(plan, lossless[1]), id="P13 QoS 1", target=">= 0.3"),
        beside_connected(plan, crowded),
        burst(plan, bursts),
    ]
    results.save(measured, machine=here)
    return measured


async def _floor(engines: Stack, fleet: Fleet, say: Say) -> Floor:
    chunk = b"x" * (fleet.bytes_each * fleet.cameras // fleet.chunks)
    image = b"x" * fleet.bytes_each
    bucket = Bucket(engines.environment["FARMIQ_CLOUD_S3_URL"])
    url = engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("create table plain (image int, chunk int, data bytea)")
        await connection.commit()
        before = _cpu_of_floor(engines)
        began = time.perf_counter()
        async with (
            connection.cursor() as cursor,
            cursor.copy("copy plain from stdin") as copy,
        ):
            for number in range(fleet.chunks):
                await copy.write_row((number % fleet.cameras, number, chunk))
        await connection.commit()
        for number in range(fleet.cameras):
            await bucket.put(f"bench/{began}/{number}", image, content_type="image/jpeg")
        took_s = time.perf_counter() - began
        after = _cpu_of_floor(engines)
        await connection.execute("drop table plain")
    us_per_chunk = {name: (after[name] - before[name]) / fleet.chunks * 1e6 for name in before}
    say(f"the least       {fleet.cameras / took_s:.1f} images/s by COPY and PUT")
    return Floor(took_s, us_per_chunk)


def _cpu_of_floor(engines: Stack) -> dict[str, float]:
    engine_s = {name: machine.cpu_s(engines.pid(name)) for name in ("postgres-cloud", "s3")}
    return {"client": time.process_time(), **engine_s}


def speed(plan: Plan, lossless: Sequence[tuple[Fleet, Floor]]) -> Result:
    fleets, floors = [fleet for fleet, _ in lossless], [floor for _, floor in lossless]
    measured = results.of_runs(
        "P13",
        f"images/s of {plan.many} cameras at once / COPY of their chunks and one PUT per image",
        [fleet.images_per_s * floor.took_s / fleet.cameras for fleet, floor in lossless],
        target=">= 0.4",
        detail={
            "images/s": round(statistics.median(fleet.images_per_s for fleet in fleets), 1),
            "by COPY and PUT, images/s": round(
                statistics.median(fleet.cameras / floor.took_s for fleet, floor in lossless), 1),
            "CPU, µs per chunk": {
                name: round(statistics.median(fleet.us_per_chunk[name] for fleet in fleets))
                for name in fleets[0].us_per_chunk
            },
            "CPU by COPY and PUT, µs per chunk": {
                name: round(statistics.median(floor.us_per_chunk[name] for floor in floors))
                for name in floors[0].us_per_chunk
            },
        },
    )  # fmt: skip
    return replace(measured, sound=all(fleet.complete for fleet in fleets))


def beside_connected(plan: Plan, crowded: Sequence[tuple[Fleet, Fleet]]) -> Result:
    measured = results.of_runs(
        "P13 connected",
        f"images/s of {plan.many} cameras with {plan.connected} connected / with {plan.many}",
        [beside.images_per_s / alone.images_per_s for alone, beside in crowded],
        target=">= 0.7",
        detail={
            "images/s": {
                f"{plan.many} connected": round(
                    statistics.median(alone.images_per_s for alone, _ in crowded), 1),
                f"{plan.connected} connected": round(
                    statistics.median(beside.images_per_s for _, beside in crowded), 1),
            },
        },
    )  # fmt: skip
    return replace(measured, sound=all(fleet.complete for pair in crowded for fleet in pair))


def burst(plan: Plan, fleets: Sequence[Fleet]) -> Result:
    """Not sound if an image is missing or the broker writes an error."""
    measured = results.of_runs(
        "P13 burst",
        f"s until {plan.burst} cameras that wake within {plan.burst_s:g} s are acknowledged",
        [fleet.took_s for fleet in fleets],
        target="<= 120",
        detail={
            "errors in the broker's log": sum(fleet.broker_errors for fleet in fleets),
            "awake, median s": round(statistics.median(fleet.awake_s for fleet in fleets), 1),
        },
    )
    return replace(
        measured, sound=all(fleet.complete and not fleet.broker_errors for fleet in fleets)
    )


@contextlib.asynccontextmanager
async def _connected(engines: Stack, count: int, *, qos: int, seed: int) -> AsyncIterator[None]:
    """More cameras that are connected, subscribe to their topics and send nothing."""
    url = urlsplit(engines.environment["FARMIQ_CAMERAS_MQTT_URL"])
    kits = camera_faults.fleet(count, faults=Faults(seed=1_000_000 + seed))
    links = []
    try:
        for kit in kits:
            links.append(await asyncio.open_connection(url.hostname, url.port))
            reader, writer = links[-1]
            writer.write(_mqtt_connect(f"camera-{kit.mac}", url))
            for topic in camera_wire.listens(kit.speech):
                writer.write(_mqtt_packet(0x82, b"\0\1" + _mqtt_text(topic) + bytes([qos])))
            # The last byte of CONNACK is 0 unless the connection is rejected.
            if not (await reader.readexactly(4)).endswith(b"\0"):
                raise RuntimeError(f"the broker rejects camera {kit.mac}")
        yield
    finally:
        for _, writer in links:
            writer.close()


def _mqtt_connect(client_id: str, url: SplitResult) -> bytes:
    """A clean session without keep-alive."""
    fields = [client_id, unquote(url.username or ""), unquote(url.password or "")]
    head = _mqtt_text("MQTT") + b"\x04\xc2\0\0"
    return _mqtt_packet(0x10, head + b"".join(map(_mqtt_text, fields)))


def _mqtt_packet(kind: int, body: bytes) -> bytes:
    return bytes([kind, len(body)]) + body


def _mqtt_text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def result(plan: Plan, rounds: Sequence[tuple[Fleet, Fleet]]) -> Result:
    """Not sound unless every image is stored."""
    many = [large for _, large in rounds]
    complete = all(fleet.complete for pair in rounds for fleet in pair)
    measured = results.of_runs(
        "P12",
        f"camera gateway's resident memory at {plan.many} cameras above that at {plan.few}, MB",
        [large.resident_mb - few.resident_mb for few, large in rounds],
        target=f"<= {MAX_MORE_MB}",
        detail={
            f"images of {plan.few} and {plan.many} cameras at once, {plan.loss:.0%} of chunks lost":
                "all complete and byte for byte" if complete else "NOT all complete",
            "resident at its most, MB": {
                f"at {plan.few}": statistics.median(few.resident_mb for few, _ in rounds),
                f"at {plan.many}": statistics.median(large.resident_mb for large in many),
            },
            f"images/s of {plan.many} at once": round(
                statistics.median(large.images_per_s for large in many), 2),
            "an image": f"{many[0].bytes_each // 1000} kB in "
                f"{many[0].chunks / many[0].cameras:.0f} chunks, on average",
            "awake, median s": {
                f"at {plan.few}": round(statistics.median(few.awake_s for few, _ in rounds), 1),
                f"at {plan.many}": round(statistics.median(large.awake_s for large in many), 1),
            },
            "CPU, µs per chunk": {
                name: round(statistics.median(large.us_per_chunk[name] for large in many))
                for name in many[0].us_per_chunk
            },
        },
    )  # fmt: skip
    return replace(measured, sound=complete)


async def _fleet(
    engines: Stack, plan: Plan, *, count: int, seed: int, say: Say, spread_s: float = 0.0
) -> Fleet:
    errors_before = _broker_errors(engines)
    folder = engines.root / "fleets" / f"{seed}"
    with _cameras(engines, plan, count, seed, folder) as cameras:
        async with _gateway(engines) as running:
            await asyncio.gather(*(camera.prepare() for camera in cameras))
            pids = {"gateway": running.pid} | {name: engines.pid(name) for name in ENGINES}
            before = {name: machine.cpu_s(pid) for name, pid in pids.items()} | _own_cpu()
            began = time.perf_counter()
            awake_s = await _all_wake(cameras, running, spread_s, say)
            took_s = time.perf_counter() - began
            after = {name: machine.cpu_s(pid) for name, pid in pids.items()} | _own_cpu()
            resident_mb = max_resident_mb(running.pid)
    verdict = await _cloud(engines).report(folder / "captures.jsonl")
    chunks, size = _sent(engines, [camera.kit.mac for camera in cameras])
    measured = Fleet(
        cameras=count,
        resident_mb=resident_mb,
        images_per_s=count / took_s,
        chunks=chunks,
        bytes_each=size // count,
        us_per_chunk={name: (after[name] - before[name]) / chunks * 1e6 for name in before},
        took_s=took_s,
        awake_s=awake_s,
        broker_errors=_broker_errors(engines) - errors_before,
        complete=verdict.clean and verdict.waiting == 0 and verdict.findings.stored == count,
    )
    text = "all complete, byte for byte" if measured.complete else json.dumps(verdict.as_json())
    say(
        f"cameras         {count:>4} at once: {text}; {resident_mb:.0f} MB, "
        f"{measured.images_per_s:.1f} images/s, awake {awake_s:.1f} s, "
        f"{measured.us_per_chunk['gateway']:.0f} µs per chunk"
    )
    return measured


@contextlib.asynccontextmanager
async def _gateway(engines: Stack) -> AsyncIterator[ingest.Running]:
    port = ingest.free_port()
    environment = {
        **engines.environment,
        "FARMIQ_CLOUD_HTTP_PORT": f"{port}",
        # The settings need it; the gateway has no bus.
        "FARMIQ_AMQP_URL": "amqp://unused",
    }
    async with ingest.service(engines.root, GATEWAY, environment) as running:
        await ingest.until_ready(running, f"http://127.0.0.1:{port}")
        yield running


@contextlib.contextmanager
def _cameras(
    engines: Stack, plan: Plan, count: int, seed: int, folder: Path
) -> Iterator[list[SimulatedCamera]]:
    faults = Faults(loss=plan.loss, seed=seed)
    kits = camera_faults.fleet(count, faults=faults)
    with psycopg.connect(engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]) as connection:
        camera_account.register(connection, kits, tenant_id=TENANT)
    folder.mkdir(parents=True)
    with contextlib.closing(Journal(folder / "captures.jsonl")) as journal:
        yield fleet.cameras(
            kits,
            engines.environment["FARMIQ_CAMERAS_MQTT_URL"],
            folder / "cards",
            journal,
            faults=faults,
            timing=Timing(qos=plan.qos),
            firmware=PATIENT,
        )


def _broker_errors(engines: Stack) -> int:
    log = engines.root / "logs" / "mqtt-cloud.log"
    return log.read_text(encoding="utf-8", errors="replace").count("[ERR]")


async def _all_wake(
    cameras: list[SimulatedCamera], running: ingest.Running, spread_s: float, say: Say
) -> float:
    """The median time that a camera is awake, from its first packet to its last."""

    async def live(camera: SimulatedCamera, phase_s: float) -> float:
        await asyncio.sleep(phase_s)
        began = time.perf_counter()
        await camera.live(wakes=1)
        await camera.deliver()
        return time.perf_counter() - began

    phases_s = (spread_s * number / len(cameras) for number in range(len(cameras)))
    living = asyncio.gather(*map(live, cameras, phases_s))
    while not living.done():
        await asyncio.wait([living], timeout=PROGRESS_S)
        running.check()
        awake = sum(camera.is_awake for camera in cameras)
        if awake:
            say(f"cameras         {awake} of {len(cameras)} still send")
    return statistics.median(await living)


def _own_cpu() -> dict[str, float]:
    """The cameras are simulated in this process."""
    return {"cameras": time.process_time()}


def max_resident_mb(pid: int) -> float:
    """Maximum memory of a process, from the kernel."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / 1024, 1)
    raise RuntimeError(f"process {pid} has no memory any more")


def _cloud(engines: Stack) -> Cloud:
    environment = engines.environment
    return camera_account.Cloud(
        environment["FARMIQ_CLOUD_DB_ADMIN_URL"], Bucket(environment["FARMIQ_CLOUD_S3_URL"])
    )


def _sent(engines: Stack, macs: list[str]) -> tuple[int, int]:
    """Chunks and bytes of these cameras' images."""
    query = """
        select coalesce(sum(i.total_chunks), 0)::integer, coalesce(sum(i.image_size), 0)::bigint
        from device_images i join devices d on d.device_id = i.device_id where d.mac = any(%s)
    """
    with psycopg.connect(engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]) as connection:
        row: Any = connection.execute(query, (macs,)).fetchone()
    return max(1, int(row[0])), int(row[1])
