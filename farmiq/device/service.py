"""The agent: scale and camera in, sessions out over MQTT and HTTP, nothing lost in between.

sources --> notebook --> [buffer] --> drain --iot/weighvision/…, iot/event/…--> edge-mqtt-broker
                                  --> uploads --presign, PUT--> edge-media-store

`run` takes the sources (see sources.py); they, the drain and the uploads meet in the buffer alone,
so each may be slow, gone or restarted without the others.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import httpx2

from farmiq.config.device import DeviceSettings
from farmiq.device import buffer as buffers
from farmiq.device import page, scaling, sources, status, store, telling
from farmiq.device.buffer import Buffer, DamagedError, DiskFullError
from farmiq.device.clock import Clock
from farmiq.device.commands import Commands
from farmiq.device.drain import Drain, StalledError
from farmiq.device.gate import Gate
from farmiq.device.minting import Identity
from farmiq.device.notebook import Notebook
from farmiq.device.telling import Teller
from farmiq.device.upkeep import Upkeep
from farmiq.device.uploads import Uploads
from farmiq.device.writing import Limits, Writer
from farmiq.messages import topics
from farmiq.messages.ids import broker_user
from farmiq.plumbing import log, mqtt
from farmiq.plumbing.backoff import Backoff

NAME = "iot-weighvision-agent"
_AFTER_FAILED_SOURCE_S = 5.0
_AFTER_FAILED_PAGE_S = 60.0
_AFTER_FULL_DISK_S = 5.0
# What the buffer remembers of our connections.
_CLIENT_ID = "client_id"
_OLD_SESSION_ENDED = "old_session_ended"


async def run(
    settings: DeviceSettings, hardware: Sequence[sources.Source], *, clock: Clock | None = None
) -> None:
    """Until cancelled. A buffer that turns out to be damaged is salvaged, and the work goes on."""
    clock, damage = clock or Clock(), None
    while True:
        try:
            async with _opened(settings, clock, damage) as agent:
                damage = None
                await agent.run(hardware)
        except* DamagedError as damaged:
            damage = str(_first(damaged))
            log.get(NAME).error("buffer.damaged", reason=damage)
        except* DiskFullError as full:
            # Nothing can be promised now; what is in the buffer is safe and waits for room.
            log.get(NAME).error("buffer.disk_full", error=str(_first(full)))
            await asyncio.sleep(_AFTER_FULL_DISK_S)


class Agent:
    """The parts of one run, put together; `run` runs them side by side."""

    def __init__(self, settings: DeviceSettings, buffer: Buffer) -> None:
        self._settings, self._buffer = settings, buffer
        who = Identity(settings.place, settings.station_id)
        self._writer = Writer(who, buffer.boot_id, limits(settings))
        gate = Gate(settings.per_second)
        self.notebook = Notebook(buffer, self._writer, kept=self._kept, scale=_scale(settings))
        self._teller = Teller(settings, buffer, self.notebook, gate)
        self._drain = Drain(
            buffer=buffer,
            writer=self._writer,
            alarm=self._teller.alarm,
            gate=gate,
            window=settings.window,
            receipt_s=settings.receipt_s,
            stalled_s=settings.stalled_s,
            by_puback=settings.ack_mode == "puback",
            obey=Commands(buffer, self._writer, self._kept).obey,
        )
        self._uploads = Uploads(
            buffer=buffer,
            writer=self._writer,
            who=who,
            edge_url=settings.edge_url,
            token=settings.token.get_secret_value(),
            attempts=settings.upload_attempts,
            backoff_s=settings.upload_backoff_s,
            longest_s=settings.reconnect_s,
            alarm=self._teller.alarm,
            settled=self._kept,
        )
        self._upkeep = Upkeep(buffer, self._writer, self.notebook, self._kept)

    def _kept(self) -> None:
        self._drain.wake()
        self._uploads.wake()

    async def run(self, hardware: Sequence[sources.Source]) -> None:
        """Raises an ExceptionGroup with DamagedError if the buffer is damaged."""
        settings = self._settings
        await self._upkeep.begin()
        async with (
            httpx2.AsyncClient(
                timeout=settings.upload_timeout_s, verify=settings.tls.client()
            ) as http,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._stay_connected())
            group.create_task(self._uploads.run(http))
            group.create_task(self._upkeep.run())
            group.create_task(self._buffer.check())
            if settings.status_port:
                group.create_task(self._show())
            for source in hardware:
                group.create_task(_tend(source, self.notebook))

    async def _stay_connected(self) -> None:
        """The connection comes back by itself; it is made anew when nothing moves on it."""
        settings = self._settings
        # One backoff for all connections: it starts over only after a minute without a failure.
        backoff = Backoff(base_s=min(0.5, settings.reconnect_s), cap_s=settings.reconnect_s)
        client_id = await self._client_id()
        while True:
            async with mqtt.connected(
                settings.mqtt_url.get_secret_value(),
                client_id=client_id,
                topics=[topics.receipts(settings.place), topics.command(settings.place, "#")],
                will=mqtt.Will(topics.status(settings.place), self._teller.will),
                tls=settings.tls,
                backoff=backoff,
            ) as broker:
                try:
                    await self._use(broker)
                except asyncio.CancelledError:
                    await self._teller.take_leave(broker)
                    raise
            await backoff.wait()

    async def _use(self, broker: mqtt.Client) -> None:
        """Until nothing moves on this connection."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._drain.run(broker))
                group.create_task(self._teller.run(broker))
                group.create_task(self._end_session_of_old_version(broker))
        except* StalledError:
            log.get(NAME).error("drain.stalled")

    async def _client_id(self) -> str:
        """Begins with our login, so the broker can tell that it is ours; the tail nobody guesses.

        Another login is another station and begins anew. A full disk keeps no new name: this run's
        is then its own.
        """
        ours = f"{broker_user(self._settings.tenant_id, self._settings.device_id)}/agent-"
        known = await self._buffer.do(lambda tx: store.meta(tx, _CLIENT_ID))
        if isinstance(known, str) and known.startswith(ours):
            return known
        made = ours + secrets.token_hex(8)
        with contextlib.suppress(DiskFullError):
            await self._buffer.do(lambda tx: store.set_meta(tx, _CLIENT_ID, made))
        return made

    async def _end_session_of_old_version(self, broker: mqtt.Client) -> None:
        """Once: the client id of versions before named no tenant, and its session holds receipts.

        A clean session under its name ends it; else the broker keeps them for nobody. A broker that
        lets nobody in under that name is not asked again. New buffers are made as done.
        """
        if await self._buffer.do(lambda tx: store.meta(tx, _OLD_SESSION_ENDED)):
            return
        settings = self._settings
        await broker.until_up()
        ended = await mqtt.end_session(
            settings.mqtt_url.get_secret_value(), f"agent-{settings.device_id}", tls=settings.tls
        )
        if ended is None:
            return
        with contextlib.suppress(DiskFullError):
            await self._buffer.do(lambda tx: store.set_meta(tx, _OLD_SESSION_ENDED, 1))

    async def _show(self) -> None:
        """The page; a port that is taken is no reason not to weigh."""
        host, port = self._settings.status_host, self._settings.status_port
        while True:
            try:
                await page.serve(self.look, host=host, port=port)
            except OSError as error:
                log.get(NAME).error("page.failed", error=str(error), port=port)
                await asyncio.sleep(_AFTER_FAILED_PAGE_S)

    async def look(self) -> dict[str, Any]:
        """How the station is, for the page and the command."""
        found = await self._buffer.do(status.looked)
        receipt_at = self._drain.last_receipt_at
        return {
            **self._teller.said(),
            **found,
            "running": True,
            "connected": self._teller.connected,
            "on_their_way": self._drain.flying,
            "last_receipt_at": None if receipt_at is None else telling.zulu(receipt_at),
            # Of the last try; where nothing waits, nobody tries and nothing is wrong.
            "uploads_away": self._uploads.away if found["pictures"]["waiting"] else None,
        }


@contextlib.asynccontextmanager
async def _opened(
    settings: DeviceSettings, clock: Clock, damage: str | None
) -> AsyncIterator[Agent]:
    path = settings.buffer_dir / buffers.FILE
    with buffers.held(settings.buffer_dir):
        found = None
        if damage is not None:
            found = await asyncio.to_thread(buffers.salvaged, path, reason=damage)
        buffer = await buffers.opened(settings.buffer_dir, clock=clock)
        buffer.salvaged = found or buffer.salvaged
        try:
            yield Agent(settings, buffer)
        finally:
            await buffer.close()


async def _tend(source: sources.Source, notebook: Notebook) -> None:
    """A source that ends or fails is started again; the rest of the agent goes on."""
    while True:
        try:
            await source(notebook)
        except (DamagedError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - told, and tried again
            log.get(NAME).error("source.failed", error=repr(error), exc_info=error)
        else:
            log.get(NAME).warning("source.ended")
        await asyncio.sleep(_AFTER_FAILED_SOURCE_S)


def limits(settings: DeviceSettings) -> Limits:
    return Limits(
        events=settings.buffer_events,
        age_s=settings.buffer_hours * 3600,
        stored_s=settings.stored_hours * 3600,
        patience_s=settings.patience_s,
        picture_bytes=settings.picture_bytes,
        disk_reserve_bytes=settings.disk_reserve_bytes,
        most_weight_kg=settings.most_weight_kg,
    )


def _scale(settings: DeviceSettings) -> "Callable[[Any], Any] | None":
    if settings.picture_side_px is None:
        return None
    return partial(
        scaling.scaled, side_px=settings.picture_side_px, quality=settings.picture_quality
    )


def _first(group: "BaseExceptionGroup[Any]") -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
