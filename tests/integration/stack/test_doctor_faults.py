"""Faults seeded on real engines: `farmiq doctor` finds each one and names what to do.

Others are in test_doctor.py (missing settings and queues, images that nobody looks at, a broker,
services and a key that are away) and test_broker_store.py (a broker that is full).
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from farmiq import doctor, site_checks
from farmiq.cloud import bus
from farmiq.edge.sync import handlers
from farmiq.lab import stack
from farmiq.plumbing import http, ids, sealing, tokens
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.runtime import schedule
from tests.conftest import Database
from tests.support.http_receiver import http_receiver
from tests.support.until import until

Found = dict[str, doctor.Check]
READ_ONLY = quote("-c default_transaction_read_only=on")


async def examined(environment: dict[str, str]) -> Found:
    return {check.name: check for check in await doctor.examine(environment)}


def expect(found: Found, name: str, *, says: str, do: str) -> None:
    check = found[name]
    assert not check.healthy, check
    assert says in check.detail, check
    assert do in check.remedy, check


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    login = f"{parts.username}:{quote(password)}@{parts.hostname}:{parts.port}"
    return urlunsplit(parts._replace(netloc=login))


def expired_certificate(path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "edge")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=90))
        .not_valid_after(now - timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return path


async def test_doctor_a_service_that_is_too_slow_to_answer_is_not_called_another_program(
    tmp_path: Path,
) -> None:
    async def answer_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer_nothing, "127.0.0.1", 0) as slow:
        port = slow.sockets[0].getsockname()[1]
        found = await examined(
            {
                "FARMIQ_EDGE_DB_URL": "postgresql://f:f@127.0.0.1:1/none",
                "FARMIQ_EDGE_HTTP_PORT": str(port),
                "FARMIQ_EDGE_MQTT_URL": "mqtt://f:f@127.0.0.1:1",
                "FARMIQ_CLOUD_URL": "http://127.0.0.1:1",
                "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
            }
        )
    expect(found, "edge services", says="does not answer within", do="wait and look again")


def seed(url: str, *statements: str) -> None:
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


async def test_doctor_finds_what_was_broken_at_an_edge(
    edge_db: Database,
    broker: stack.Stack,
    engines: dict[str, str],
    tmp_path: Path,
) -> None:
    tokens.write_new_key(tmp_path / "key.json", tmp_path / "keys.json")
    sealing.write_new_key(tmp_path / "backup.key")
    (tmp_path / "backups").mkdir()
    seed(
        edge_db.url,
        "insert into quarantine (quarantine_id, topic, raw, message_sha256, raw_size_bytes, "
        "reasons) values (gen_random_uuid(), 't', 'x', 'y', 1, '{r}')",
        "insert into sync_state (tenant_id) values ('t-1')",
        "insert into sync_outbox (id, tenant_id, event_type, payload_json, status) "
        "values (gen_random_uuid(), 't-1', 'telemetry.ingested', '{}', 'dlq')",
        "insert into telemetry_raw (id, tenant_id, farm_id, barn_id, device_id, occurred_at, "
        "metric_type, metric_value, unit) values (gen_random_uuid(), 't-1', 'f', 'b', 'd', "
        "fn_now(), 'temperature', 20, 'C')",
    )
    yesterday = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
    async with http_receiver() as cloud, http_receiver() as stranger:
        cloud.status, cloud.headers = 401, {"Date": yesterday}
        found = await examined(
            {
                "FARMIQ_EDGE_DB_URL": f"{edge_db.url}?options={READ_ONLY}",
                "FARMIQ_EDGE_MQTT_URL": with_password(
                    broker.environment["FARMIQ_EDGE_MQTT_URL"], "wrong"
                ),
                "FARMIQ_EDGE_HTTP_PORT": str(stranger.port),
                "FARMIQ_CLOUD_URL": cloud.url,
                "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
                "FARMIQ_EDGE_S3_URL": with_password(engines["FARMIQ_EDGE_S3_URL"], "wrong"),
                "FARMIQ_TLS_CERT_FILE": str(expired_certificate(tmp_path / "edge.pem")),
                "FARMIQ_BACKUP_URL": f"file://{tmp_path / 'backups'}",
                "FARMIQ_BACKUP_KEY_FILE": str(tmp_path / "backup.key"),
                "DISK_WARN_PERCENT": "0.001",
            }
        )
    expect(found, "edge database", says="read only", do="FARMIQ_EDGE_DB_URL")
    expect(found, "edge broker", says="", do="FARMIQ_EDGE_MQTT_URL")
    expect(found, "edge services", says="is not FarmIQ", do="FARMIQ_EDGE_HTTP_PORT")
    expect(found, "edge outbox", says="1 set aside", do="farmiq outbox ls --status dlq")
    expect(found, "edge quarantine", says="1 messages", do="farmiq quarantine ls")
    expect(found, "edge key", says="refuses this key (401)", do="farmiq edge enroll")
    expect(found, "edge disk", says="% full", do="make room")
    expect(found, "edge clock", says="ahead of the cloud", do="NTP")
    expect(found, "edge months", says="telemetry_raw lacks", do="farmiq run edge")
    expect(found, "edge certificate", says="expired at", do="renew it")
    expect(found, "edge images", says="", do="FARMIQ_EDGE_S3_URL")
    expect(found, "edge backups", says="no backup", do="farmiq backup run edge")

    seed(
        edge_db.url,
        "insert into sync_outbox (id, tenant_id, event_type, payload_json, created_at) values "
        "(gen_random_uuid(), 't-2', 'telemetry.ingested', '{}', fn_now() - interval '1 day')",
    )
    async with await psycopg.AsyncConnection.connect(edge_db.url) as tx:
        statuses = await handlers.status(tx)
    stalled = [status for status in statuses if status.tenant_id == "t-2"]
    detail, remedy = doctor.check_outbox(stalled, stall_s=600)
    assert "1 wait for the cloud" in detail
    assert "edge-sync-forwarder" in remedy


async def test_doctor_finds_an_old_version_failing_chores_and_databases_that_are_wrong(
    empty_db: Callable[[str], Database],
    cloud_db: Database,
    free_port: Callable[[], int],
    tasks: asyncio.TaskGroup,
) -> None:
    port = free_port()
    server = http.HttpServer(title="edge", version="0.0.1")
    server.ready("ingress.database", lambda: "the database is away")
    tasks.create_task(http.serve(server, host="127.0.0.1", port=port))
    schedule.RUNS.labels(chore="test.retention", outcome="failed").inc()
    edge = {
        "FARMIQ_EDGE_DB_URL": empty_db("edge").url,
        "FARMIQ_EDGE_MQTT_URL": f"mqtt://127.0.0.1:{free_port()}",
        "FARMIQ_EDGE_HTTP_PORT": str(port),
        "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{port}",
        "FARMIQ_EDGE_KEY_FILE": "/nowhere/key.json",
    }

    async def serves() -> Found:
        found = await examined(edge)
        return found if "0.0.1" in found["edge version"].detail else {}

    found = await until(serves)
    expect(found, "edge database", says="empty", do="farmiq migrate edge")
    expect(found, "edge version", says="0.0.1 runs", do="restart the services")
    expect(found, "edge jobs", says="test.retention fails", do="job.failed")
    schedule.RUNS.clear()
    expect(found, "edge services", says="the database is away", do="mend what they wait for")
    expect(found, "edge key", says="cannot be read", do="farmiq edge enroll")

    away = f"postgresql://farmiq_edge:x@127.0.0.1:{free_port()}/farmiq"
    found = await examined({**edge, "FARMIQ_EDGE_DB_URL": away})
    expect(found, "edge database", says="does not answer", do="start PostgreSQL")

    found = await examined(
        {
            "FARMIQ_CLOUD_DB_URL": cloud_db.admin_url,
            "FARMIQ_AMQP_URL": f"amqp://guest:guest@127.0.0.1:{free_port()}/",
            "FARMIQ_CLOUD_HTTP_PORT": str(port),
            "FARMIQ_CLOUD_S3_URL": f"http://key:secret@127.0.0.1:{free_port()}/bucket",
        }
    )
    expect(found, "cloud database", says="", do="farmiq migrate cloud")
    expect(found, "cloud bus", says="does not answer", do="start RabbitMQ")
    expect(found, "cloud images", says="", do="FARMIQ_CLOUD_S3_URL")


async def test_doctor_finds_queues_that_nobody_takes_from_dead_letters_and_unrouted_events(
    cloud_db: Database, vhost: str, free_port: Callable[[], int]
) -> None:
    environment = {
        "FARMIQ_CLOUD_DB_URL": cloud_db.url,
        "FARMIQ_AMQP_URL": vhost,
        "FARMIQ_CLOUD_HTTP_PORT": str(free_port()),
    }
    async with amqp.publisher(vhost, name="test", topology=bus.whole()) as publisher:

        async def seed_queue(name: str, *, says: str, do: str) -> None:
            message = amqp.Outgoing("", name, b"{}", str(ids.new()))
            await publisher.publish([message], timeout_s=60)

            async def counted() -> Found:
                found = await examined(environment)
                return found if says in found["cloud bus"].detail else {}

            expect(await until(counted), "cloud bus", says=says, do=do)

        service = bus.TELEMETRY.service
        await seed_queue(bus.TELEMETRY.queue, says="nobody takes", do=f"farmiq run {service}")
        await seed_queue(bus.TELEMETRY.dead_letters, says="1 dead letters", do="farmiq dlq ls")
        await seed_queue(bus.UNROUTED_QUEUE, says="2 dead letters", do="farmiq topology diff")


def test_chore_that_failed_and_went_well_since_is_fine() -> None:
    metrics = (
        'farmiq_chore_runs_total{chore="a",outcome="failed"} 3\n'
        'farmiq_chore_last_success_seconds{chore="a"} 1000\n'
    )
    assert site_checks.check_jobs(metrics, now_s=2000.0)[1] == ""
    assert "name a" in site_checks.check_jobs(metrics, now_s=1_000_000.0)[1]
