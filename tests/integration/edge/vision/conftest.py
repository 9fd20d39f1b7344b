"""An edge whose stations store images, and the service that looks at them."""

import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from PIL import Image, ImageDraw

from farmiq.config import EdgeSettings
from farmiq.edge.ingress import handlers as ingress
from farmiq.edge.vision.handlers import Inference
from farmiq.edge.vision.models import ModelFiles
from farmiq.plumbing import db, tokens
from farmiq.plumbing.storage import objects
from tests.conftest import Database
from tests.integration.edge.weighvision.conftest import (
    Message,
    Weighing,
    rows,
    stations,
    upload,
)

__all__ = ["stations"]

RESULT = """
select predicted_weight_kg, confidence, model_version, reason, frames_total
from inference_results where session_id = %s
"""


def animal(size_px: int = 120) -> bytes:
    """A bright ellipse on a dark floor."""
    picture = Image.effect_noise((320, 240), 12).convert("RGB")
    draw = ImageDraw.Draw(picture)
    draw.ellipse((160 - size_px, 120 - size_px // 2, 160 + size_px, 120 + size_px // 2), "white")
    out = io.BytesIO()
    picture.save(out, "JPEG")
    return out.getvalue()


@dataclass
class Barn:
    """Stations of one edge and what was inferred of their images."""

    settings: EdgeSettings
    database: Database
    pool: db.Pool
    bucket: objects.Bucket
    inference: Inference
    files: ModelFiles

    async def hear(self, *messages: Message) -> None:
        await ingress.commit(self.pool, messages)

    async def store(self, weighing: Weighing, data: bytes, **columns: Any) -> UUID:
        media_id = upload(self.database, weighing, status="missing", **columns)
        await self.bucket.put(str(media_id), data, content_type="image/jpeg")
        return upload(self.database, weighing, media_id=media_id)

    async def weigh(
        self, *pictures: bytes, weighing: Weighing | None = None, weight_kg: float = 80.5
    ) -> Weighing:
        """A whole session."""
        one = weighing or Weighing()
        media_ids = [await self.store(one, data) for data in pictures]
        announced = map(one.captured, media_ids)
        await self.hear(
            one.created(), one.weight(weight_kg), *announced, one.finalized(len(pictures))
        )
        return one

    async def problem(self) -> str | None:
        return await self.inference.problem()

    def results(self, weighing: Weighing) -> list[tuple[Any, ...]]:
        return rows(self.database, RESULT, weighing.session_id)

    def events(self) -> list[dict[str, Any]]:
        found = rows(
            self.database,
            "select payload_json, session_id from sync_outbox "
            "where event_type = 'inference.completed' order by created_at, id",
        )
        return [{**payload, "session_id": session_id} for payload, session_id in found]


@pytest.fixture
def settings(stations: Database, engines: dict[str, str], tmp_path: Path) -> EdgeSettings:
    tokens.write_new_key(tmp_path / "key.json", tmp_path / "keys.json")
    return EdgeSettings.load(
        {
            "FARMIQ_EDGE_DB_URL": stations.url,
            "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
            "FARMIQ_EDGE_S3_URL": engines["FARMIQ_EDGE_S3_URL"],
            "FARMIQ_CLOUD_URL": "http://cloud.test",
            "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
            "VISION_FRAMES_PER_SECOND": "100",
            "VISION_MODELS_DIR": str(tmp_path / "models"),
        }
    )


@pytest.fixture
async def barn(
    settings: EdgeSettings, stations: Database, engines: dict[str, str]
) -> AsyncIterator[Barn]:
    bucket = objects.Bucket(engines["FARMIQ_EDGE_S3_URL"])
    files = ModelFiles(settings.vision_models(), bucket)
    async with db.pool(stations.url, name="test", max_size=4) as pool:
        yield Barn(
            settings, stations, pool, bucket, Inference(settings, pool, bucket, files), files
        )
