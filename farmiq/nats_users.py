"""Pure: users of a NATS server as its configuration wants to read them.

A user may publish and subscribe what is named, by MQTT alone: a client of the NATS protocol could
listen to other clients' deliveries.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

OWN_USERS_FILE = "own-users.conf"
# What a QoS 1 subscription is delivered through; an MQTT client cannot subscribe to it itself.
_DELIVERY = "$MQTT.sub.>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Who may connect: the hash of its secret, and MQTT topic filters."""

    user: str
    secret_bcrypt: str
    publish: Sequence[str]
    subscribe: Sequence[str]


def users_file(accounts: Iterable[Account], *, own: Sequence[str]) -> str:
    """A file for `authorization { include … }`.

    `own` are users who are no devices: variables that OWN_USERS_FILE beside it defines.
    """
    lines = [f"  ${name}" for name in own] + [_user(account) for account in accounts]
    head = "# Made from the registry of devices; changes by hand are overwritten."
    return "\n".join([head, f'include "{OWN_USERS_FILE}"', "users = [", *lines, "]", ""])


def subject(topic: str) -> str:
    """An MQTT topic filter as a NATS subject: a dot inside a level becomes two slashes."""
    levels = [level.replace(".", "//") for level in topic.split("/")]
    return ".".join({"+": "*", "#": ">"}.get(level, level) for level in levels)


def publishable(account: Account) -> list[str]:
    """Subjects that an account may publish on."""
    return [subject(topic) for topic in account.publish]


def subscribable(account: Account) -> list[str]:
    """Subjects that an account may subscribe to."""
    return [*(name for topic in account.subscribe for name in _subscribable(topic)), _DELIVERY]


def _user(account: Account) -> str:
    return (
        f"  {{ user: {json.dumps(account.user)},"
        f" password: {json.dumps(account.secret_bcrypt)},"
        ' allowed_connection_types: ["MQTT"], permissions: {'
        f" publish: {{ allow: {json.dumps(publishable(account))} }},"
        f" subscribe: {{ allow: {json.dumps(subscribable(account))} }} }} }}"
    )


def _subscribable(topic: str) -> list[str]:
    """In MQTT `a/#` includes `a`."""
    return [subject(topic), *([subject(topic.removesuffix("/#"))] if topic.endswith("/#") else [])]
