"""The AsyncAPI document keeps the rules of AsyncAPI 3.0, names everything, and is current."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from farmiq.cli import app
from farmiq.cloud.bus import TOPOLOGY
from farmiq.contracts import asyncapi
from farmiq.messages import catalogue, topics

DOCS = Path(__file__).parents[3] / "docs"
DOCUMENT = asyncapi.document()
KEY = re.compile(r"^[A-Za-z0-9._-]+$")


def looked_up(ref: str, document: dict[str, Any] = DOCUMENT) -> Any:
    """What a reference points to; fails if there is nothing."""
    assert ref.startswith("#/")
    found: Any = document
    for part in ref[2:].split("/"):
        assert part in found, ref
        found = found[part]
    return found


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref":
                yield inner
            else:
                yield from refs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from refs(inner)


def test_document_has_the_required_fields() -> None:
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert DOCUMENT["info"]["title"]
    assert DOCUMENT["info"]["version"]
    known = {"asyncapi", "id", "info", "servers", "defaultContentType", "channels", "operations"}
    assert DOCUMENT.keys() <= {*known, "components"}
    assert DOCUMENT["components"].keys() <= {"messages", "schemas"}


def test_every_reference_resolves() -> None:
    found = set(refs(DOCUMENT))
    for ref in found:
        looked_up(ref)
    assert len(found) > 100


def test_every_server_says_where_and_how() -> None:
    for server in DOCUMENT["servers"].values():
        assert server["host"]
        assert "/" not in server["host"]
        assert server["protocol"] in {"mqtt", "amqp"}


@pytest.mark.parametrize("name", DOCUMENT["channels"])
def test_a_channel_has_an_address_messages_and_its_parameters(name: str) -> None:
    channel = DOCUMENT["channels"][name]
    assert KEY.match(name)
    assert channel["address"]
    assert channel["messages"]
    for server in channel["servers"]:
        assert server["$ref"].startswith("#/servers/")
    named = set(re.findall(r"{(\w+)}", channel["address"]))
    assert channel.get("parameters", {}).keys() == named
    for parameter in channel.get("parameters", {}).values():
        assert parameter.keys() <= {"enum", "default", "description", "examples", "location"}
    for message in channel["messages"].values():
        assert message["$ref"].startswith("#/components/messages/")


@pytest.mark.parametrize("name", DOCUMENT["operations"])
def test_an_operation_sends_or_receives_messages_of_its_channel(name: str) -> None:
    operation = DOCUMENT["operations"][name]
    assert operation["action"] in {"send", "receive"}
    assert name.startswith(f"{operation['action']}.")
    channel = operation["channel"]["$ref"]
    assert channel.startswith("#/channels/")
    assert looked_up(channel)["address"]
    assert operation["messages"]
    for message in operation["messages"]:
        assert message["$ref"].startswith(f"{channel}/messages/")


@pytest.mark.parametrize("name", DOCUMENT["components"]["messages"])
def test_a_message_has_a_name_and_a_payload(name: str) -> None:
    message = DOCUMENT["components"]["messages"][name]
    assert KEY.match(name)
    assert message["name"]
    assert message["summary"].endswith(".")
    assert isinstance(message["payload"], dict)


def test_every_channel_is_used_and_every_message_travels() -> None:
    used = {each["channel"]["$ref"].split("/")[-1] for each in DOCUMENT["operations"].values()}
    assert used == DOCUMENT["channels"].keys()
    travelling = set(refs([channel["messages"] for channel in DOCUMENT["channels"].values()]))
    assert {ref.split("/")[-1] for ref in travelling} == DOCUMENT["components"]["messages"].keys()


def test_every_topic_and_every_exchange_is_in_it() -> None:
    addresses = {channel["address"] for channel in DOCUMENT["channels"].values()}
    cameras = {topics.camera("{mac}", channel) for channel in topics.CAMERA_CHANNELS}
    shapes = {shape for kind, shape in topics.SHAPES.items() if kind is not topics.CameraTopic}
    cameras |= {each.replace("device/", "ESP32CAM/") for each in cameras}
    assert addresses == {*shapes, *cameras, *catalogue.BUS}
    exchanges = {
        channel["bindings"]["amqp"]["exchange"]["name"]
        for channel in DOCUMENT["channels"].values()
        if "bindings" in channel
    }
    assert exchanges == {each.name for each in TOPOLOGY.exchanges if each.alternate}


def test_device_operations_send_and_receive() -> None:
    """Seen from FarmIQ: what comes up is received, what goes down is sent."""
    mqtt = {name for name in DOCUMENT["operations"] if ".mqtt." in name}
    assert {name for name in mqtt if name.startswith("send.")} == {
        "send.mqtt.command", "send.mqtt.receipt", "send.mqtt.camera.ack", "send.mqtt.camera.cmd",
        "send.mqtt.camera.esp32cam.ack", "send.mqtt.camera.esp32cam.cmd",
    }  # fmt: skip
    retained = {
        name
        for name, operation in DOCUMENT["operations"].items()
        if operation.get("bindings", {}).get("mqtt", {}).get("retain")
    }
    assert retained == {"receive.mqtt.status"}


@pytest.mark.req("WV-08", "WV-09")
def test_the_schema_of_the_envelope_requires_its_eight_fields() -> None:
    schema = DOCUMENT["components"]["schemas"]["Envelope"]
    assert set(schema["required"]) == {
        "schema_version", "event_id", "trace_id", "tenant_id", "device_id", "event_type", "ts",
        "payload",
    }  # fmt: skip


@pytest.mark.req("RB-11")
def test_the_schema_of_the_bus_requires_the_documented_fields() -> None:
    schema = DOCUMENT["components"]["schemas"]["BusEvent"]
    assert set(schema["required"]) == {
        "event_id", "event_type", "tenant_id", "farm_id", "barn_id", "occurred_at", "trace_id",
        "payload",
    }  # fmt: skip


def test_stored_document_is_current() -> None:
    assert json.loads((DOCS / "asyncapi.json").read_text()) == DOCUMENT, "run `make docs`"


def test_command_prints_or_writes_the_document(tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["asyncapi"])
    written = CliRunner().invoke(app, ["asyncapi", "--out", str(tmp_path / "it.json")])

    assert (printed.exit_code, written.exit_code, written.stdout) == (0, 0, "")
    assert json.loads(printed.stdout) == DOCUMENT
    assert json.loads((tmp_path / "it.json").read_text()) == DOCUMENT
