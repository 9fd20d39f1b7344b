"""The agent: scale and camera in, sessions out over MQTT and HTTP, nothing lost in between.

sources --> recorder --> [buffer] --> drain --iot/weighvision/…, iot/event/…--> edge-mqtt-broker
                                  --> uploads --presign, PUT--> edge-media-store

`run` takes the sources (capture/sources.py). Sources, drain and uploads meet in the buffer alone,
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
from farmiq.device import page, status
from farmiq.device.buffer import database, store
from farmiq.device.buffer.database import Buffer, Clock, DamagedError, DiskFullError
from farmiq.device.buffer.jobs import BufferJobs
from farmiq.device.buffer.recorder import Picture, Recorder
from farmiq.device.buffer.rules import Identity
from farmiq.device.buffer.writer import Limits, Writer
from farmiq.device.capture import camera, sources
from farmiq.device.uplink.commands import Commands
from farmiq.device.uplink.drain import Drain, SendGate, StalledError
from farmiq.device.uplink.heartbeat import Heartbeat
from farmiq.device.uplink.uploads import Uploads
from farmiq.messages import topics
from farmiq.messages.ids import broker_user
from farmiq.messages.instants import rfc3339
from farmiq.plumbing import log
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.messaging import mqtt

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
    """Run until cancelled. A buffer that turns out to be damaged is salvaged, and we go on."""
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
            # What is in the buffer is safe and waits for room.
            log.get(NAME).error("buffer.disk_full", error=str(_first(full)))
            await asyncio.sleep(_AFTER_FULL_DISK_S)


class Agent:
    """The parts of one run, wired together; `run` runs them side by side."""

    def __init__(self, settings: DeviceSettings, buffer: Buffer) -> None:
        self._settings, self._buffer = settings, buffer
        identity = Identity(settings.place, settings.station_id)
        writer = Writer(identity, buffer, limits(settings))
        gate = SendGate(settings.per_second)
        self.recorder = Recorder(
            buffer, writer, on_commit=self._wake, scale=_picture_scaler(settings)
        )
        self._heartbeat = Heartbeat(settings, buffer, self.recorder, gate)
        self._drain = Drain(
            buffer=buffer,
            writer=writer,
            alarm=self._heartbeat.alarm,
            gate=gate,
            window=settings.window,
            receipt_s=settings.receipt_s,
            stalled_s=settings.stalled_s,
            by_puback=settings.ack_mode == "puback",
            handle_command=Commands(buffer, writer, self._wake).handle,
        )
        self._uploads = Uploads(
            buffer=buffer,
            writer=writer,
            identity=identity,
            edge_url=settings.edge_url,
            token=settings.token.get_secret_value(),
            attempts=settings.upload_attempts,
            backoff_s=settings.upload_backoff_s,
            max_backoff_s=settings.reconnect_s,
            alarm=self._heartbeat.alarm,
            on_settled=self._wake,
        )
        self._jobs = BufferJobs(buffer, writer, self.recorder, self._wake)

    def _wake(self) -> None:
        self._drain.wakeup.set()
        self._uploads.wakeup.set()

    async def run(self, hardware: Sequence[sources.Source]) -> None:
        """Raises an ExceptionGroup with DamagedError if the buffer is damaged."""
        settings = self._settings
        await self._jobs.begin()
        async with (
            httpx2.AsyncClient(
                timeout=settings.upload_timeout_s, verify=settings.tls.client()
            ) as http,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._stay_connected())
            group.create_task(self._uploads.run(http))
            group.create_task(self._jobs.run())
            group.create_task(self._buffer.check())
            if settings.status_port:
                group.create_task(self._serve_page())
            for source in hardware:
                group.create_task(_restarting(source, self.recorder))

    async def _stay_connected(self) -> None:
        """The client reconnects by itself; a connection on which nothing moves is replaced."""
        settings = self._settings
        # One backoff for all connections: it starts over only after a minute without a failure.
        backoff = Backoff(base_s=min(0.5, settings.reconnect_s), cap_s=settings.reconnect_s)
        client_id = await self._client_id()
        while True:
            async with mqtt.connected(
                settings.mqtt_url.get_secret_value(),
                client_id=client_id,
                topics=[topics.receipts(settings.place), topics.command(settings.place, "#")],
                will=mqtt.Will(topics.status(settings.place), self._heartbeat.will),
                tls=settings.tls,
                backoff=backoff,
            ) as broker:
                try:
                    await self._use(broker)
                except asyncio.CancelledError:
                    await self._heartbeat.say_goodbye(broker)
                    raise
            await backoff.wait()

    async def _use(self, broker: mqtt.Client) -> None:
        """Until nothing moves on this connection."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._drain.run(broker))
                group.create_task(self._heartbeat.run(broker))
                group.create_task(self._end_session_of_old_version(broker))
        except* StalledError:
            log.get(NAME).error("drain.stalled")

    async def _client_id(self) -> str:
        """Begins with our login, so the broker knows it as ours; its end cannot be guessed.

        Another login is another station and gets a new one. A full disk stores none: this run has
        then its own.
        """
        prefix = f"{broker_user(self._settings.tenant_id, self._settings.device_id)}/agent-"
        known = await self._buffer.do(lambda tx: store.meta(tx, _CLIENT_ID))
        if isinstance(known, str) and known.startswith(prefix):
            return known
        client_id = prefix + secrets.token_hex(8)
        with contextlib.suppress(DiskFullError):
            await self._buffer.do(lambda tx: store.set_meta(tx, _CLIENT_ID, client_id))
        return client_id

    async def _end_session_of_old_version(self, broker: mqtt.Client) -> None:
        """Once: end the session of the client id of older versions, which named no tenant.

        Its session holds receipts that nobody reads. A broker that refuses that name is not asked
        again. New buffers are made with this done.
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

    async def _serve_page(self) -> None:
        """A port that is taken is no reason not to weigh."""
        host, port = self._settings.status_host, self._settings.status_port
        while True:
            try:
                await page.serve(self.status, host=host, port=port)
            except OSError as error:
                log.get(NAME).error("page.failed", error=str(error), port=port)
                await asyncio.sleep(_AFTER_FAILED_PAGE_S)

    async def status(self) -> dict[str, Any]:
        """How the station is, for the page and the command."""
        summary = await self._buffer.do(status.summary)
        receipt_at = self._drain.last_receipt_at
        return {
            **self._heartbeat.describe(),
            **summary,
            "running": True,
            "connected": self._heartbeat.connected,
            "on_their_way": self._drain.in_flight,
            "last_receipt_at": None if receipt_at is None else rfc3339(receipt_at),
            # Of the last attempt; while no picture waits, nothing is wrong.
            "uploads_away": self._uploads.unavailable if summary["pictures"]["waiting"] else None,
        }


@contextlib.asynccontextmanager
async def _opened(
    settings: DeviceSettings, clock: Clock, damage: str | None
) -> AsyncIterator[Agent]:
    with database.locked(settings.buffer_dir):
        buffer = await database.opened(settings.buffer_dir, clock=clock, damage=damage)
        try:
            yield Agent(settings, buffer)
        finally:
            await buffer.close()


async def _restarting(source: sources.Source, recorder: Recorder) -> None:
    """A source that ends or fails is started again; the rest of the agent goes on."""
    while True:
        try:
            await source(recorder)
        except (DamagedError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - logged, and tried again
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
        max_weight_kg=settings.max_weight_kg,
    )


def _picture_scaler(settings: DeviceSettings) -> "Callable[[Picture], Picture] | None":
    if settings.picture_side_px is None:
        return None
    return partial(
        camera.scaled, side_px=settings.picture_side_px, quality=settings.picture_quality
    )


def _first(group: "BaseExceptionGroup[Any]") -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
