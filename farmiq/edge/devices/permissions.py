"""Pure: what a device may do at the broker, as NATS and as Mosquitto want to read it.

Up only under its own identity, down only its own receipts and commands. One list of topics makes
both, so the two cannot differ.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farmiq.edge.devices.entry import Device
from farmiq.messages import topics

OWN_USERS_FILE = "own-users.conf"
# What a QoS 1 subscription is delivered through; an MQTT client cannot subscribe to it itself.
_DELIVERY = "$MQTT.sub.>"


@dataclass(frozen=True, slots=True)
class Login:
    """A device that may connect, and the hashes of its secret."""

    device: Device
    secret_bcrypt: str
    secret_pbkdf2: str


def publishes(device: Device) -> list[str]:
    """Topic filters that the device may publish on."""
    where = device.where
    own = [topics.telemetry(where, "+"), topics.event(where, "+"), topics.status(where)]
    if device.station is not None:
        own.append(f"iot/weighvision/{'/'.join(device.station)}/session/+/+")
    return own


def subscribes(device: Device) -> list[str]:
    """Topic filters that the device may subscribe to."""
    return [topics.receipts(device.where), topics.command(device.where, "#")]


def nats_users(logins: Iterable[Login], *, own: Sequence[str] = ("GATEWAY",)) -> str:
    """A file for `authorization { include … }` of a NATS server.

    `own` are users who are no devices: variables that OWN_USERS_FILE beside it defines.
    """
    lines = [f"  ${name}" for name in own] + [_nats_user(login) for login in logins]
    head = "# Made from the registry of devices; changes by hand are overwritten."
    return "\n".join([head, f'include "{OWN_USERS_FILE}"', "users = [", *lines, "]", ""])


def mosquitto_acl(devices: Iterable[Device]) -> str:
    """The lines of devices for Mosquitto's acl_file."""
    blocks = [
        "\n".join(
            [
                f"user {device.broker_user}",
                *(f"topic write {each}" for each in publishes(device)),
                *(f"topic read {each}" for each in subscribes(device)),
            ]
        )
        for device in devices
    ]
    return "\n\n".join(blocks) + "\n" if blocks else ""


def mosquitto_passwords(logins: Iterable[Login]) -> str:
    """The lines of devices for Mosquitto's password_file."""
    return "".join(f"{login.device.broker_user}:{login.secret_pbkdf2}\n" for login in logins)


def subject(topic: str) -> str:
    """An MQTT topic filter as a NATS subject: a dot inside a level becomes two slashes."""
    levels = [level.replace(".", "//") for level in topic.split("/")]
    return ".".join({"+": "*", "#": ">"}.get(level, level) for level in levels)


def _nats_user(login: Login) -> str:
    up = [subject(each) for each in publishes(login.device)]
    down = [each for topic in subscribes(login.device) for each in _subscribable(topic)]
    return (
        f"  {{ user: {json.dumps(login.device.broker_user)},"
        f" password: {json.dumps(login.secret_bcrypt)},"
        ' allowed_connection_types: ["MQTT"], permissions: {'
        f" publish: {{ allow: {json.dumps(up)} }},"
        f" subscribe: {{ allow: {json.dumps([*down, _DELIVERY])} }} }} }}"
    )


def _subscribable(topic: str) -> list[str]:
    """In MQTT `a/#` includes `a`."""
    return [subject(topic), *([subject(topic.removesuffix("/#"))] if topic.endswith("/#") else [])]
