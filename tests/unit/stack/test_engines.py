"""What the engines are told: configurations, addresses, permissions."""

import json
from pathlib import Path

import pytest

from farmiq.lab.stack import (
    ENGINES,
    StackError,
    broker,
    debian,
    engine,
    engines,
    postgres,
    rabbitmq,
    s3,
)
from farmiq.lab.stack.broker import Broker
from farmiq.lab.stack.processes import Account


def brokers() -> list[Broker]:
    return [one for one in engines.LIST if isinstance(one, Broker)]


def test_six_engines_with_names_and_variables_of_their_own() -> None:
    variables = [name for one in engines.LIST for name in (*one.required, *one.optional)]

    assert len(set(ENGINES)) == 6
    assert len(set(variables)) == len(variables)
    assert all(name.startswith("FARMIQ_") and name.endswith("_URL") for name in variables)


def test_an_unknown_engine_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(StackError, match="No engine is called mysql; there are mqtt-edge"):
        engines.choose(["mysql", "s3"])


def test_given_addresses_stand_in_for_an_engine() -> None:
    s3_engine = engines.choose(["s3"])[0]
    both = {"FARMIQ_EDGE_S3_URL": "http://a", "FARMIQ_CLOUD_S3_URL": "http://b"}

    assert engines.addresses_given(s3_engine, {**both, "FARMIQ_AMQP_URL": "amqp://c"}) == both
    assert engines.addresses_given(s3_engine, {}) == {}


def test_half_of_the_addresses_are_refused_with_what_is_lacking() -> None:
    with pytest.raises(StackError, match="but not FARMIQ_CLOUD_S3_URL"):
        engines.addresses_given(engines.choose(["s3"])[0], {"FARMIQ_EDGE_S3_URL": "http://a"})


@pytest.mark.parametrize("one", brokers(), ids=lambda one: one.name)
def test_a_broker_listens_on_loopback_keeps_messages_and_knows_limits(one: Broker) -> None:
    text = broker.configuration(
        name=one.name,
        store=Path('/data/with "quotes"'),
        mqtt_port=1,
        nats_port=2,
        users=[(one.reader, "pw"), (one.writer, "pw")],
    )

    assert text.count("host: 127.0.0.1") == 2
    assert r'store_dir: "/data/with \"quotes\""' in text
    assert "sync_interval: always" in text
    assert f"max_file_store: {broker.STORE_LIMIT_BYTES}" in text
    assert text.count('allowed_connection_types: ["MQTT"]') == 2


def test_eight_filters_ending_in_hash_fit_into_one_session() -> None:
    assert 8 * 2 * broker.MAX_ACK_PENDING <= 65_535


def test_a_filter_ending_in_hash_needs_the_parent_too() -> None:
    assert broker.subscribable(("iot.ack.>",)) == ["iot.ack.>", "iot.ack", broker.DELIVERY]


def test_devices_may_not_read_telemetry_nor_write_receipts() -> None:
    devices = brokers()[0].writer

    assert not any(subject.startswith("iot.telemetry") for subject in devices.subscribe)
    assert not any(subject.startswith(("iot.ack", "iot.>")) for subject in devices.publish)


def test_each_s3_credential_has_rights_on_its_own_bucket_alone() -> None:
    users = json.loads(s3.identities({"farmiq-edge": "x", "farmiq-cloud": "y"}))["identities"]

    for user in users:
        assert {action.partition(":")[2] for action in user["actions"]} == {user["name"]}


def test_s3_reports_to_nobody_and_listens_on_loopback() -> None:
    ports = dict.fromkeys(s3.SeaweedFS().ports, 1)
    arguments = s3.arguments(Path("/data"), ports)

    assert "-master.telemetry=false" in arguments
    assert "-ip.bind=127.0.0.1" in arguments


def test_postgres_listens_on_loopback_tcp_only() -> None:
    arguments = postgres.settings(Path("/data"), 4711)

    assert "--listen_addresses=127.0.0.1" in arguments
    assert "--unix_socket_directories=" in arguments


def test_rabbitmq_is_bound_to_loopback_everywhere() -> None:
    text = rabbitmq.configuration(amqp_port=1, api_port=2, password="secret")
    found = rabbitmq.Installation(scripts=Path("/r-3.10.8/sbin"), erlang=Path("/erl/bin"))
    environment = rabbitmq.node_environment(
        Path("/f"), dict.fromkeys(rabbitmq.RabbitMQ().ports, 3), found
    )

    assert "listeners.tcp.1 = 127.0.0.1:1" in text
    assert "management.tcp.ip = 127.0.0.1" in text
    assert environment["ERL_EPMD_ADDRESS"] == "127.0.0.1"
    assert "{127,0,0,1}" in environment["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]
    assert found.version == "3.10.8"


def test_without_rabbitmq_and_without_debian_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq, "installed", lambda: None)
    monkeypatch.setattr(debian, "usable", lambda: False)

    with pytest.raises(StackError) as failure:
        rabbitmq.find(tmp_path, say=print)
    for way in ("install rabbitmq-server", "FARMIQ_AMQP_URL", "deploy/compose.yaml"):
        assert way in str(failure.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mqtt://gateway:secret@h:1", "mqtt://gateway@h:1"),
        ("http://key:a/b@h:1/bucket", "http://key@h:1/bucket"),
        ("mqtt://h:1", "mqtt://h:1"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert engine.hide(url) == shown


@pytest.mark.parametrize("url", ["", "localhost:5432", "mqtt://user:se/cret@h", "amqp://h:port/x"])
def test_text_that_is_no_address_is_rejected(url: str) -> None:
    with pytest.raises(StackError, match="not an address"):
        engine.address(url)


def test_a_closed_parent_folder_keeps_another_user_out(tmp_path: Path) -> None:
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    nobody = Account(name="nobody", uid=65_534, gid=65_534)
    (tmp_path / "closed").chmod(0o700)

    assert not engine.open_to(inner, nobody)
    assert engine.open_to(Path("/usr/bin/env"), nobody)


def test_the_pid_file_of_a_crashed_server_is_removed_when_a_stranger_has_the_pid(
    tmp_path: Path,
) -> None:
    (tmp_path / "postmaster.pid").write_text("1\n/some/where\n")

    postgres.remove_stale_pid_file(tmp_path)

    assert not (tmp_path / "postmaster.pid").exists()
