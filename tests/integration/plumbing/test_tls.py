"""TLS on every connection, with certificates that are renewed while all of it runs.

After `renew` nothing of the old authority is trusted: who still connects has read the new files.
"""

import asyncio
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx2
import psycopg
import pytest

from farmiq.lab import stack
from farmiq.plumbing import db, http, http_client, otlp
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.bus.amqp import BusDownError, Exchange, Outgoing, Queue, Topology
from farmiq.plumbing.http import HttpServer
from farmiq.plumbing.messaging import mqtt, nats
from farmiq.plumbing.storage.objects import Bucket
from farmiq.plumbing.tls import Tls
from farmiq.plumbing.tracing import Kind, Span
from tests.support import brokers, preloaded
from tests.support.authority import Authority
from tests.support.balancer import balanced
from tests.support.engines import state_dir
from tests.support.http_receiver import http_receiver
from tests.support.ports import free_port
from tests.support.until import until

TOPOLOGY = Topology(
    (Exchange("farmiq.test.exchange"),), (Queue("q", (("farmiq.test.exchange", "#"),)),)
)
MESSAGE = Outgoing("farmiq.test.exchange", "k", b"{}", "m-1")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "tls")


async def test_running_server_and_client_follow_renewed_certificates(authority: Authority) -> None:
    port, client = free_port(), httpx2.AsyncClient(verify=authority.tls.client(), timeout=60)
    old_client = httpx2.AsyncClient(verify=Tls(authority.ca_file).current_client(), timeout=60)
    async with _serving(port, authority.tls), client, old_client:
        url = f"https://localhost:{port}/healthz"
        assert (await client.get(url)).status_code == 200
        assert (await old_client.get(url)).status_code == 200

        authority.renew()

        # Its connection was open before: it goes on. Another one that trusts the old is refused.
        assert (await old_client.get(url)).status_code == 200
        assert (await client.get(url, headers={"connection": "close"})).status_code == 200
        assert (await client.get(url)).status_code == 200
        async with httpx2.AsyncClient(verify=authority.tls.client(), timeout=60) as new_client:
            assert (await new_client.get(url)).status_code == 200

        key = authority.key_file.read_bytes()
        authority.key_file.write_bytes(b"half a key")
        async with httpx2.AsyncClient(
            verify=Tls(authority.ca_file).client(), timeout=60
        ) as another:
            assert (await another.get(url)).status_code == 200
        authority.key_file.write_bytes(key)


async def test_refused_certificate_says_what_to_do(authority: Authority, tmp_path: Path) -> None:
    port, stranger = free_port(), Authority(tmp_path / "stranger")
    async with _serving(port, authority.tls):
        text = await _refusal(f"https://localhost:{port}", Tls(stranger.ca_file))
        assert "authority that is not trusted here" in text
        assert "FARMIQ_TLS_CA_FILE" in text

        authority.expire()
        assert "has expired: renew it" in await _refusal(
            f"https://localhost:{port}", Tls(authority.ca_file)
        )


async def _refusal(url: str, tls: Tls) -> str:
    async with httpx2.AsyncClient(verify=tls.client(), timeout=60) as client:
        with pytest.raises(httpx2.ConnectError) as refused:
            await client.get(f"{url}/healthz")
    return http_client.why(refused.value)


async def test_bus_over_tls(authority: Authority, vhost: str, tmp_path: Path) -> None:
    parts = urlsplit(vhost)
    async with (
        balanced(parts.port or 0, context=authority.tls.server()) as port,
        AsyncExitStack() as opened,
    ):
        login = parts.netloc.rpartition("@")[0]
        url = urlunsplit(parts._replace(scheme="amqps", netloc=f"{login}@localhost:{port}"))
        tls = authority.tls
        running = await opened.enter_async_context(
            amqp.publisher(url, name="a", topology=TOPOLOGY, tls=tls)
        )
        await running.publish([MESSAGE], timeout_s=30)

        authority.renew()

        await running.publish([MESSAGE], timeout_s=30)
        renewed = await opened.enter_async_context(
            amqp.publisher(url, name="b", topology=TOPOLOGY, tls=tls)
        )
        await renewed.publish([MESSAGE], timeout_s=30)
        assert await amqp.depth(url, "q", tls=tls) == (3, 0)
        stranger = Authority(tmp_path / "stranger").tls
        refused = await opened.enter_async_context(
            amqp.publisher(url, name="c", topology=TOPOLOGY, tls=Tls(stranger.ca_file))
        )
        with pytest.raises(BusDownError, match="FARMIQ_TLS_CA_FILE"):
            await refused.publish([MESSAGE], timeout_s=30)


async def test_commands_over_tls(authority: Authority, vhost: str, tmp_path: Path) -> None:
    """A person's commands trust the same authority as the services."""
    parts = urlsplit(vhost)
    async with balanced(parts.port or 0, context=authority.tls.server()) as port:
        login = parts.netloc.rpartition("@")[0]
        environment = {
            "FARMIQ_AMQP_URL": urlunsplit(
                parts._replace(scheme="amqps", netloc=f"{login}@localhost:{port}")
            ),
            "FARMIQ_STATE_DIR": str(tmp_path / "no stacks"),
        }
        known = environment | {"FARMIQ_TLS_CA_FILE": str(authority.ca_file)}
        done = await asyncio.to_thread(preloaded.command, "dlq", "ls", environment=known)
        assert done.returncode == 0, done.stderr
        refused = await asyncio.to_thread(preloaded.command, "dlq", "ls", environment=environment)
        assert refused.returncode != 0


async def test_collector_of_traces_over_tls(authority: Authority) -> None:
    async with http_receiver() as collector:
        async with balanced(collector.port, context=authority.tls.server()) as port:
            exporter = otlp.Exporter(
                f"https://localhost:{port}", ratio=1.0, headers={}, tls=authority.tls
            )
            span = Span("edge", "x", Kind.CLIENT, "a" * 32, "b" * 16, "", 1, 2, {}, ())
            exporter.add([span])
            async with exporter.client() as client:
                await exporter.flush(client)
        assert [posted.path for posted in collector.posted] == [otlp.ROUTE]


async def test_object_store_over_tls(authority: Authority, engines: dict[str, str]) -> None:
    parts = urlsplit(engines["FARMIQ_EDGE_S3_URL"])
    async with balanced(parts.port or 0, context=authority.tls.server()) as port:
        login = parts.netloc.rpartition("@")[0]
        url = urlunsplit(parts._replace(scheme="https", netloc=f"{login}@localhost:{port}"))
        bucket = Bucket(url, tls=authority.tls)
        assert await bucket.problem() is None
        await bucket.put("tls/one", b"1", content_type="image/jpeg")

        authority.renew()

        assert await bucket.get("tls/one") == b"1"
        another = Bucket(url, tls=authority.tls)
        await another.put("tls/two", b"2", content_type="image/jpeg")
        assert await another.problem() is None
        assert await bucket.get("tls/two") == b"2"
        for each in (bucket, another):
            each._s3.close()


@pytest.fixture
def broker(authority: Authority, tmp_path: Path) -> Iterator[tuple[str, str, Callable[[], None]]]:
    """Addresses of both protocols, and a way to have it read its certificate again."""
    nats_port, mqtt_port = free_port(), free_port()
    files = f'cert_file: "{authority.cert_file}", key_file: "{authority.key_file}"'
    text = f"""
        server_name: "tls"
        host: 127.0.0.1
        port: {nats_port}
        tls {{ {files} }}
        jetstream {{ store_dir: "{tmp_path / "store"}" }}
        mqtt {{ host: 127.0.0.1, port: {mqtt_port}, tls {{ {files} }} }}
    """
    server = brokers.start_nats(tmp_path, text)
    try:
        yield (
            f"tls://localhost:{nats_port}",
            f"mqtts://localhost:{mqtt_port}",
            lambda: server.send_signal(signal.SIGHUP),
        )
    finally:
        server.terminate()
        server.wait(10)


# The client library leaves a socket that failed its handshake to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
async def test_broker_over_tls(
    authority: Authority, broker: tuple[str, str, Callable[[], None]], tmp_path: Path
) -> None:
    nats_url, mqtt_url, reload = broker
    tls = authority.tls

    async def answers() -> bool:
        try:
            async with nats.connected(nats_url, tls=tls):
                return True
        except nats.NatsError:
            return False

    await until(answers)
    async with mqtt.connected(mqtt_url, client_id="one", tls=tls) as client:
        await until(lambda: client.problem() is None)
        authority.renew()
        reload()
        # As soon as it shows the new one, who trusts only that gets in.
        await until(answers)
        assert client.problem() is None
        # The same client comes back with what its files say now.
        before = client.connection
        assert client._wire is not None
        socket.socket.shutdown(client._wire.socket, socket.SHUT_RDWR)
        await until(lambda: client.connection != before and client.problem() is None)
    stranger = Tls(Authority(tmp_path / "stranger").ca_file)
    with pytest.raises(nats.NatsError, match="FARMIQ_TLS_CA_FILE"):
        await nats.connect(nats_url, tls=stranger)
    async with mqtt.connected(mqtt_url, client_id="two", tls=stranger) as refused:
        await until(lambda: "FARMIQ_TLS_CA_FILE" in str(refused.problem()))


async def test_postgresql_over_tls(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's, since the packaged one has no TLS."""
    monkeypatch.setenv("FARMIQ_STACK_POSTGRES", "15")
    root = tmp_path / "stack"
    with stack.start(
        root, engines=("postgres-edge",), downloads=state_dir() / "engines"
    ) as started:
        admin_url = started.environment["FARMIQ_EDGE_DB_ADMIN_URL"]
        with psycopg.connect(admin_url, autocommit=True) as admin:
            shown = admin.execute("show data_directory").fetchone()
            assert shown is not None
            data = Path(shown[0])

            def install() -> None:
                for file in (authority.cert_file, authority.key_file):
                    target = data / file.name
                    shutil.copyfile(file, target)
                    target.chmod(0o600)
                    shutil.chown(target, data.owner(), data.group())
                admin.execute("select pg_reload_conf()")

            admin.execute("alter system set ssl_cert_file = 'cert.pem'")
            admin.execute("alter system set ssl_key_file = 'key.pem'")
            admin.execute("alter system set ssl = on")
            install()
            url = started.environment["FARMIQ_EDGE_DB_URL"]
            url += f"?sslmode=verify-full&sslrootcert={authority.ca_file}"
            await until(lambda: _encrypted(url))
            async with db.pool(url, name="tls", min_size=2, max_size=2) as pool:
                async with pool.connection() as running:
                    authority.renew()
                    install()
                    await until(lambda: _encrypted(url))
                    assert await db.fetch_value(running, "select 1") == 1
                assert await db.problem(pool) is None
            stranger = Authority(tmp_path / "stranger").ca_file
            with pytest.raises(psycopg.OperationalError) as refused:
                psycopg.connect(url.replace(str(authority.ca_file), str(stranger)))
            assert "sslrootcert" in db.first_line(refused.value)
    stack.remove(root)


def _encrypted(url: str) -> bool:
    try:
        with psycopg.connect(url) as connection:
            row = connection.execute(
                "select ssl, version from pg_stat_ssl where pid = pg_backend_pid()"
            ).fetchone()
    except psycopg.OperationalError:
        return False
    return row is not None and row[0] and row[1] in {"TLSv1.2", "TLSv1.3"}


@asynccontextmanager
async def _serving(port: int, tls: Tls) -> AsyncIterator[None]:
    server = HttpServer(title="farmiq test", version="1")
    running = asyncio.create_task(http.serve(server, host="127.0.0.1", port=port, tls=tls))
    try:
        await until(lambda: running.done() or _listens(port))
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
