"""Everything a farm needs before its services start: schemas, a company, a person, keys, ports."""

import json
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

from farmiq.cloud.identity.accounts import add_company, add_user
from farmiq.plumbing import migrations, tokens
from farmiq.process import SQL

TENANT_ID = "hillside"
EMAIL = "operator@hillside.farm"
SETTINGS_FILE = "site.json"
PREFERRED_PORTS = {"FARMIQ_CLOUD_HTTP_PORT": 8080, "FARMIQ_EDGE_HTTP_PORT": 8081}


class ProvisionError(Exception):
    """The site cannot be made ready; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Site:
    """The environment of the services, and how a person signs in."""

    environment: dict[str, str]
    email: str
    password: str

    @property
    def console_url(self) -> str:
        return f"http://127.0.0.1:{self.environment['FARMIQ_CLOUD_HTTP_PORT']}"

    @property
    def edge_url(self) -> str:
        return f"http://127.0.0.1:{self.environment['FARMIQ_EDGE_HTTP_PORT']}"


def provision(root: Path, engines: Mapping[str, str]) -> Site:
    """Safe to repeat: the password and the keys of a root stay the same."""
    _migrate(root, engines)
    kept = read(root)
    password = kept.password if kept else secrets.token_urlsafe(9)
    with psycopg.connect(engines["FARMIQ_CLOUD_DB_ADMIN_URL"]) as connection:
        company_id = add_company(connection, TENANT_ID, name="Hillside Farm", timezone="UTC")
        add_user(connection, EMAIL, company_id=company_id, password=password, role="admin")
    _derive_intakes(engines["FARMIQ_EDGE_DB_ADMIN_URL"])
    ports = {name: str(_free_port(port)) for name, port in PREFERRED_PORTS.items()}
    environment = {
        **engines,
        **ports,
        **_keys(root),
        "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{ports['FARMIQ_CLOUD_HTTP_PORT']}",
        "FARMIQ_EDGE_CLUSTER_ID": "edge-demo",
        # The demo's days are short, and so is its patience.
        "FEED_SETTLE_SECONDS": "5",
        "FEED_DERIVE_SECONDS": "5",
    }
    site = Site(environment, EMAIL, password)
    _write(root, site)
    return site


def _derive_intakes(edge_url: str) -> None:
    """Barns without a feeder: the weight of the silo tells what was eaten."""
    with psycopg.connect(edge_url) as connection:
        for device_id in ("barn-2-silo", "barn-4-silo"):
            connection.execute(
                "insert into silo_settings (tenant_id, device_id, derive_intake) "
                "values (%s, %s, true) on conflict do nothing",
                (TENANT_ID, device_id),
            )


def _migrate(root: Path, engines: Mapping[str, str]) -> None:
    for name, folder in SQL.items():
        try:
            migrations.apply(engines[f"FARMIQ_{name.upper()}_DB_ADMIN_URL"], folder)
        except migrations.MigrationError as error:
            raise ProvisionError(
                f"the data of this stack is of another version ({error}): start afresh with "
                f"`farmiq stack down --name {root.name} --delete-data`"
            ) from None


def read(root: Path) -> Site | None:
    """What was provisioned under this root, if anything."""
    file = root / SETTINGS_FILE
    return Site(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None


def _write(root: Path, site: Site) -> None:
    file = root / SETTINGS_FILE
    file.touch(mode=0o600)
    file.write_text(
        json.dumps(
            {"environment": site.environment, "email": site.email, "password": site.password}
        ),
        encoding="utf-8",
    )


def _keys(root: Path) -> dict[str, str]:
    private, public = root / "edge-key.json", root / "edge-keys.json"
    if not private.exists():
        tokens.write_new_key(private, public)
    return {"FARMIQ_EDGE_KEY_FILE": str(private), "FARMIQ_EDGE_KEYS_FILE": str(public)}


def _free_port(preferred: int) -> int:
    for port in (preferred, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            return found
    raise OSError("no free port on 127.0.0.1")
