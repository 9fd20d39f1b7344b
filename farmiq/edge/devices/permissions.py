"""Pure: the permissions of a device at the broker, in the formats of NATS and Mosquitto.

Up only under its own identity, down only its own receipts and commands. One list of topics makes
both, so the two cannot differ.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farmiq import nats_users as nats
from farmiq.edge.devices.device import Device
from farmiq.messages import topics


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
    """The users file of a NATS server; `own` are users who are no devices."""
    return nats.users_file((account(login) for login in logins), own=own)


def account(login: Login) -> nats.Account:
    return nats.Account(
        user=login.device.broker_user,
        secret_bcrypt=login.secret_bcrypt,
        publish=publishes(login.device),
        subscribe=subscribes(login.device),
    )


def mosquitto_acl(devices: Iterable[Device]) -> str:
    """The lines of devices for Mosquitto's acl_file."""
    blocks = [
        "\n".join(
            [
                f"user {device.broker_user}",
                *(f"topic write {topic}" for topic in publishes(device)),
                *(f"topic read {topic}" for topic in subscribes(device)),
            ]
        )
        for device in devices
    ]
    return "\n\n".join(blocks) + "\n" if blocks else ""


def mosquitto_passwords(logins: Iterable[Login]) -> str:
    """The lines of devices for Mosquitto's password_file."""
    return "".join(f"{login.device.broker_user}:{login.secret_pbkdf2}\n" for login in logins)
