"""One process: the services asked for, side by side, behind one HTTP server per site.

A service that fails starts again and is named in /readyz meanwhile; the others go on.
"""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Mapping

from farmiq import __version__, config, crash, services
from farmiq.messages.contract import CONTRACT
from farmiq.plumbing import connections, db, http, log, migrations, presence, tokens
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.backup import marks
from farmiq.plumbing.runtime import run

GARBAGE = 100_000


class NotStartableError(Exception):
    """The services must not run like this; the text says why and who must act."""


class WrongSchemaError(NotStartableError):
    """The database is not at the version this code was written for."""


class WrongRoleError(NotStartableError):
    """The login could see past row level security."""


# Failures that explain themselves and that a person must fix first.
EXPECTED = (NotStartableError, tokens.TokenError)


async def run_services(what: str, environment: Mapping[str, str]) -> int:
    """Run a service, a site or all until a signal; returns the exit code.

    Raises NotStartableError if a database is not one that they may run on.
    """
    crash.arm(config.crash_at())
    chosen = services.named(what)
    sites = dict.fromkeys(service.site for service in chosen)
    settings = {site: config.site(site).load(environment) for site in sites}
    connections.allow_descriptors(sum(own.max_connections for own in settings.values()))
    parts: dict[str, Awaitable[None]] = {}
    schemas: list[Schema] = []
    for site, own in settings.items():
        log.configure(own.log_level)
        server = http.HttpServer(
            title=f"farmiq {site}",
            version=__version__,
            contract=CONTRACT,
            actions_per_minute=own.actions_per_minute,
            request_within_s=own.request_within_s,
            limits=own.limits,
            metrics_token=own.metrics_token.get_secret_value() if own.metrics_token else None,
        )
        schema = Schema(site, own.db_url.get_secret_value())
        schemas.append(schema)
        server.ready("schema", schema.problem)
        revision = migrations.newest(services.SQL[site])[:4]
        db.say_revision(site, revision)
        mine = [service for service in chosen if service.site == site]
        for service in mine:
            parts[service.name] = _run(service, own, server.part(service.name), schema)
        parts[f"{site} presence"] = _stay(schema, [service.name for service in mine], revision)
        parts[f"{site} backup marks"] = _show_backups(schema)
        parts[f"{site} http"] = http.serve(
            server, host=own.http_host, port=own.http_port, tls=own.tls
        )
    # What a batch makes is gone with the batch: searching it for cycles cost a sixth of our time.
    gc.freeze()
    gc.set_threshold(GARBAGE)
    async with _traces(next(iter(settings.values()))):
        code = await run.together(parts, expected=(*EXPECTED, OSError))
    for schema in schemas:
        if schema.failure is not None:
            raise schema.failure
    return code


@contextlib.asynccontextmanager
async def _traces(settings: config.EdgeSettings | config.CloudSettings) -> AsyncIterator[None]:
    if settings.otlp_endpoint is None:
        yield
        return
    from farmiq.plumbing import otlp  # noqa: PLC0415 - costs nothing where traces are off

    headers = settings.otlp_headers.get_secret_value() if settings.otlp_headers else ""
    async with otlp.exporting(
        settings.otlp_endpoint, ratio=settings.trace_ratio, headers=headers, tls=settings.tls
    ):
        yield


async def _run(
    service: services.Service,
    settings: config.EdgeSettings | config.CloudSettings,
    server: http.HttpServer,
    schema: "Schema",
) -> None:
    """Run a service for ever. Raises what starting it again cannot help, and ends them all."""

    async def start() -> None:
        await schema.until_right()
        await service.load()(settings, server)

    def fatal(error: Exception) -> Exception | None:
        if isinstance(error, EXPECTED):
            return error
        if db.meaning(error) == "refuse":
            return NotStartableError(
                f"{service.name}: the {service.site} database refuses it: {db.first_line(error)}. "
                "Run `farmiq migrate`, which makes tables and gives rights"
            )
        return None

    await run.restarting(service.name, start, fatal=fatal, failed=server.failed)


async def _stay(schema: "Schema", names: list[str], revision: str) -> None:
    await schema.until_right()
    await presence.stay(schema.url, services=names, version=__version__, revision=revision)


async def _show_backups(schema: "Schema") -> None:
    await schema.until_right()
    await marks.watch(schema.url)


class Schema:
    """The site's database: services wait until it answers, and do not start on a wrong one."""

    def __init__(self, site: str, url: str) -> None:
        self._site, self.url = site, url
        self._looking = asyncio.Lock()
        self._problem: str | None = "not looked at yet"
        self.failure: NotStartableError | None = None

    def problem(self) -> str | None:
        return self._problem

    async def until_right(self) -> None:
        """Raises NotStartableError if the database answers and our services must not run on it."""
        backoff = Backoff(cap_s=5.0)
        async with self._looking:
            while self._problem is not None:
                try:
                    self.failure = await asyncio.to_thread(self._why_not_startable)
                    self._problem = str(self.failure) if self.failure else None
                except db.UNAVAILABLE as error:
                    self._problem = f"the {self._site} database is away: {db.first_line(error)}"
                    log.get(self._site).warning("schema.database_away", error=self._problem)
                    await backoff.wait()
                    continue
                if self.failure is not None:
                    raise self.failure

    def _why_not_startable(self) -> NotStartableError | None:
        # Companies meet in the cloud's database alone; the edge is one operator's machine.
        if self._site == "cloud" and (why := db.role_problem(self.url)):
            return WrongRoleError(
                f"{self._site} database: {why}. Set FARMIQ_{self._site.upper()}_DB_URL to the "
                "login farmiq_service, which `farmiq migrate` makes"
            )
        why = migrations.problem(self.url, services.SQL[self._site])
        return WrongSchemaError(f"{self._site} database: {why}") if why else None
