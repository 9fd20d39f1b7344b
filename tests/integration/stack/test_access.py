"""Who may do what: users of the brokers, credentials of the buckets, given addresses."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from farmiq.lab import stack
from farmiq.lab.stack import broker
from farmiq.lab.stack.engine import NotReadyError


class Client:
    """An MQTT client that waits for every answer."""

    def __init__(self, url: str, name: str) -> None:
        parts = urlsplit(url)
        self.client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv311
        )
        self.client.username_pw_set(parts.username or "", parts.password)
        self.answers: list[ReasonCode] = []
        self.answered = threading.Event()
        self.messages: list[tuple[str, bytes]] = []
        self.received = threading.Event()
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = self._on_message
        connected = threading.Event()
        self.client.on_connect = lambda *_: connected.set()
        self.client.connect(parts.hostname or "", parts.port or 0)
        self.client.loop_start()
        assert connected.wait(60)

    def subscribe(self, topic: str) -> bool:
        self.answered.clear()
        self.client.subscribe(topic, 1)
        assert self.answered.wait(60)
        return not self.answers[-1].is_failure

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.client.publish(topic, payload, 1, retain=retain).wait_for_publish(60)

    def _on_subscribe(
        self, _client: object, _data: object, _mid: int, codes: list[ReasonCode], _more: object
    ) -> None:
        self.answers += codes
        self.answered.set()

    def _on_message(self, _client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        self.messages.append((message.topic, bytes(message.payload)))
        self.received.set()


@contextmanager
def client(url: str, name: str) -> Iterator[Client]:
    connected = Client(url, name)
    try:
        yield connected
    finally:
        connected.client.disconnect()
        connected.client.loop_stop()


@pytest.fixture
def edge(root: Path) -> Iterator[stack.Stack]:
    with stack.start(root, engines=["mqtt-edge"]) as running:
        yield running


def test_an_anonymous_client_and_a_wrong_password_are_refused(edge: stack.Stack) -> None:
    parts = urlsplit(edge.environment["FARMIQ_EDGE_MQTT_URL"])

    for login in ("", "gateway:wrong@"):
        with pytest.raises(NotReadyError, match="refused the login"):
            broker.connect(f"mqtt://{login}{parts.hostname}:{parts.port}")


def test_a_device_reads_receipts_and_commands_but_not_other_devices(edge: stack.Stack) -> None:
    with client(edge.environment["FARMIQ_DEVICES_MQTT_URL"], "scale-1") as device:
        assert device.subscribe("iot/ack/t/f/b/scale-1")
        assert device.subscribe("iot/command/#")
        assert not device.subscribe("iot/#")
        assert not device.subscribe("iot/telemetry/#")
        assert not device.subscribe("#")


def test_a_device_cannot_forge_a_receipt(edge: stack.Stack) -> None:
    environment = edge.environment
    with (
        client(environment["FARMIQ_DEVICES_MQTT_URL"], "scale-1") as device,
        client(environment["FARMIQ_EDGE_MQTT_URL"], "gateway-1") as gateway,
    ):
        assert device.subscribe("iot/ack/t/f/b/scale-1")
        device.publish("iot/ack/t/f/b/scale-1", b"forged")
        gateway.publish("iot/ack/t/f/b/scale-1", b"true")
        assert device.received.wait(60)
        assert device.messages == [("iot/ack/t/f/b/scale-1", b"true")]


def test_the_gateway_hears_everything_in_eight_filters_with_large_messages(
    edge: stack.Stack,
) -> None:
    families = ("telemetry", "event", "status", "weighvision", "a", "b", "c", "d")
    with (
        client(edge.environment["FARMIQ_EDGE_MQTT_URL"], "gateway-1") as gateway,
        client(edge.environment["FARMIQ_DEVICES_MQTT_URL"], "scale-1") as device,
    ):
        assert all(gateway.subscribe(f"iot/{family}/#") for family in families)
        device.publish("iot/telemetry/t/f/b/scale.1/weight.kg", b"x" * 256 * 1024)
        assert gateway.received.wait(60)
        assert gateway.messages[0][0] == "iot/telemetry/t/f/b/scale.1/weight.kg"


def test_a_retained_status_reaches_a_gateway_that_comes_later(edge: stack.Stack) -> None:
    topic = "iot/status/t/f/b/scale-1"
    with client(edge.environment["FARMIQ_DEVICES_MQTT_URL"], "scale-1") as device:
        device.publish(topic, b"online", retain=True)
    with client(edge.environment["FARMIQ_EDGE_MQTT_URL"], "gateway-1") as gateway:
        assert gateway.subscribe("iot/status/#")
        assert gateway.received.wait(60)
        assert gateway.messages == [(topic, b"online")]


def test_a_camera_talks_to_the_gateway_and_hears_no_other_camera(root: Path) -> None:
    with (
        stack.start(root, engines=["mqtt-cloud"]) as running,
        client(running.environment["FARMIQ_CAMERAS_MQTT_URL"], "camera-1") as camera,
        client(running.environment["FARMIQ_CLOUD_MQTT_URL"], "gateway-1") as gateway,
    ):
        assert gateway.subscribe("device/+/#")
        assert camera.subscribe("device/aabbcc/cmd")
        assert not camera.subscribe("device/#")
        assert not camera.subscribe("device/+/data")
        camera.publish("device/aabbcc/cmd", b"forged")
        camera.publish("device/aabbcc/data", b"chunk")
        gateway.publish("device/aabbcc/cmd", b"send_image")
        assert gateway.received.wait(60)
        assert camera.received.wait(60)
        assert gateway.messages[0] == ("device/aabbcc/data", b"chunk")
        assert camera.messages == [("device/aabbcc/cmd", b"send_image")]


def test_each_bucket_is_closed_to_the_other_credential(root: Path) -> None:
    with stack.start(root, engines=["s3"]) as running:
        edge_url = urlsplit(running.environment["FARMIQ_EDGE_S3_URL"])
        s3 = boto3.client(
            "s3",
            endpoint_url=f"http://{edge_url.hostname}:{edge_url.port}",
            aws_access_key_id=edge_url.username,
            aws_secret_access_key=edge_url.password,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}),
        )
        s3.put_object(Bucket="farmiq-edge", Key="own", Body=b"1")
        attempts: list[Callable[[], object]] = [
            lambda: s3.put_object(Bucket="farmiq-cloud", Key="x", Body=b"1"),
            lambda: s3.get_object(Bucket="farmiq-cloud", Key="x"),
            lambda: s3.list_objects_v2(Bucket="farmiq-cloud"),
            lambda: s3.create_bucket(Bucket="another"),
        ]
        for attempt in attempts:
            with pytest.raises(ClientError, match="AccessDenied"):
                attempt()
        assert s3.list_objects_v2(Bucket="farmiq-edge")["KeyCount"] == 1
        s3.close()


def test_a_given_engine_is_used_and_not_started(edge: stack.Stack, second_root: Path) -> None:
    given = {key: url for key, url in edge.environment.items() if key.endswith("_MQTT_URL")}
    lines: list[str] = []
    with stack.start(second_root, engines=["mqtt-edge"], given=given, say=lines.append) as running:
        assert running.environment == given
        with pytest.raises(stack.StackError, match="was not started by this stack"):
            running.pid("mqtt-edge")
    assert [state.healthy for state in stack.states(edge.root)] == [True]
    assert lines[0].endswith("given by address")


def test_a_given_engine_that_does_not_answer_is_named_without_its_password(root: Path) -> None:
    given = {"FARMIQ_CLOUD_DB_URL": "postgresql://someone:hidden@127.0.0.1:9/nowhere"}

    with pytest.raises(stack.StackError) as failure:
        stack.start(root, engines=["postgres-cloud"], given=given)
    assert "FARMIQ_CLOUD_DB_URL=postgresql://someone@127.0.0.1:9/nowhere" in str(failure.value)
    assert "Start that server or correct the address" in str(failure.value)
    assert "hidden" not in str(failure.value)
