"""Node-RED in row mode: mqtt in (QoS 1) → function → PostgreSQL node, one insert per message.

The last one is a ready-made node as its users have it, with its pool's default of ten connections.
The table has the columns and indexes of telemetry_raw; there is no dedupe and no outbox, and it
acknowledges on receipt: what is in its memory is lost in a crash.
"""

import asyncio
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import psycopg

from bench import ingest
from bench.ingest import Bench, Running, Storing, Taken
from farmiq import config
from farmiq.lab.stack import StackError, processes
from farmiq.plumbing import ids

PACKAGES = ("node-red@4.1.8", "node-red-contrib-postgrestor-next@0.5.2")
NODE = PACKAGES[1].partition("@")[0]
POOL = 10
TABLE = "bench_node_red"

_FUNCTION = """
const sent = msg.payload, place = msg.topic.split("/");
msg.params = [sent.event_id, place[2], place[3], place[4], place[5], sent.ts,
  sent.payload.metric_type, sent.payload.metric_value, sent.payload.unit];
return msg;
"""
_INSERT = f"""
insert into {TABLE} (id, tenant_id, farm_id, barn_id, device_id, occurred_at,
  metric_type, metric_value, unit) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""  # noqa: S608 - our own table


def install(downloads: Path, say: Callable[[str], None]) -> Path:
    """Return a folder with Node-RED in it, fetched by npm the first time."""
    home = downloads.resolve() / "node-red-4.1.8-rows"
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


async def row_by_row(bench: Bench, home: Path, events: int) -> Taken:
    with psycopg.connect(bench.admin_url) as connection:
        connection.execute(f"drop table if exists {TABLE}".encode())
        connection.execute(f"create table {TABLE} (like telemetry_raw including all)".encode())

    @contextlib.asynccontextmanager
    async def start(client_id: str) -> AsyncIterator[Storing]:
        async with _running(bench, home, client_id) as running:
            await running.said(b"Connected to broker")
            yield Storing("node_red", running, bench.admin_url, TABLE)

    return await ingest.take(bench, events, start)


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
    settings = f"""
        module.exports = {{
          uiHost: "127.0.0.1", uiPort: {ingest.free_port()}, httpAdminRoot: false,
          credentialSecret: false, telemetry: {{ enabled: false }},
          nodesDir: [{json.dumps(str(home / "node_modules" / NODE))}],
        }};
    """
    (folder / "settings.js").write_text(settings, encoding="utf-8")
    flow = _flow(broker.port, client_id, urlsplit(bench.admin_url))
    (folder / "flows.json").write_text(json.dumps(flow), encoding="utf-8")
    login = {"user": unquote(broker.username or ""), "password": unquote(broker.password or "")}
    (folder / "flows_cred.json").write_text(json.dumps({"broker": login}), encoding="utf-8")


def _flow(port: int | None, client_id: str, database: SplitResult) -> list[dict[str, object]]:
    return [
        {"id": "tab", "type": "tab", "label": "bench"},
        {
            "id": "broker", "type": "mqtt-broker", "broker": "127.0.0.1", "port": str(port),
            "clientid": client_id, "autoConnect": True, "usetls": False, "protocolVersion": "4",
            "keepalive": "60", "cleansession": False, "autoUnsubscribe": False,
        },
        {
            "id": "in", "z": "tab", "type": "mqtt in", "topic": "iot/telemetry/#", "qos": "1",
            "datatype": "json", "broker": "broker", "inputs": 0, "wires": [["read"]],
        },
        {
            "id": "read", "z": "tab", "type": "function", "func": _FUNCTION, "outputs": 1,
            "initialize": "", "finalize": "", "libs": [], "wires": [["keep"]],
        },
        {
            "id": "keep", "z": "tab", "type": "postgrestor", "query": _INSERT,
            "postgresDB": "database", "output": True, "outputs": 1, "wires": [[]],
        },
        {
            "id": "database", "type": "postgresDB", "max": POOL, "maxFieldType": "num",
            "host": database.hostname, "hostFieldType": "str",
            "port": database.port, "portFieldType": "num",
            "database": database.path[1:], "databaseFieldType": "str",
            "user": unquote(database.username or ""), "userFieldType": "str",
            "password": unquote(database.password or ""), "passwordFieldType": "str",
            "ssl": "false", "sslFieldType": "bool",
        },
    ]  # fmt: skip
