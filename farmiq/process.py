"""One process: the services asked for, side by side, behind one HTTP door per site."""

import asyncio
from collections.abc import Awaitable, Mapping
from pathlib import Path

from farmiq import __version__, config, crash, services
from farmiq.plumbing import db, http, log, migrations, run
from farmiq.plumbing.backoff import Backoff

SQL = {site: Path(__file__).parent / site / "sql" for site in services.SITES}


class WrongSchemaError(Exception):
    """The database is not at the version this code was written for."""


async def run_services(what: str, environment: Mapping[str, str]) -> int:
    """Run a service, a site or all until a signal; returns the exit code."""
    crash.arm(config.crash_at())
    chosen = services.named(what)
    parts: dict[str, Awaitable[None]] = {}
    for site in dict.fromkeys(service.site for service in chosen):
        settings = config.site(site).load(environment)
        log.configure(settings.log_level)
        door = http.Door(title=f"farmiq {site}", version=__version__)
        schema = Schema(site, settings.db_url.get_secret_value())
        door.ready("schema", schema.problem)
        for service in chosen:
            if service.site == site:
                parts[service.name] = _run(service, settings, door, schema)
        parts[f"{site} http"] = http.serve(
            door, host=settings.http_host, port=settings.http_port, tls=settings.tls
        )
    return await run.together(parts)


async def _run(
    service: services.Service,
    settings: config.EdgeSettings | config.CloudSettings,
    door: http.Door,
    schema: "Schema",
) -> None:
    await schema.until_right()
    await service.load()(settings, door)


class Schema:
    """The site's schema: services wait for a database that is away and refuse one that is wrong."""

    def __init__(self, site: str, url: str) -> None:
        self._site, self._url = site, url
        self._looking = asyncio.Lock()
        self._problem: str | None = "not looked at yet"

    def problem(self) -> str | None:
        return self._problem

    async def until_right(self) -> None:
        """Raises WrongSchemaError if the database answers and is not at this version."""
        backoff = Backoff(cap_s=5.0)
        async with self._looking:
            while self._problem is not None:
                try:
                    self._problem = await asyncio.to_thread(
                        migrations.problem, self._url, SQL[self._site]
                    )
                except db.UNAVAILABLE as error:
                    self._problem = f"the {self._site} database is away: {db.first_line(error)}"
                    log.get(self._site).warning("schema.database_away", error=self._problem)
                    await backoff.wait()
                    continue
                if self._problem is not None:
                    raise WrongSchemaError(f"{self._site} database: {self._problem}")
