"""`farmiq support-bundle`: what somebody who helps wants to know, in one archive, no secret in it.

Values of settings are shown only where they are numbers, words or addresses without a login; then
every secret that this machine knows is looked for in each file and struck out once more.
"""

import io
import json
import platform
import re
import tarfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpx2
import msgspec
import psycopg
from pydantic import SecretStr

from farmiq import __version__, config, doctor
from farmiq.cloud.deadletter import watch
from farmiq.config import CloudSettings, EdgeSettings, Settings, SettingsError
from farmiq.plumbing import db
from farmiq.plumbing.bus import amqp

HIDDEN = "(hidden)"
# Of each log the end, and of all together: an archive that fits into a mail.
LOG_BYTES = 256 * 1024
MAX_LOGS = 40
MAX_FILE_BYTES = 2 * 1024 * 1024
# Shorter ones are words: to strike them out would make the rest unreadable.
MIN_SECRET = 6
_SECRET_NAME = re.compile(r"PASSWORD|SECRET|TOKEN|KEY|CREDENTIAL|PRIVATE|DSN|AUTH|HEADERS|COOKIE")
_FILE_NAME = re.compile(r"(_FILE|_DIR|_PATH)$")
_LOGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]{0,20}://)[^/\s@\"']*@", re.IGNORECASE)
# What looks like a secret wherever it stands: tokens, JWTs, keys of ours, PEM, query strings.
_SHAPES = (
    re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"),
    re.compile(r"\bfiqd?_[A-Za-z0-9_-]{8,}"),
    re.compile(r"(?i)\bauthorization\W{1,6}\w+\s+[^\s\"',]+"),
    re.compile(r"(?i)\b(set-)?cookie:\s*[^\s\"']+"),
    re.compile(r"\bbot\d+:[\w-]{8,}"),
    re.compile(r"-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|$)", re.DOTALL),
)
# And what a name calls one: in a query, a header, JSON, and JSON within a JSON text.
_NAME = r"(?i)(?P<name>(?:password|passwd|secret|token|api[_-]?key|signature|credential)"
_NAMED = (
    re.compile(_NAME + r"=\\*[\"']?)[^&\s\"'\\]+"),
    re.compile(_NAME + r"[\"']\s*:\s*[\"'])(?:\\.|[^\"'\\])+"),
    re.compile(_NAME + r"\\+[\"']\s*:\s*\\+[\"'])[^\"'\\]+"),
    re.compile(r"(?i)(?P<name>\b(?:password|passwd|x-api-key):\s*)[^\s\"']+"),
)
SITES: dict[str, tuple[str, type[Settings]]] = {
    "edge": ("FARMIQ_EDGE_DB_URL", EdgeSettings),
    "cloud": ("FARMIQ_CLOUD_DB_URL", CloudSettings),
}


def secrets(environment: Mapping[str, str]) -> set[str]:
    """Every secret that the settings of this machine hold, as it could stand in a text."""
    values: set[str] = set()
    for name, value in environment.items():
        if "://" in value and (password := urlsplit_password(value)):
            values |= {password, unquote(password)}
        if _SECRET_NAME.search(name) and not _FILE_NAME.search(name) and "://" not in value:
            values.add(value)
        if name.startswith("OTEL_EXPORTER_OTLP_HEADERS"):
            values |= {part.partition("=")[2] for part in value.split(",")}
        if _SECRET_NAME.search(name) and _FILE_NAME.search(name):
            values |= _of_file(Path(value))
    return {form for secret in values if len(secret) >= MIN_SECRET for form in _forms(secret)}


def _forms(secret: str) -> set[str]:
    """As itself, as in an address, and as in the JSON of a log line or of the bundle."""
    in_json = (json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
    return {secret, quote(secret, safe=""), *in_json}


def urlsplit_password(url: str) -> str | None:
    try:
        return urlsplit(url).password
    except ValueError:
        return None


def _of_file(path: Path) -> set[str]:
    """The words of a file of keys or a password, whatever its format."""
    try:
        text = path.read_text(encoding="utf-8")[:65536]
    except (OSError, ValueError):
        return set()
    return {*re.findall(r"[A-Za-z0-9+/=_-]{16,}", text), text.strip()}


def masked(text: str, hidden: Iterable[str]) -> str:
    """Pure: the text without these, without logins in addresses, without what looks like one."""
    for secret in sorted(hidden, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _LOGIN.sub(lambda login: f"{login['scheme']}{HIDDEN}@", text)
    for shape in _SHAPES:
        text = shape.sub(HIDDEN, text)
    for named in _NAMED:
        text = named.sub(lambda match: f"{match['name']}{HIDDEN}", text)
    return text


def settings_of(environment: Mapping[str, str]) -> dict[str, Any]:
    """What is set, by site: secrets as (hidden), of addresses what is no login."""
    shown: dict[str, Any] = {}
    for site, (mark, kind) in SITES.items():
        if not environment.get(mark):
            continue
        fields = kind.variables()
        shown[site] = {
            name: HIDDEN if _is_secret(name, field) and "://" not in environment[name]
            else environment[name]
            for name, field in fields.items()
            if environment.get(name)
        }  # fmt: skip
        try:
            kind.load(environment)
        except SettingsError as error:
            shown[f"{site} problems"] = str(error)
    return shown


def _is_secret(name: str, field: Any) -> bool:
    typed = SecretStr in getattr(field.annotation, "__args__", (field.annotation,))
    return typed or bool(_SECRET_NAME.search(name) and not _FILE_NAME.search(name))


def versions() -> dict[str, Any]:
    packages = {
        item.metadata["Name"]: item.version
        for item in metadata.distributions()
        if item.metadata["Name"]
    }
    return {
        "farmiq": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
    }


_DATABASE = {
    "server": "select current_setting('server_version'), pg_size_pretty(pg_database_size("
    "current_database()))",
    "migrations": "select name, applied_at::text from schema_migrations order by name",
    # Estimates: to count would read every table.
    "tables": "select relname, n_live_tup, n_dead_tup, pg_total_relation_size(relid) "
    "from pg_stat_user_tables order by 4 desc limit 200",
    "connections": "select application_name, state, count(*)::int from pg_stat_activity "
    "where datname = current_database() group by 1, 2 order by 1, 2",
}


def database(url: str) -> dict[str, Any]:
    """Revision of the schema, sizes and row counts of tables; no row of any."""
    answers: dict[str, Any] = {}
    try:
        with psycopg.connect(url, connect_timeout=5, autocommit=True) as connection:
            for what, query in _DATABASE.items():
                try:
                    rows = connection.execute(query.encode()).fetchall()
                    answers[what] = [list(row) for row in rows]
                except psycopg.Error as error:
                    answers[what] = db.first_line(error)
    except psycopg.Error as error:
        answers["problem"] = db.first_line(error)
    return answers


async def queues(settings: CloudSettings) -> dict[str, Any]:
    try:
        counts = await amqp.counts(
            settings.amqp_url.get_secret_value(), watch.limits(settings), tls=settings.tls
        )
    except amqp.UNAVAILABLE as error:
        return {"problem": amqp.why(error)}
    return {name: asdict(count) for name, count in counts.items()}


async def metrics(settings: EdgeSettings | CloudSettings) -> str:
    """As anybody sees them: without names of tenants."""
    url = f"{doctor.base_url(settings)}/metrics"
    try:
        async with httpx2.AsyncClient(timeout=5, verify=False) as client:
            return (await client.get(url)).text
    except httpx2.HTTPError as error:
        return f"{url}: {error}\n"


def logs(folders: Iterable[Path]) -> dict[str, str]:
    """The ends of all logs in these folders, those written last first."""
    files = sorted(
        (file for folder in folders if folder.is_dir() for file in folder.glob("*.log")),
        key=lambda file: file.stat().st_mtime,
        reverse=True,
    )
    return {file.name: _tail(file) for file in files[:MAX_LOGS]}


def _tail(file: Path) -> str:
    with file.open("rb") as opened:
        size = opened.seek(0, io.SEEK_END)
        opened.seek(max(0, size - LOG_BYTES))
        text = opened.read().decode(errors="replace")
    # The first line may have lost its beginning, and with it what it says of a secret.
    return text if size <= LOG_BYTES else text.partition("\n")[2]


async def collect(environment: Mapping[str, str], log_folders: Iterable[Path]) -> dict[str, str]:
    """Every file of the bundle by its name; secrets are struck out."""
    files: dict[str, Any] = {
        "versions.json": versions(),
        "settings.json": settings_of(environment),
        "doctor.json": [asdict(check) for check in await doctor.examine(environment)],
    }
    for site, (mark, kind) in SITES.items():
        if not environment.get(mark):
            continue
        files[f"{site}-database.json"] = database(environment[mark])
        try:
            loaded: Any = kind.load(environment)
        except SettingsError:
            continue
        files[f"{site}-metrics.txt"] = await metrics(loaded)
        if isinstance(loaded, CloudSettings):
            files["cloud-queues.json"] = await queues(loaded)
    files |= {f"logs/{name}": text for name, text in logs(log_folders).items()}
    hidden = secrets(environment)
    return {name: _file(content, hidden) for name, content in files.items()}


def _file(content: Any, hidden: set[str]) -> str:
    text = content if isinstance(content, str) else _json(content)
    return masked(text, hidden)[:MAX_FILE_BYTES]


def _json(content: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(content, enc_hook=str)).decode()


def write(files: Mapping[str, str], output: Path) -> int:
    """The archive, readable for its owner alone; returns its size."""
    output.unlink(missing_ok=True)  # it would keep its mode
    output.touch(mode=0o600)
    with tarfile.open(output, "w:gz") as archive:
        for name, text in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"farmiq-support/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return output.stat().st_size


def log_folders(environment: Mapping[str, str]) -> list[Path]:
    """Where logs of local stacks and demos are; services of a site write to their manager."""
    given = environment.get("FARMIQ_STATE_DIR")
    state = Path(given) if given else config.state_dir()
    return sorted({file.parent for file in state.glob("stacks/*/logs/*.log")})
