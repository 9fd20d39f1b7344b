"""What a site's services expect in its engines: database, role, tables, flushed buckets, queues."""

from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

from farmiq.install.steps import InstallError
from farmiq.lab.stack import broker as mqtt
from farmiq.lab.stack import postgres, rabbitmq, s3
from farmiq.lab.stack.engine import NotReadyError, StackError, await_answer, new_password
from farmiq.plumbing import migrations
from farmiq.services import SQL

PATIENCE_S = 300.0


def prepare(
    site: str, environment: Mapping[str, str], *, store_port: int | None, say: Callable[[str], None]
) -> None:
    """Wait for the engines and make what they lack. Safe to repeat. Raises InstallError."""
    owner = environment[f"FARMIQ_{site.upper()}_DB_ADMIN_URL"]
    login = environment[f"FARMIQ_{site.upper()}_DB_URL"]
    await_engine("PostgreSQL", lambda: _database(owner))
    applied = migrations.apply(owner, SQL[site], phase="needed")
    say(f"tables: {', '.join(applied) if applied else 'up to date'}")
    _login(owner, login)
    await_engine("PostgreSQL", lambda: postgres.select(login))
    if store_port is not None:
        await_engine("the object store", lambda: _flush(store_port))
        await_engine(
            "the object store", lambda: _bucket(environment[f"FARMIQ_{site.upper()}_S3_URL"])
        )
        say("object store: every write is flushed")
    await_engine(
        "the MQTT broker", lambda: _connect(environment[f"FARMIQ_{site.upper()}_MQTT_URL"])
    )
    if site == "cloud":
        await_engine("RabbitMQ", lambda: _answer(environment["FARMIQ_RABBITMQ_API_URL"]))
        say(f"bus: {_bus(environment)} changes")


def await_engine(name: str, probe: Callable[[], str]) -> None:
    try:
        await_answer(probe, within_s=PATIENCE_S, give_up=lambda: None)
    except StackError as problem:
        raise InstallError(f"{name}: {problem}") from None


def _database(owner: str) -> str:
    """Make the database if the server has none of this name."""
    try:
        return postgres.select(owner)
    except NotReadyError as problem:
        if "does not exist" not in str(problem):
            raise
    parts = urlsplit(owner)
    name = sql.Identifier(unquote(parts.path[1:]))
    with psycopg.connect(urlunsplit(parts._replace(path="/postgres")), autocommit=True) as server:
        server.execute(sql.SQL("create database {}").format(name))
    return postgres.select(owner)


def _login(owner: str, login: str) -> None:
    """The services' role, which a migration made, may sign in with the password of the settings."""
    parts = urlsplit(login)
    role, password = unquote(parts.username or ""), unquote(parts.password or "")
    statement = sql.SQL("alter role {} login password {}")
    with psycopg.connect(owner) as connection:
        connection.execute(statement.format(sql.Identifier(role), sql.Literal(password)))


def _flush(port: int) -> str:
    s3.flush_writes(port)
    return ""


def _bucket(url: str) -> str:
    s3.put_and_get(url)
    return ""


def _connect(url: str) -> str:
    mqtt.connect(url)
    return ""


def _answer(url: str) -> str:
    rabbitmq.check_api(url)
    return ""


def _bus(environment: Mapping[str, str]) -> int:
    """Queues, caps and logins; the services' login gets the password of the settings."""
    from farmiq.cloud import broker  # noqa: PLC0415
    from farmiq.config import CloudSettings  # noqa: PLC0415
    from farmiq.plumbing.bus.rabbit import Api  # noqa: PLC0415

    login = urlsplit(environment["FARMIQ_AMQP_URL"])
    with Api(environment["FARMIQ_RABBITMQ_API_URL"], vhost=unquote(login.path[1:])) as api:
        want = broker.wanted(CloudSettings.load_some(environment), api, users=True)
        # Logins of single services are there too; `farmiq topology apply --rotate` gives passwords.
        for name in set(want.logins) - api.users():
            api.set_user(name, password=new_password())
        api.set_user(unquote(login.username or ""), password=unquote(login.password or ""))
        differences = broker.differences(api, want, users=True)
        for difference in differences:
            broker.apply(api, want, difference)
    return len(differences)
