"""AsyncAPI 3.0: every MQTT topic and every event type of the bus, seen from FarmIQ.

catalogue, topics, cloud.bus --> [asyncapi] --> docs/asyncapi.json
"""

import re
from typing import Any

from farmiq import __version__
from farmiq.cloud.bus import TOPOLOGY
from farmiq.cloud.camera.protocol import dialects
from farmiq.contracts import schemas
from farmiq.messages import catalogue, topics
from farmiq.messages.bus import BusEvent
from farmiq.messages.catalogue import BusType, Direction, MqttType
from farmiq.messages.envelope import Envelope
from farmiq.messages.topics import CameraChannel, CameraTopic, StatusTopic, Topic

MQTT_SERVER = "edge-mqtt-broker"
CAMERA_SERVER = "cloud-mqtt-broker"
BUS_SERVER = "cloud-rabbitmq"

LEVELS = {
    "tenantId": "The company whose farm it is.",
    "farmId": "The farm.",
    "barnId": "The barn.",
    "deviceId": "The device that sends, or is told something.",
    "stationId": "The weigh station.",
    "sessionId": "The weigh session, a UUID.",
    "metricType": "What was measured; equals metric_type of the payload.",
    "eventType": "The event's type; equals event_type of the envelope.",
    "command": "What the device is to do.",
    "mac": "The camera's MAC address.",
}
NAMES = {kind: kind.__name__.removesuffix("Topic").lower() for kind in topics.SHAPES}
CAMERA_DOWN = ("ack", "cmd")


def document() -> dict[str, Any]:
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "FarmIQ events",
            "version": __version__,
            "description": (
                "What devices and the edge say to each other over MQTT, and what the services "
                "of the cloud say to each other over RabbitMQ. Sending and receiving are FarmIQ's."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": _servers(),
        "channels": {**_mqtt_channels(), **_camera_channels(), **_bus_channels()},
        "operations": {**_mqtt_operations(), **_camera_operations(), **_bus_operations()},
        "components": {"messages": _messages(), "schemas": _schemas()},
    }


def _servers() -> dict[str, Any]:
    return {
        MQTT_SERVER: {
            "host": "edge:1883",
            "protocol": "mqtt",
            "protocolVersion": "3.1.1",
            "description": "In the barn. Devices connect here; QoS 1.",
        },
        CAMERA_SERVER: {
            "host": "cloud:1883",
            "protocol": "mqtt",
            "protocolVersion": "3.1.1",
            "description": "In the data centre, for cameras.",
        },
        BUS_SERVER: {
            "host": "cloud:5672",
            "protocol": "amqp",
            "protocolVersion": "0.9.1",
            "description": "The bus between the services of the cloud.",
        },
    }


def _mqtt_channels() -> dict[str, Any]:
    return {
        _mqtt_channel_name(kind): {
            "address": shape,
            "servers": [_ref("servers", MQTT_SERVER)],
            "parameters": _parameters(shape),
            "messages": {
                event_type.name: _ref("components/messages", _mqtt_message_name(event_type))
                for event_type in _types_of(kind)
            },
        }
        for kind, shape in topics.SHAPES.items()
        if kind is not CameraTopic
    }


def _camera_channels() -> dict[str, Any]:
    return {
        name: {
            "address": f"{root}/{{mac}}/{channel}",
            "servers": [_ref("servers", CAMERA_SERVER)],
            "parameters": _parameters("{mac}"),
            "messages": {"firmware": _ref("components/messages", "mqtt.camera")},
        }
        for name, root, channel in _of_cameras()
    }


def _of_cameras() -> list[tuple[str, str, CameraChannel]]:
    """(name, first level, channel) of every topic of cameras, in each dialect."""
    return [
        (f"mqtt.camera.{'' if dialect == 'standard' else f'{dialect}.'}{channel}", root, channel)
        for root, dialect in dialects.ROOTS.items()
        for channel in topics.CAMERA_CHANNELS
    ]


def _bus_channels() -> dict[str, Any]:
    return {
        _bus_name(kind): {
            "address": kind.name,
            "description": f"Routing key {kind.name} on {kind.exchange}.",
            "servers": [_ref("servers", BUS_SERVER)],
            "messages": {kind.name: _ref("components/messages", _bus_name(kind))},
            "bindings": {
                "amqp": {
                    "is": "routingKey",
                    "exchange": {
                        "name": kind.exchange,
                        "type": "topic",
                        "durable": True,
                        "autoDelete": False,
                    },
                    "bindingVersion": "0.3.0",
                }
            },
        }
        for kind in catalogue.BUS.values()
    }


def _mqtt_operations() -> dict[str, Any]:
    operations = {}
    for kind in topics.SHAPES:
        types = _types_of(kind)
        if types:
            action = "receive" if types[0].direction is Direction.UP else "send"
            retain = kind is StatusTopic
            operations[f"{action}.{_mqtt_channel_name(kind)}"] = {
                **_operation(
                    action, _mqtt_channel_name(kind), [event_type.name for event_type in types]
                ),
                "bindings": {"mqtt": {"qos": 1, "retain": retain, "bindingVersion": "0.2.0"}},
            }
    return operations


def _camera_operations() -> dict[str, Any]:
    operations = {}
    for name, _, channel in _of_cameras():
        action = "send" if channel in CAMERA_DOWN else "receive"
        operations[f"{action}.{name}"] = _operation(action, name, ["firmware"])
    return operations


def _bus_operations() -> dict[str, Any]:
    """Every type is sent; those that a queue is bound to are received too."""
    sent = {
        f"send.{_bus_name(kind)}": _operation("send", _bus_name(kind), [kind.name])
        for kind in catalogue.BUS.values()
    }
    queues: dict[str, list[str]] = {}
    for queue in TOPOLOGY.queues:
        for _, key in queue.bindings:
            if key in catalogue.BUS:
                queues.setdefault(key, []).append(queue.name)
    received = {
        f"receive.{_bus_name(catalogue.BUS[key])}": {
            **_operation("receive", _bus_name(catalogue.BUS[key]), [key]),
            "description": f"Taken from {', '.join(names)}.",
        }
        for key, names in queues.items()
    }
    return {**sent, **received}


def _operation(action: str, channel: str, messages: list[str]) -> dict[str, Any]:
    return {
        "action": action,
        "channel": _ref("channels", channel),
        "messages": [_ref(f"channels/{channel}/messages", name) for name in messages],
    }


def _messages() -> dict[str, Any]:
    return {
        **{_mqtt_message_name(kind): _mqtt_message(kind) for kind in catalogue.MQTT.values()},
        "mqtt.camera": {
            "name": "camera",
            "summary": "In the format of the camera's firmware "
            "(docs/integrate/camera-protocol.md); no envelope.",
            "contentType": "application/octet-stream",
            "payload": {},
        },
        **{_bus_name(kind): _bus_message(kind) for kind in catalogue.BUS.values()},
    }


def _mqtt_message(kind: MqttType) -> dict[str, Any]:
    return {
        "name": kind.name,
        "summary": kind.summary,
        "payload": _worn(Envelope, kind),
    }


def _bus_message(kind: BusType) -> dict[str, Any]:
    return {
        "name": kind.name,
        "summary": kind.summary,
        "headers": {
            "type": "object",
            "properties": {
                "schema_version": {"const": "1.0"},
                "trace_id": {"type": "string"},
                "traceparent": {
                    "type": "string",
                    "description": "W3C Trace Context, of events that are traced (D-596).",
                },
            },
            "required": ["schema_version", "trace_id"],
        },
        "payload": _worn(BusEvent, kind),
    }


def _worn(envelope: Any, kind: MqttType | BusType) -> dict[str, Any]:
    """The envelope with this type's name and payload in it."""
    own: dict[str, Any] = {
        "event_type": {"const": kind.name},
        "payload": schemas.ref(kind.payload),
    }
    if isinstance(kind, BusType) and not kind.place_optional:
        own |= {"farm_id": {"type": "string"}, "barn_id": {"type": "string"}}
    return {"allOf": [schemas.ref(envelope), {"type": "object", "properties": own}]}


def _schemas() -> dict[str, Any]:
    payloads = [kind.payload for kind in catalogue.MQTT.values()]
    payloads += [kind.payload for kind in catalogue.BUS.values()]
    return schemas.components([Envelope, BusEvent, *dict.fromkeys(payloads)])


def _types_of(topic: type[Topic]) -> list[MqttType]:
    return [kind for kind in catalogue.MQTT.values() if topic in kind.topics]


def _parameters(address: str) -> dict[str, Any]:
    return {name: {"description": LEVELS[name]} for name in re.findall(r"{(\w+)}", address)}


def _mqtt_channel_name(kind: type[Topic]) -> str:
    return f"mqtt.{NAMES[kind]}"


def _mqtt_message_name(kind: MqttType) -> str:
    return f"mqtt.{kind.name}"


def _bus_name(kind: BusType) -> str:
    return f"bus.{kind.name}"


def _ref(where: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/{where}/{name}"}
