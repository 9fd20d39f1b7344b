"""Everything a farm needs before its services start: schemas, people, devices, keys, ports."""

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import psycopg

from farmiq.cloud import broker
from farmiq.cloud.edges import registry
from farmiq.cloud.farms import store
from farmiq.cloud.identity.accounts import add_company, add_user
from farmiq.config import CloudSettings
from farmiq.edge import api_keys, pins
from farmiq.edge.devices import registration
from farmiq.edge.devices.device import Device
from farmiq.lab.simulate import farm
from farmiq.lab.simulate.life import files, flocks
from farmiq.lab.simulate.life.flocks import Life
from farmiq.lab.simulate.sensors import HEARTBEAT_S
from farmiq.lab.stack.ports import is_free, single
from farmiq.messages.alerts import AlertRule
from farmiq.plumbing import ids, migrations, sealing, tokens
from farmiq.plumbing.bus import rabbit
from farmiq.services import SQL

TENANT_ID = "hillside"
CLUSTER_ID = "edge-demo"
EMAIL = "operator@hillside.farm"
OPERATOR = "operator"
SETTINGS_FILE = "site.json"
LOGINS_FILE = "logins.json"
LIFE_FILE = "life.json"
# Not UTC: a farm's days are its own.
TIMEZONE = "Asia/Bangkok"
PREFERRED_PORTS = {"FARMIQ_CLOUD_HTTP_PORT": 8080, "FARMIQ_EDGE_HTTP_PORT": 8081}


class ProvisionError(Exception):
    """The site cannot be made ready; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Site:
    """The environment of the services, and how a person signs in."""

    environment: dict[str, str]
    email: str
    password: str
    # At the edge's own console, where the name of the key is OPERATOR.
    pin: str = ""
    edge_key: str = ""

    @property
    def console_url(self) -> str:
        return f"http://127.0.0.1:{self.environment['FARMIQ_CLOUD_HTTP_PORT']}"

    @property
    def edge_url(self) -> str:
        return f"http://127.0.0.1:{self.environment['FARMIQ_EDGE_HTTP_PORT']}"


async def provision(root: Path, engines: Mapping[str, str], *, barns: int) -> Site:
    """Safe to repeat: the password, the keys and the devices' logins of a root stay the same."""
    _migrate(root, engines)
    provide_bus(engines)
    logins = await _register(root, engines["FARMIQ_EDGE_DB_ADMIN_URL"], barns=barns)
    earlier = read(root)
    password = earlier.password if earlier else secrets.token_urlsafe(9)
    with psycopg.connect(engines["FARMIQ_CLOUD_DB_ADMIN_URL"]) as connection:
        company_id = add_company(connection, TENANT_ID, name="Hillside Farm", timezone="UTC")
        add_user(connection, EMAIL, company_id=company_id, password=password, role="admin")
    key_file = await _enroll(root, engines["FARMIQ_CLOUD_DB_ADMIN_URL"])
    life = _live(root, barns=barns)
    await _register_farm(engines["FARMIQ_CLOUD_DB_ADMIN_URL"], life)
    _derive_intakes(engines["FARMIQ_EDGE_DB_ADMIN_URL"])
    _add_alert_rule(engines["FARMIQ_CLOUD_DB_ADMIN_URL"])
    ports = {name: str(_free_port(port)) for name, port in PREFERRED_PORTS.items()}
    environment = {
        **engines,
        **ports,
        "FARMIQ_EDGE_KEY_FILE": str(key_file),
        "FARMIQ_SECRETS_KEY_FILE": str(_secrets_key(root)),
        "FARMIQ_PUBLIC_URL": f"http://127.0.0.1:{ports['FARMIQ_CLOUD_HTTP_PORT']}",
        "FARMIQ_DEVICES_LOGINS_FILE": str(logins),
        "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{ports['FARMIQ_CLOUD_HTTP_PORT']}",
        "FARMIQ_EDGE_CLUSTER_ID": CLUSTER_ID,
        "FARMIQ_EDGE_MQTT_CLIENT_ID": _client_id(earlier),
        # The demo's days are short, and so is its patience.
        "FEED_SETTLE_SECONDS": "5",
        "FEED_DERIVE_SECONDS": "5",
        "OPERATOR_TENANT": TENANT_ID,
    }
    pin, key = edge_sign_in(earlier)
    add_edge_key(engines["FARMIQ_EDGE_DB_ADMIN_URL"], pin, key)
    site = Site(environment, EMAIL, password, pin, key)
    _write(root, site)
    return site


def edge_sign_in(earlier: Site | None) -> tuple[str, str]:
    """(PIN, key) of the edge's console; those of an earlier start stay."""
    if earlier and earlier.pin:
        return earlier.pin, earlier.edge_key
    drawn = (f"{secrets.randbelow(10**6):06}" for _ in iter(int, 1))
    return next(pin for pin in drawn if pins.problem(pin) is None), api_keys.new_key()


def add_edge_key(edge_url: str, pin: str, key: str) -> None:
    with psycopg.connect(edge_url) as connection:
        connection.execute(
            "insert into api_keys (api_key_id, name, role, key_sha256, tenant_id, pin_bcrypt) "
            "values (%s, %s, 'admin', %s, %s, %s) on conflict on constraint api_keys_name_key "
            "do update set key_sha256 = excluded.key_sha256, pin_bcrypt = excluded.pin_bcrypt",
            (ids.new(), OPERATOR, api_keys.digest(key), TENANT_ID, pins.hashed(pin)),
        )


def _secrets_key(root: Path) -> Path:
    """The key that seals what the alert channels of this site must not show."""
    file = root / "secrets.key"
    if not file.exists():
        sealing.write_new_key(file)
    return file


def _derive_intakes(edge_url: str) -> None:
    """Barns without a feeder: intake is derived from the weight of the silo."""
    with psycopg.connect(edge_url) as connection:
        for device_id in ("barn-2-silo", "barn-4-silo"):
            connection.execute(
                "insert into silo_settings (tenant_id, device_id, derive_intake) "
                "values (%s, %s, true) on conflict do nothing",
                (TENANT_ID, device_id),
            )


# barn-3 is at 28 °C: too warm for its birds, and not yet worth a page by the rules that ship.
TOO_WARM = AlertRule(
    rule_id="barn.too-warm",
    signal="telemetry.temperature",
    condition="above",
    threshold=26.0,
    clear=25.0,
    for_s=60,
    species=["broiler"],
    min_age_days=28,
    name="Grown birds are too warm",
)


def _add_alert_rule(cloud_url: str) -> None:
    """The company's own rule beside those that ship; a person may change or remove it."""
    with psycopg.connect(cloud_url) as connection:
        connection.execute(
            "insert into alert_rules (tenant_id, rule_id, rule, changed_by) "
            "values (%s, %s, %s::jsonb, 'demo') on conflict do nothing",
            (TENANT_ID, TOO_WARM.rule_id, msgspec.json.encode(TOO_WARM).decode()),
        )


def provide_bus(engines: Mapping[str, str]) -> None:
    """The whole bus with its caps, as `farmiq topology apply` makes it on a farm's broker.

    A broker of one's own may have no management API; then services make what they need, uncapped.
    """
    url = engines.get("FARMIQ_RABBITMQ_API_URL")
    if url is None:
        return
    vhost = unquote(urlsplit(engines["FARMIQ_AMQP_URL"]).path[1:]) or "/"
    with rabbit.Api(url, vhost=vhost) as api:
        want = broker.wanted(CloudSettings.load_some(engines), api, users=False)
        for difference in broker.differences(api, want, users=False):
            broker.apply(api, want, difference)


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
        json.dumps(asdict(site)),
        encoding="utf-8",
    )


def _client_id(earlier: Site | None) -> str:
    """Stable and hard to guess: another client of this id would end the gateway's session."""
    known = earlier.environment.get("FARMIQ_EDGE_MQTT_CLIENT_ID") if earlier else None
    return known or f"edge-ingress-gateway-{secrets.token_hex(8)}"


def _live(root: Path, *, barns: int) -> Life:
    """The life of this root's farm: flocks that were placed before its first start."""
    file = root / LIFE_FILE
    if not file.exists():
        life = flocks.broiler_farm(
            TENANT_ID, until=datetime.now(UTC), timezone=TIMEZONE, barns=barns
        )
        files.write(file, life)
    return files.read(file)


async def _register_farm(url: str, life: Life) -> None:
    """The farm, its barns and batches, and the standard of their breed."""
    async with await psycopg.AsyncConnection.connect(url) as tx:
        for kind, rows in files.masterdata(life):
            await store.save(tx, kind, life.tenant_id, rows)


async def _enroll(root: Path, url: str) -> Path:
    """The edge's key, registered as an invitation would do it; nothing listens to HTTP yet."""
    file = root / "edge-key.jwk"
    if not file.exists():
        tokens.write_private(file, tokens.new_key())
    public = tokens.PublicKey.read(tokens.public_part(json.loads(file.read_text("utf-8"))))
    async with await psycopg.AsyncConnection.connect(url) as tx:
        if not await registry.registrations(tx, public.key_id):
            code, _ = await registry.invite(
                tx, CLUSTER_ID, [TENANT_ID], lasts=timedelta(minutes=5), actor="demo"
            )
            await registry.enroll(tx, code, public)
    return file


async def _register(root: Path, url: str, *, barns: int) -> Path:
    """The simulated farm's devices, each with a login that the simulator finds in the file."""
    file = root / LOGINS_FILE
    known = json.loads(file.read_text(encoding="utf-8"))["devices"] if file.exists() else []
    have = {(device["tenant_id"], device["device_id"]) for device in known}
    devices = [_device(device) for device in farm.farm(TENANT_ID, barns=barns)]
    devices += [_station(device) for device in farm.stations(TENANT_ID, barns=barns)]
    lacking = [device for device in devices if device.key not in have]
    if lacking:
        made = await _add(url, lacking)
        _write_private(file, {"devices": [*known, *(device.as_json() for device in made)]})
    return file


def _device(simulated: farm.Device) -> Device:
    place = simulated.place
    return Device(
        tenant_id=place.tenant_id, farm_id=place.farm_id, barn_id=place.barn_id,
        device_id=place.device_id, kind="silo" if simulated.metrics == farm.SILO else "sensor",
        firmware="simulated 1.0", wants_receipts=True, heartbeat_s=int(HEARTBEAT_S),
    )  # fmt: skip


def _station(simulated: farm.Station) -> Device:
    place = simulated.place
    return Device(
        tenant_id=place.tenant_id, farm_id=place.farm_id, barn_id=place.barn_id,
        device_id=place.device_id, station_id=simulated.station_id, kind="station",
        firmware="simulated 1.0", wants_receipts=True, heartbeat_s=int(HEARTBEAT_S),
    )  # fmt: skip


async def _add(url: str, devices: list[Device]) -> list[registration.Credentials]:
    """A device whose login got lost gets another."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        taken = {
            line
            for line, *_ in await registration.find_registered(connection, list(enumerate(devices)))
        }
        return [
            await registration.rotate(connection, device.key, actor="demo")
            if line in taken
            else await registration.add(connection, device, actor="demo")
            for line, device in enumerate(devices)
        ]


def _write_private(file: Path, value: object) -> None:
    draft = file.with_suffix(".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        json.dump(value, opened, indent=2)
    draft.replace(file)


def _free_port(preferred: int) -> int:
    return preferred if is_free(preferred) else single()
