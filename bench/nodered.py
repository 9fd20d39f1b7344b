"""Node-RED in row mode: mqtt in (QoS 1) → function → one insert per message.

The function holds PostgreSQL's own driver for Node (`pg`, pooled, prepared), which is less work
than any of the ready-made nodes. Its table has the columns and indexes of telemetry_raw; there is
no dedupe and no outbox, and it acknowledges on receipt: what is in its memory is lost in a crash.
"""

import asyncio
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg

from bench import ingest
from bench.ingest import Bench, Drained, Running
from farmiq import config
from farmiq.plumbing import ids
from farmiq.stack import StackError, processes

PACKAGES = ("node-red@4.1.8", "pg@8.23.1")
TABLE = "bench_node_red"

_FUNCTION = """
const sent = msg.payload, place = msg.topic.split("/");
await global.get("pool").query({
  name: "keep",
  text: "insert into bench_node_red (id, tenant_id, farm_id, barn_id, device_id, occurred_at, "
    + "metric_type, metric_value, unit) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
  values: [sent.event_id, place[2], place[3], place[4], place[5], sent.ts,
    sent.payload.metric_type, sent.payload.metric_value, sent.payload.unit],
});
return null;
"""


def install(downloads: Path, say: Callable[[str], None]) -> Path:
    """Return a folder with Node-RED in it, fetched by npm the first time."""
    home = downloads.resolve() / "node-red-4.1.8"
    if (home / "complete").exists():
        return home
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise StackError("Node-RED needs node and npm on the PATH; or leave it out: --no-node-red")
    say(f"node-red        fetching {', '.join(PACKAGES)} by npm")
    home.mkdir(parents=True, exist_ok=True)
    (home / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    flags = ("--no-audit", "--no-fund", "--no-package-lock", "--omit=dev", "--loglevel=error")
    done = subprocess.run(  # noqa: S603
        [npm, "install", *flags, *PACKAGES],
        cwd=home, capture_output=True, text=True, check=False, env=config.environment(),
    )  # fmt: skip
    if done.returncode != 0:
        raise StackError(f"npm could not fetch Node-RED:\n{done.stderr.strip()}")
    (home / "complete").touch()
    return home


async def row_by_row(bench: Bench, home: Path, events: int) -> Drained:
    with psycopg.connect(bench.admin_url) as connection:
        connection.execute(f"drop table if exists {TABLE}".encode())
        connection.execute(f"create table {TABLE} (like telemetry_raw including all)".encode())

    async def way(client_id: str) -> Drained:
        async with _running(bench, home, client_id) as running:
            before = bench.cpu_s(node_red=running.pid)
            await ingest.until_stored(bench.admin_url, TABLE, events, running.check)
            used = ingest.per_event(before, bench.cpu_s(node_red=running.pid), events)
        return Drained(_per_s(bench.admin_url), used)

    return await ingest.drain(bench, events, way)


def _per_s(admin_url: str) -> float:
    """From the first insert to the last, so that its start does not count."""
    query = f"""
        select (count(*) - 1) / extract(epoch from max(ingested_at) - min(ingested_at))
        from {TABLE}
    """  # noqa: S608
    with psycopg.connect(admin_url) as connection:
        row = connection.execute(query.encode()).fetchone()
    return float(row[0]) if row else 0.0


@contextlib.asynccontextmanager
async def _running(bench: Bench, home: Path, client_id: str) -> AsyncIterator[Running]:
    folder = bench.engines.root / "node-red"
    folder.mkdir(exist_ok=True)
    _configure(folder, home, bench, client_id)
    log = bench.engines.root / "logs" / f"node-red-{ids.new().hex}.log"
    launch = processes.Launch(
        argv=(
            shutil.which("node") or "node", str(home / "node_modules" / "node-red" / "red.js"),
            "-s", str(folder / "settings.js"), "-u", str(folder), str(folder / "flows.json"),
        ),
        environment=config.environment(over={"HOME": str(folder)}),
        folder=folder,
        log=log,
    )  # fmt: skip
    process = await asyncio.to_thread(processes.spawn, launch, detach=False)
    try:
        yield Running(process, log)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 20)


def _configure(folder: Path, home: Path, bench: Bench, client_id: str) -> None:
    broker = urlsplit(bench.url)
    driver = json.dumps(str(home / "node_modules" / "pg"))
    settings = f"""
        const {{ Pool }} = require({driver});
        const pool = new Pool({{ connectionString: {json.dumps(bench.admin_url)} }});
        module.exports = {{
          uiHost: "127.0.0.1", uiPort: {ingest.free_port()}, httpAdminRoot: false,
          credentialSecret: false, telemetry: {{ enabled: false }},
          functionGlobalContext: {{ pool }},
        }};
    """
    (folder / "settings.js").write_text(settings, encoding="utf-8")
    (folder / "flows.json").write_text(json.dumps(_flow(broker.port, client_id)), encoding="utf-8")
    login = {"user": unquote(broker.username or ""), "password": unquote(broker.password or "")}
    (folder / "flows_cred.json").write_text(json.dumps({"broker": login}), encoding="utf-8")


def _flow(port: int | None, client_id: str) -> list[dict[str, object]]:
    return [
        {"id": "tab", "type": "tab", "label": "bench"},
        {
            "id": "broker", "type": "mqtt-broker", "broker": "127.0.0.1", "port": str(port),
            "clientid": client_id, "autoConnect": True, "usetls": False, "protocolVersion": "4",
            "keepalive": "60", "cleansession": False, "autoUnsubscribe": False,
        },
        {
            "id": "in", "z": "tab", "type": "mqtt in", "topic": "iot/telemetry/#", "qos": "1",
            "datatype": "json", "broker": "broker", "inputs": 0, "wires": [["keep"]],
        },
        {
            "id": "keep", "z": "tab", "type": "function", "func": _FUNCTION, "outputs": 1,
            "initialize": "", "finalize": "", "libs": [], "wires": [[]],
        },
    ]  # fmt: skip
