"""Addresses of clusters: one address for each node, and the first that answers is taken."""

import pytest

from farmiq.plumbing import hosts
from farmiq.plumbing.messaging import mqtt_address

NODES = "amqp://user:p%2Cw@a:1,b:2,[::1]:3/vhost?heartbeat=5"


def test_address_of_each_node_keeps_all_but_the_others() -> None:
    assert hosts.split(NODES) == [
        "amqp://user:p%2Cw@a:1/vhost?heartbeat=5",
        "amqp://user:p%2Cw@b:2/vhost?heartbeat=5",
        "amqp://user:p%2Cw@[::1]:3/vhost?heartbeat=5",
    ]
    assert hosts.split("nats://a:4222") == ["nats://a:4222"]


def test_broker_of_several_nodes_is_named_whole_in_a_devices_address() -> None:
    url = "mqtts://gateway:x@a,b:99,[::1]:1"
    assert mqtt_address.addresses(url) == [("a", 8883), ("b", 99), ("::1", 1)]
    made = mqtt_address.login_url("d", "p,@", url=url)
    assert made == "mqtts://d:p%2C%40@a:8883,b:99,[::1]:1"
    assert mqtt_address.addresses(made) == mqtt_address.addresses(url)
    with pytest.raises(ValueError, match="the port a number"):
        mqtt_address.addresses("mqtt://a:1,b:x")


async def test_nodes_that_do_not_answer_are_passed_over() -> None:
    asked: list[str] = []

    async def connect(url: str) -> str:
        asked.append(url)
        if "b:2" not in url:
            raise ConnectionRefusedError(url)
        return url

    found = await hosts.first(NODES, connect, failed=(OSError,), within_s=60)
    assert found == hosts.split(NODES)[1]
    assert len(set(asked)) == len(asked)


async def test_error_of_the_last_node_is_raised() -> None:
    async def connect(url: str) -> str:
        raise ConnectionRefusedError(url)

    with pytest.raises(ConnectionRefusedError):
        await hosts.first(NODES, connect, failed=(OSError,), within_s=60)
