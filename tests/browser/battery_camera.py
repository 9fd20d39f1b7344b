"""A battery camera on a real broker, for tests that look at what people see of it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tests.browser import cameras, scales
from tests.integration.cloud.camera_gateway import firmware
from tests.sql.camera.farm import Farm

NAME = "IMG_001.jpg"


class Camera:
    """It stands at a site, wakes every hour, and has one image on its card."""

    def __init__(self, farm: Farm, site: UUID, broker: Mapping[str, str]) -> None:
        self.site = site
        self._device = farm.device(site, "0 * * * *", device_name="Device-001")
        self._url = broker["FARMIQ_CAMERAS_MQTT_URL"]
        self._image = cameras.drawn(self._device)
        self._at = datetime.now(UTC)

    def breaks_off(self) -> None:
        """It announces its image, and two of its chunks are all that comes."""
        scales.run(self._breaks_off())

    def wakes_and_obeys(self) -> dict[str, Any]:
        """It says HELLO and that nothing waits, and does what it is told; that command."""
        told: list[dict[str, Any]] = []
        scales.run(self._obeys(told))
        return told[0]

    async def _breaks_off(self) -> None:
        async with self._awake() as camera:
            await camera.hello()
            await camera.announce(self._image, NAME, self._at)
            await camera.send(self._image, NAME, range(2))

    async def _obeys(self, told: list[dict[str, Any]]) -> None:
        async with self._awake() as camera:
            await camera.hello(pending=0)
            told.append((await camera.until_told("send_image"))[1])
            await camera.announce(self._image, NAME, self._at)
            await camera.send(self._image, NAME)
            await camera.until_safe(self._image, NAME)

    def _awake(self) -> Any:
        mac = self._device.hex[-12:].upper()
        return firmware.switched_on(self._url, mac, self._device, encoding="base64")
