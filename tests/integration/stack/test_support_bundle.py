"""`farmiq support-bundle`: what is in it, and that no secret is."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

from farmiq import support
from farmiq.plumbing import sealing, tokens
from tests.conftest import Database
from tests.support import preloaded


def named(kind: str) -> str:
    """A secret that no other text has."""
    return f"canary-{kind}-9f3c"


async def test_bundle_says_what_is_wrong_and_has_no_secret_of_any_kind(
    edge_db: Database,
    cloud_db: Database,
    vhost: str,
    tmp_path: Path,
    free_port: Callable[[], int],
) -> None:
    tokens.write_new_key(tmp_path / "edge-key.json", tmp_path / "keys.json")
    sealing.write_new_key(tmp_path / "backup.key")
    password_file = tmp_path / "mail-password"
    password_file.write_text(named("file"))
    logs = tmp_path / "logs"
    logs.mkdir()
    jwt = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJjYW5hcnktand0LTlmM2MifQ.c2lnbmF0dXJl"
    lines = [
        {"event": "x", "error": f"connection to postgresql://u:{named('log-url')}@h/db failed"},
        {"event": "y", "error": f"Authorization: Bearer {named('bearer')}"},
        {"event": "z", "error": jwt},
        {"event": "k", "error": f"key fiq_{named('api-key')} unknown"},
        {"event": "d", "error": f"station fiqd_{named('station')} revoked"},
        {"event": "t", "error": f"Authorization: Token {named('scheme')}"},
        {"event": "w", "error": json.dumps({"user": "ann", "password": named("json")})},
        {"event": "v", "password": named("field")},
        {"event": "s", "error": f"GET /b?X-Amz-Signature={named('presigned')}&a=1"},
        {"event": "p", "error": f"refused {named('metrics')} {named('file')}"},
        {"event": "q", "error": f'wrong login {named("quo")}"te, {named("ü")}'},
        {"event": "o", "error": f"GET /b?access_token={named('oauth')}&api_key={named('query')}"},
        {"event": "n", "access_token": f'{named("name")}"{named("rest")}'},
        {"event": "m", "error": json.dumps({"smtp_password": named("nested")})},
        {"event": "l", "error": f"host=h sslpassword='{named('libpq')}'"},
        {"event": "j", "error": f"X-Api-Key: {named('header')} Cookie: s={named('cookie')}"},
        {"event": "i", "error": f"POST https://h/bot17:{named('telegram')}/sendMessage"},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (logs / "edge.log").write_text("old line\n" * 200_000 + text + "the last line\n")
    amqp = vhost
    environment = {
        "FARMIQ_STATE_DIR": str(tmp_path / "no stacks"),
        "FARMIQ_EDGE_DB_URL": edge_db.url,
        "FARMIQ_CLOUD_DB_URL": cloud_db.url,
        "FARMIQ_AMQP_URL": amqp,
        "FARMIQ_EDGE_MQTT_URL": f"mqtt://gateway:{named('mqtt')}@127.0.0.1:{free_port()}",
        "FARMIQ_EDGE_INGRESS_URL": f"nats://x:{named('nats')}@127.0.0.1:{free_port()}",
        "FARMIQ_EDGE_S3_URL": f"http://id:{named('s3')}@127.0.0.1:{free_port()}/b",
        "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{free_port()}",
        "FARMIQ_EDGE_HTTP_PORT": str(free_port()),
        "FARMIQ_CLOUD_HTTP_PORT": str(free_port()),
        "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "edge-key.json"),
        "AGENT_MQTT_URL": f'mqtt://u:{named("quo")}"te@127.0.0.1',
        "FARMIQ_CLOUD_MQTT_URL": f"mqtt://u:{named('ü')}@127.0.0.1",
        "FARMIQ_BACKUP_URL": f"https://id:{named('backup')}@127.0.0.1:{free_port()}/b/f",
        "FARMIQ_BACKUP_KEY_FILE": str(tmp_path / "backup.key"),
        "API_METRICS_TOKEN": named("metrics"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318",
        "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={named('otlp')}",
        "SOME_PASSWORD_FILE": str(password_file),
    }
    output = tmp_path / "bundle.tar.gz"
    output.touch(mode=0o644)
    done = preloaded.command(
        "support-bundle", "--output", str(output), "--logs", str(logs), "--json",
        environment=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert output.stat().st_mode & 0o077 == 0
    assert output.stat().st_size < 5_000_000
    with tarfile.open(output) as archive:
        files = {
            entry.name.removeprefix("farmiq-support/"): opened.read().decode()
            for entry in archive.getmembers()
            if (opened := archive.extractfile(entry))
        }
    whole = "\n".join(files.values())
    passwords = {support.urlsplit_password(url) for url in (edge_db.url, cloud_db.url, amqp)}
    private = json.loads((tmp_path / "edge-key.json").read_text())["d"]
    sealed = (tmp_path / "backup.key").read_text().strip()
    for secret in ("canary-", "eyJhbGciOi", private, sealed, *filter(None, passwords)):
        assert secret not in whole, secret
    assert {
        "versions.json", "settings.json", "doctor.json", "edge-database.json",
        "cloud-database.json", "edge-metrics.txt", "cloud-metrics.txt", "cloud-queues.json",
        "logs/edge.log",
    } == set(files)  # fmt: skip
    settings = json.loads(files["settings.json"])["edge"]
    assert settings["API_METRICS_TOKEN"] == support.HIDDEN
    assert settings["FARMIQ_CLOUD_URL"] == environment["FARMIQ_CLOUD_URL"]
    assert "the last line" in files["logs/edge.log"]
    assert len(files["logs/edge.log"]) <= support.LOG_BYTES
    assert json.loads(files["edge-database.json"])["migrations"]
    assert any(not check["healthy"] for check in json.loads(files["doctor.json"]))
    assert json.loads(files["versions.json"])["packages"]["psycopg"]
