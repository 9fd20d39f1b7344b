"""One process: the services asked for, side by side, behind one HTTP door per site."""

from collections.abc import Awaitable, Mapping
from pathlib import Path

from farmiq import __version__, config, services
from farmiq.plumbing import http, log, migrations, run

SQL = {site: Path(__file__).parent / site / "sql" for site in services.SITES}


class WrongSchemaError(Exception):
    """The database is not at the version this code was written for."""


async def run_services(what: str, environment: Mapping[str, str]) -> int:
    """Run a service, a site or all until a signal; returns the exit code."""
    chosen = services.named(what)
    parts: dict[str, Awaitable[None]] = {}
    for site in dict.fromkeys(service.site for service in chosen):
        settings = config.site(site).load(environment)
        log.configure(settings.log_level)
        _refuse_wrong_schema(site, settings.db_url.get_secret_value())
        door = http.Door(title=f"farmiq {site}", version=__version__)
        for service in chosen:
            if service.site == site:
                parts[service.name] = service.load()(settings, door)
        parts[f"{site} http"] = http.serve(
            door, host=settings.http_host, port=settings.http_port, tls=settings.tls
        )
    return await run.together(parts)


def _refuse_wrong_schema(site: str, url: str) -> None:
    problem = migrations.problem(url, SQL[site])
    if problem:
        raise WrongSchemaError(f"{site} database: {problem}")
