"""The list: every engine of a stack, in the order in which data meets it."""

from collections.abc import Collection, Mapping

from farmiq.lab.stack.broker import Broker, User, log_user
from farmiq.lab.stack.engine import Engine, StackError
from farmiq.lab.stack.postgres import Postgres
from farmiq.lab.stack.rabbitmq import RabbitMQ
from farmiq.lab.stack.s3 import SeaweedFS

LIST: tuple[Engine, ...] = (
    Broker(
        name="mqtt-edge",
        prefix="FARMIQ_EDGE_BROKER_",
        reader=User(
            name="gateway",
            variable="FARMIQ_EDGE_MQTT_URL",
            publish=("iot.ack.>", "iot.command.>"),
            subscribe=("iot.>",),
        ),
        writer=User(
            name="devices",
            variable="FARMIQ_DEVICES_MQTT_URL",
            publish=("iot.telemetry.>", "iot.event.>", "iot.status.>", "iot.weighvision.>"),
            subscribe=("iot.ack.>", "iot.command.>"),
        ),
        log_reader=log_user(
            "FARMIQ_EDGE_INGRESS_URL",
            stream="FARMIQ_UP",
            publish=("iot.ack.>",),
            subscribe=("iot.telemetry.>", "iot.event.>", "iot.status.>", "iot.weighvision.>"),
            before=("$MQTT_msgs",),
        ),
    ),
    Postgres(
        name="postgres-edge",
        database="farmiq_edge",
        role="farmiq_edge",
        admin_variable="FARMIQ_EDGE_DB_ADMIN_URL",
        variable="FARMIQ_EDGE_DB_URL",
    ),
    SeaweedFS(),
    Broker(
        name="mqtt-cloud",
        prefix="FARMIQ_CLOUD_BROKER_",
        # A camera relies on ACK_OK of the gateway alone, and begins each wake with a new session.
        is_relied_on=False,
        reader=User(
            name="gateway",
            variable="FARMIQ_CLOUD_MQTT_URL",
            publish=("device.*.ack", "device.*.cmd", "ESP32CAM.*.ack", "ESP32CAM.*.cmd"),
            subscribe=("device.>", "ESP32CAM.>"),
        ),
        writer=User(
            name="cameras",
            variable="FARMIQ_CAMERAS_MQTT_URL",
            publish=(
                "device.*.status",
                "device.*.data",
                "ESP32CAM.*.status",
                "ESP32CAM.*.data",
            ),
            subscribe=("device.*.ack", "device.*.cmd", "ESP32CAM.*.ack", "ESP32CAM.*.cmd"),
        ),
        log_reader=log_user(
            "FARMIQ_CLOUD_CAMERA_URL",
            stream="FARMIQ_CAMERAS",
            publish=("device.*.ack", "device.*.cmd", "ESP32CAM.*.ack", "ESP32CAM.*.cmd"),
        ),
    ),
    RabbitMQ(),
    Postgres(
        name="postgres-cloud",
        database="farmiq_cloud",
        role="farmiq_service",
        admin_variable="FARMIQ_CLOUD_DB_ADMIN_URL",
        variable="FARMIQ_CLOUD_DB_URL",
    ),
)
ENGINES = tuple(engine.name for engine in LIST)
PORTS = tuple(port for engine in LIST for port in engine.ports)


def choose(names: Collection[str]) -> list[Engine]:
    """Return the named engines in the order of the list."""
    unknown = sorted(set(names) - set(ENGINES))
    if unknown:
        raise StackError(
            f"No engine is called {', '.join(unknown)}; there are {', '.join(ENGINES)}."
        )
    return [engine for engine in LIST if engine.name in names]


def addresses_given(engine: Engine, given: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses given for an engine; empty if it is to be started here."""
    named = {name: given[name] for name in (*engine.required, *engine.optional) if name in given}
    lacking = [name for name in engine.required if name not in named]
    if named and lacking:
        raise StackError(
            f"{', '.join(named)} is given, but not {', '.join(lacking)}: give these too and no "
            f"{engine.name} is started, or give none and a local one is."
        )
    return named
