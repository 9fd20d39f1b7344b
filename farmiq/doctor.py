"""`farmiq doctor` on a site: probes what its settings name, and says what to do.

What a machine is follows from its settings: FARMIQ_EDGE_DB_URL makes it an edge,
FARMIQ_CLOUD_DB_URL a cloud, AGENT_DEVICE_ID a weigh station. It may be several.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
import msgspec
import psycopg

from farmiq import site_checks
from farmiq.cloud import bus
from farmiq.cloud.deadletter import watch
from farmiq.config import CloudSettings, DeviceSettings, EdgeSettings, SettingsError
from farmiq.device.status import needs_attention
from farmiq.edge import broker, disk
from farmiq.edge.ingress import quarantine
from farmiq.edge.sync import handlers
from farmiq.edge.vision import store as vision_store
from farmiq.messages import topics
from farmiq.plumbing import db, migrations
from farmiq.plumbing.broker import store as broker_store
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.messaging import cursor, mqtt, nats, stream
from farmiq.plumbing.storage.objects import Bucket
from farmiq.plumbing.tls import Tls
from farmiq.services import SQL
from farmiq.site_checks import Finding

PATIENCE_S = 10.0
BROKER_PATIENCE_S = 3.0
SERVICES_PATIENCE_S = 5.0
# Messages in a broker's log: a busy farm stores so many in a few seconds.
MAX_BEHIND = 10_000
# So long nothing may be done of the images that wait to be looked at: some take a while.
MAX_VISION_IDLE_S = 900.0
# Tokens of edges are good for minutes, and readings are placed by their time.
MAX_CLOCK_OFFSET_S = 30.0
HTTP_OK = 200
THRESHOLDS = disk.Thresholds(warn_percent=85, shed_percent=92)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `remedy` is empty when nothing is wrong."""

    name: str
    healthy: bool
    detail: str
    remedy: str = ""


Probe = Callable[[], Awaitable[Finding]]


def is_configured(environment: Mapping[str, str]) -> bool:
    """Say whether the settings name anything that could be looked at."""
    marks = ("FARMIQ_EDGE_DB_URL", "FARMIQ_CLOUD_DB_URL", "AGENT_DEVICE_ID")
    return any(environment.get(mark) for mark in marks)


async def examine(environment: Mapping[str, str]) -> list[Check]:
    """Probe all that the settings name, at the same time; none of it is changed."""
    failed: list[Check] = []
    probes: dict[str, Probe] = {}
    for mark, name, settings, make in (
        ("FARMIQ_EDGE_DB_URL", "edge", EdgeSettings, _edge),
        ("FARMIQ_CLOUD_DB_URL", "cloud", CloudSettings, _cloud),
        ("AGENT_DEVICE_ID", "device", DeviceSettings, _agent),
    ):
        if environment.get(mark):
            try:
                loaded: Any = settings.load(environment)
            except SettingsError as error:
                remedy = f"`farmiq config {name}` explains every setting"
                detail = str(error).replace("\n", "; ")
                failed.append(Check(f"{name} settings", False, detail, remedy))
                continue
            probes |= make(loaded)
            if name != "device" and environment.get("FARMIQ_BACKUP_URL"):
                probes[f"{name} backups"] = partial(site_checks.backups, name, environment)
    return failed + list(await asyncio.gather(*(_bounded(*probe) for probe in probes.items())))


def _edge(settings: EdgeSettings) -> dict[str, Probe]:
    db_url, tls = settings.db_url.get_secret_value(), settings.tls
    mqtt_url, cloud_url = settings.mqtt_url.get_secret_value(), settings.cloud_url

    async def outbox() -> Finding:
        async with _connected(db_url) as tx:
            return check_outbox(await handlers.status(tx), stall_s=settings.sync_stall_s)

    async def held() -> Finding:
        async with _connected(db_url) as tx:
            count, _ = await quarantine.size(tx)
        remedy = _remedy(count, "`farmiq quarantine ls` shows why they were refused")
        return f"{count:,} messages", remedy

    async def key() -> Finding:
        file = settings.edge_key_file
        if not os.access(file, os.R_OK):
            remedy = "`farmiq edge enroll` makes it; is it readable for this user?"
            return f"{file} cannot be read", remedy
        async with _connected(db_url) as tx:
            return await site_checks.edge_key(settings, tx)

    async def disks() -> Finding:
        thresholds = disk.Thresholds(settings.disk_warn_percent, settings.disk_shed_percent)
        return check_disk(disk.paths(settings.disk_paths), thresholds)

    async def vision() -> Finding:
        patience_s = settings.vision_wait_s + MAX_VISION_IDLE_S
        async with _connected(db_url) as tx:
            waiting, idle_s, why = await vision_store.standstill(tx, wait_s=patience_s)
        bad = waiting and idle_s > patience_s
        detail = f"{waiting:,} weighings and images wait for long to be looked at"
        remedy = "is edge-vision-inference running, with the extra `vision`? /readyz says why not"
        return (f"{detail}: {why}" if bad and why else detail), _remedy(bad, remedy)

    probes: dict[str, Probe] = {
        "edge database": partial(_database, "edge", db_url),
        "edge broker": partial(check_broker, mqtt_url, tls, "FARMIQ_EDGE_MQTT_URL"),
        "edge services": partial(_services, "edge", settings),
        "edge outbox": outbox,
        "edge quarantine": held,
        "edge key": key,
        "edge disk": disks,
        "edge clock": partial(_clock, cloud_url, tls, "the cloud"),
        **_of_site("edge", settings),
    }
    if settings.s3_url is not None and settings.vision:
        probes["edge vision"] = vision
    if (log_url := broker.log_url(settings)) is not None:
        probes["edge log"] = partial(_log, log_url, topics.LOG, db_url, tls)
    return probes | _stores("edge", settings)


def _cloud(settings: CloudSettings) -> dict[str, Probe]:
    db_url, tls = settings.db_url.get_secret_value(), settings.tls

    async def queues() -> Finding:
        limits = watch.limits(settings)
        try:
            counts = await amqp.counts(settings.amqp_url.get_secret_value(), limits, tls=tls)
        except amqp.UNAVAILABLE as error:
            why = f"does not answer: {amqp.why(error)}"
            return why, "start RabbitMQ, or correct FARMIQ_AMQP_URL"
        detail, remedy = check_queues({name: c.messages for name, c in counts.items()}, limits)
        services = {work.queue: work.service for work in bus.WORKS}
        lonely, who = site_checks.check_consumers(counts, services)
        return (f"{detail}; {lonely}" if who else detail), "; ".join(filter(None, (remedy, who)))

    async def clock() -> Finding:
        async with _connected(db_url) as tx:
            rows = await db.fetch_all(tx, "select extract(epoch from clock_timestamp())::float8")
        return check_clock(time.time() - rows[0][0], "the database")

    async def disks() -> Finding:
        return check_disk(("/",), THRESHOLDS)

    probes: dict[str, Probe] = {
        "cloud database": partial(_database, "cloud", db_url),
        "cloud bus": queues,
        "cloud services": partial(_services, "cloud", settings),
        "cloud disk": disks,
        "cloud clock": clock,
        **_of_site("cloud", settings),
    }
    if settings.mqtt_url is not None:
        url = settings.mqtt_url.get_secret_value()
        probes["cloud broker"] = partial(check_broker, url, tls, "FARMIQ_CLOUD_MQTT_URL")
    return probes | _stores("cloud", settings)


def _of_site(site: str, settings: EdgeSettings | CloudSettings) -> dict[str, Probe]:
    """What both sites have."""
    db_url, address = settings.db_url.get_secret_value(), base_url(settings)
    token = settings.metrics_token.get_secret_value() if settings.metrics_token else None

    async def partitions() -> Finding:
        async with _connected(db_url) as tx:
            return await site_checks.partitions(site, tx)

    async def drill() -> Finding:
        async with _connected(db_url) as tx:
            return await site_checks.drill(site, tx)

    probes: dict[str, Probe] = {
        f"{site} months": partitions,
        f"{site} drill": drill,
        f"{site} version": partial(site_checks.version, address, site),
        f"{site} jobs": partial(site_checks.jobs, address, token),
    }
    if settings.tls_cert_file is not None:
        probes[f"{site} certificate"] = partial(site_checks.certificate, settings.tls)
    return probes


def _stores(site: str, settings: EdgeSettings | CloudSettings) -> dict[str, Probe]:
    probes: dict[str, Probe] = {}
    if settings.broker_monitor_url is not None:
        monitor_url = settings.broker_monitor_url
        probes[f"{site} broker's store"] = partial(
            check_broker_store, site, monitor_url, settings.tls
        )
    if settings.s3_url is not None:
        url = settings.s3_url.get_secret_value()
        probes[f"{site} images"] = partial(_bucket, site, url, settings.tls)
    return probes


def _agent(settings: DeviceSettings) -> dict[str, Probe]:
    async def agent() -> Finding:
        url = f"http://{settings.status_host}:{settings.status_port}/status.json"
        try:
            async with httpx2.AsyncClient(timeout=5, verify=False) as client:  # plain HTTP
                status = (await client.get(url)).raise_for_status().json()
        except (httpx2.HTTPError, ValueError):
            remedy = "start it with `farmiq agent run`; `farmiq agent status` looks into its buffer"
            return f"nothing answers on {url}", remedy
        return check_agent(status)

    async def disks() -> Finding:
        return check_disk((str(settings.buffer_dir),), THRESHOLDS)

    tls = settings.tls
    return {
        "agent": agent,
        "agent broker": partial(
            check_broker, settings.mqtt_url.get_secret_value(), tls, "AGENT_MQTT_URL"
        ),
        "agent disk": disks,
        "agent clock": partial(_clock, settings.edge_url, tls, "the edge"),
    }


def check_outbox(tenants: list[handlers.TenantStatus], *, stall_s: float) -> Finding:
    """Pure: what waits is fine as long as it moves; dead letters wait for a person."""
    waiting, dead = sum(tenant.waiting for tenant in tenants), sum(tenant.dlq for tenant in tenants)
    oldest_s = max((tenant.oldest_s for tenant in tenants), default=0.0)
    failing = [tenant.tenant_id for tenant in tenants if tenant.consecutive_failures]
    detail = f"{waiting:,} wait for the cloud, the oldest for {oldest_s:,.0f} s; {dead:,} set aside"
    remedy = ""
    if dead:
        remedy = "`farmiq outbox ls --status dlq` says why the cloud refused them"
    elif failing:
        remedy = f"delivery fails for {', '.join(failing)}: `farmiq outbox stats` says why"
    elif oldest_s > stall_s:
        remedy = "nothing is delivered: is edge-sync-forwarder running, and the cloud reachable?"
    return detail, remedy


def check_queues(counts: Mapping[str, int], limits: Mapping[str, int]) -> Finding:
    """Pure: dead letters wait for a person, and a queue half full for its consumer."""
    piles = {bus.UNROUTED_QUEUE, *(work.dead_letters for work in bus.WORKS)}
    dead = sum(count for queue, count in counts.items() if queue in piles)
    unrouted = counts.get(bus.UNROUTED_QUEUE, 0)
    waiting = sum(counts.values()) - dead
    full = [name for name, count in counts.items() if count > limits[name] * watch.TOO_FULL]
    missing = sorted(set(limits) - set(counts))
    remedy = ""
    if missing:
        remedy = f"{len(missing)} queues are missing ({missing[0]}): `farmiq topology apply`"
    elif unrouted:
        remedy = f"no queue wants {unrouted:,}: `farmiq topology diff`, then `farmiq dlq redrive`"
    elif dead:
        remedy = "`farmiq dlq ls` says why services did not take them"
    elif full:
        remedy = f"{', '.join(full)} fills up: is its service running?"
    detail = f"{waiting:,} events wait in {len(counts)} queues; {dead:,} dead letters"
    return detail, remedy


def check_agent(status: Mapping[str, Any]) -> Finding:
    """Pure: what a running agent says of itself, as `farmiq agent status` shows it."""
    detail = (
        f"{'connected' if status['connected'] else 'not connected'}; {status['backlog']:,} events "
        f"and {status['pictures']['waiting']:,} pictures wait"
    )
    bad = needs_attention(dict(status))
    return detail, _remedy(bad, "`farmiq agent status` says what is wrong")


def check_clock(offset_s: float, other: str) -> Finding:
    """Pure: `offset_s` is how far this machine is ahead of the other."""
    far = abs(offset_s) > MAX_CLOCK_OFFSET_S
    words = f"{abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} {other}"
    return words, _remedy(far, "set the clock: is NTP running here?")


def check_disk(paths: tuple[str, ...], thresholds: disk.Thresholds) -> Finding:
    usage = {}
    for path in paths:
        try:
            usage[path] = disk.read_usage(path)
        except OSError as error:
            return str(error), "correct the path in the settings"
    fullness = disk.assess(usage, thresholds)
    full = fullness.state != "fine"
    detail = f"{fullness.path} is {fullness.percent:.0f} % full"
    return detail, _remedy(full, "make room, or give it a larger disk")


@asynccontextmanager
async def _connected(url: str) -> "AsyncIterator[psycopg.AsyncConnection]":
    async with await psycopg.AsyncConnection.connect(url, connect_timeout=5) as tx:
        yield tx


async def _database(site: str, url: str) -> Finding:
    why = await asyncio.to_thread(migrations.problem, url, SQL[site])
    if why is None and site == "cloud":
        why = await asyncio.to_thread(db.role_problem, url)
    if why is None and (why := await asyncio.to_thread(site_checks.read_only_problem, url)):
        remedy = f"name the primary in FARMIQ_{site.upper()}_DB_URL, or set it to read and write"
        return why, f"{remedy}: alter role … reset default_transaction_read_only"
    remedy = _remedy(why, f"`farmiq migrate {site}` as the owner; see docs/tutorial/install.md")
    return why or "answers, schema up to date", remedy


async def check_broker(url: str, tls: Tls, variable: str) -> Finding:
    """Log in under an id of the login's own that nobody else uses: no session is touched.

    Always the same one: a login has a few sessions, and a new id each time would end the agent's.
    """
    client_id = f"{unquote(urlsplit(url).username or 'farmiq')}/doctor"
    async with mqtt.connected(
        url, client_id=client_id, persistent_session=False, tls=tls
    ) as client:
        try:
            async with asyncio.timeout(BROKER_PATIENCE_S):
                await client.until_up()
        except TimeoutError:
            why = client.problem() or "no answer"
            return why, f"start the broker, or correct {variable}"
    return "answers and lets us in", ""


async def _log(url: str, stream_name: str, db_url: str, tls: Tls) -> Finding:
    """How much of the broker's log is not in the database yet."""
    async with _connected(db_url) as tx:
        stored_seq = await cursor.stored_seq(tx, stream_name)
    try:
        async with nats.connected(url, tls=tls) as server:
            info = await stream.info(server, stream_name)
    except nats.NatsError as error:
        return str(error), "start the broker, or correct the address of its log"
    behind = max(0, info.last_seq - max(stored_seq, info.first_seq - 1))
    bad = behind > MAX_BEHIND or info.share >= broker_store.WARN_SHARE
    detail = f"{behind:,} messages are not stored yet; {info.share:.0%} full"
    return detail, _remedy(bad, "see whether the database takes writes")


async def check_broker_store(site: str, monitor_url: str, tls: Tls) -> Finding:
    try:
        async with httpx2.AsyncClient(trust_env=False, verify=tls.client()) as client:
            use = await broker_store.use(client, monitor_url)
    except (httpx2.HTTPError, httpx2.InvalidURL, msgspec.DecodeError) as error:
        variable = f"FARMIQ_{site.upper()}_BROKER_MONITOR_URL"
        return str(error), f"correct {variable}, or start the broker"
    full = use.share >= broker_store.WARN_SHARE
    remedy = _remedy(full, "see that the gateway runs and commits; `farmiq alert ls`")
    return f"holds {use.words()}", remedy


async def _services(site: str, settings: EdgeSettings | CloudSettings) -> Finding:
    address = base_url(settings)
    try:
        # Our own machine, and nothing secret is said: its certificate may be for another name.
        async with httpx2.AsyncClient(timeout=SERVICES_PATIENCE_S, verify=False) as client:
            answer = await client.get(f"{address}/readyz")
    except httpx2.ConnectError as error:
        return f"{address}: {error}", f"start them with `farmiq run {site}`"
    except httpx2.TimeoutException:
        remedy = (
            "if the machine is busy, wait and look again; if it is not, another program may have "
            f"this port, or `farmiq run {site}` hangs: start it again, nothing is lost"
        )
        return f"{address} does not answer within {SERVICES_PATIENCE_S:.0f} s", remedy
    except httpx2.HTTPError as error:
        return f"{address}: {str(error) or type(error).__name__}", _port_taken(site)
    try:
        problems = dict(answer.json()["problems"])
    except (ValueError, KeyError, TypeError):
        return f"what answers on {address} is not FarmIQ", _port_taken(site)
    if answer.status_code == HTTP_OK:
        return f"ready on {address.partition('://')[2]}", ""
    words = "; ".join(f"{part}: {problem}" for part, problem in problems.items())
    return words or answer.text, "mend what they wait for; they go on by themselves"


def base_url(settings: EdgeSettings | CloudSettings) -> str:
    host = "127.0.0.1" if settings.http_host in ("0.0.0.0", "::") else settings.http_host
    return f"{'https' if settings.tls.serves() else 'http'}://{host}:{settings.http_port}"


def _port_taken(site: str) -> str:
    return (
        f"another program has this port: end it, or set FARMIQ_{site.upper()}_HTTP_PORT and "
        f"start `farmiq run {site}`"
    )


async def _bucket(site: str, url: str, tls: Tls) -> Finding:
    why = await Bucket(url, tls=tls).problem()
    remedy = _remedy(why, f"start the store, or correct FARMIQ_{site.upper()}_S3_URL")
    return why or "the bucket answers", remedy


async def _clock(url: str, tls: Tls, other: str) -> Finding:
    """Compare with the Date of the next machine on the way; that it answers is seen as well."""
    try:
        context = tls.client() if url.startswith("https") else True
        async with httpx2.AsyncClient(timeout=5, verify=context) as client:
            answer = await client.get(f"{url.rstrip('/')}/healthz")
            theirs = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (httpx2.HTTPError, KeyError, ValueError) as error:
        why = str(error) or type(error).__name__
        remedy = "what is measured waits here; the clock cannot be compared until it answers"
        return f"{other} does not answer at {url}: {why}", remedy
    # The header has whole seconds, and was written somewhere in that second.
    return check_clock(time.time() - theirs - 0.5, other)


async def _bounded(name: str, probe: Probe) -> Check:
    try:
        async with asyncio.timeout(PATIENCE_S):
            detail, remedy = await probe()
    except TimeoutError:
        detail, remedy = f"no answer within {PATIENCE_S:.0f} s", "is it overloaded?"
    except db.UNAVAILABLE as error:
        detail = f"the database does not answer: {db.first_line(error)}"
        remedy = "start PostgreSQL, or correct the address in the settings"
    except (OSError, ValueError, psycopg.Error) as error:
        detail, remedy = str(error) or type(error).__name__, "correct the settings"
    return Check(name, not remedy, detail, remedy)


def _remedy(needed: object, words: str) -> str:
    return words if needed else ""
