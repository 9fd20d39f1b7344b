"""What a device may do at a broker: both brokers' files say the same, and nothing foreign fits."""

import re
from base64 import b64decode
from hashlib import pbkdf2_hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq import nats_users
from farmiq.edge.devices import credentials
from farmiq.edge.devices import device as permissions
from farmiq.edge.devices.device import Device, Login

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,6}", fullmatch=True)


def device(device_id: str = "d", *, station_id: str | None = None) -> Device:
    return Device(
        tenant_id="t", farm_id="f", barn_id="b", device_id=device_id, station_id=station_id
    )


def login(one: Device) -> Login:
    return Login(one, "$2a$04$hash", "$7$101$salt$hash")


def covers(topic_filter: str, topic: str) -> bool:
    """MQTT's own rule."""
    pattern = [
        ".*" if level == "#" else "[^/]*" if level == "+" else re.escape(level)
        for level in topic_filter.split("/")
    ]
    return re.fullmatch("/".join(pattern), topic) is not None


@pytest.mark.parametrize(
    ("topic", "subject"),
    [
        ("iot/status/t/f/b/d", "iot.status.t.f.b.d"),
        ("iot/telemetry/t/f/b/d.1:x/+", "iot.telemetry.t.f.b.d//1:x.*"),
        ("iot/command/t./f/b..c/d/#", "iot.command.t//.f.b////c.d.>"),
    ],
)
def test_a_topic_becomes_a_subject(topic: str, subject: str) -> None:
    assert nats_users.subject(topic) == subject


@given(st.lists(IDS, min_size=3, max_size=3), st.lists(IDS, min_size=3, max_size=3))
def test_different_topics_are_different_subjects(one: list[str], other: list[str]) -> None:
    same = nats_users.subject("/".join(one)) == nats_users.subject("/".join(other))
    assert same == (one == other)


def test_a_device_publishes_under_its_own_name_only() -> None:
    mine = permissions.publishes(device("d", station_id="s"))
    good = [
        "iot/telemetry/t/f/b/d/temperature",
        "iot/event/t/f/b/d/feed.dispensed",
        "iot/status/t/f/b/d",
        "iot/weighvision/t/f/b/s/session/u/weighvision.session.created",
    ]
    bad = [
        "iot/telemetry/t/f/b/e/temperature", "iot/telemetry/t/f/c/d/temperature",
        "iot/telemetry/t/f/b/d/x/y", "iot/status/t/f/b/d/x", "iot/status/t/f/b/dd",
        "iot/ack/t/f/b/d", "iot/command/t/f/b/d/ping", "device/aa/status",
        "iot/weighvision/t/f/b/s2/session/u/x", "iot/weighvision/t/f/b/s/u/x",
    ]  # fmt: skip
    for topic in good:
        assert any(covers(each, topic) for each in mine), topic
    for topic in bad:
        assert not any(covers(each, topic) for each in mine), topic
    assert len(permissions.publishes(device("d"))) == 3


def test_a_device_hears_its_own_receipts_and_commands_only() -> None:
    assert permissions.subscribes(device("d")) == ["iot/ack/t/f/b/d", "iot/command/t/f/b/d/#"]


def test_both_brokers_are_told_the_same() -> None:
    some = [login(device("d.1")), login(device("e", station_id="s"))]
    nats = permissions.nats_users(some, own=("GATEWAY", "DEVICES"))
    acl = permissions.mosquitto_acl(each.device for each in some)
    for each in some:
        for topic in permissions.publishes(each.device):
            assert f'"{nats_users.subject(topic)}"' in nats
            assert f"\ntopic write {topic}\n" in f"\n{acl}"
        for topic in permissions.subscribes(each.device):
            assert f'"{nats_users.subject(topic)}"' in nats
            assert f"\ntopic read {topic}\n" in f"\n{acl}"
        assert f"user {each.device.broker_user}\n" in acl
    assert "  $GATEWAY\n  $DEVICES\n" in nats
    assert nats.count('allowed_connection_types: ["MQTT"]') == 2
    assert permissions.mosquitto_acl([]) == ""


def test_mosquitto_checks_the_password_by_what_its_file_says() -> None:
    secret = credentials.new()
    one = Login(device("d:1"), secret.bcrypt, secret.pbkdf2)
    (line,) = permissions.mosquitto_passwords([one]).splitlines()
    user, _, hashed = line.partition(":")
    _, seven, rounds, salt, digest = hashed.split("$")
    assert (user, seven) == ("t/d%3A1", "7")
    again = pbkdf2_hmac("sha512", secret.plain.encode(), b64decode(salt), int(rounds))
    assert b64decode(digest) == again


def test_a_secret_is_long_and_only_itself_fits_its_hash() -> None:
    one, other = credentials.new(), credentials.new()
    assert len(one.plain) >= 32
    assert one.plain not in one.bcrypt + one.pbkdf2
    assert one.bcrypt.startswith("$2a$")
    assert credentials.fits(one.plain, one.bcrypt)
    assert not credentials.fits(other.plain, one.bcrypt)
