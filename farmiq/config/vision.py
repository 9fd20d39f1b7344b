"""Settings of edge-vision-inference."""

from pathlib import Path

from pydantic import PositiveFloat, PositiveInt

from farmiq.config.environment import state_dir
from farmiq.config.settings import setting
from farmiq.config.tracing import TracedSettings


class VisionSettings(TracedSettings):
    vision: bool = setting("VISION", True, "false: no image is looked at, and nothing is estimated")
    vision_wait_s: PositiveFloat = setting(
        "VISION_WAIT_SECONDS",
        300,
        "how long after its last image a weigh session is looked at that has not ended, or lacks "
        "images that its station counted; what comes later changes nothing",
    )
    vision_round_s: PositiveFloat = setting(
        "VISION_ROUND_SECONDS", 1, "how often images that wait are looked for"
    )
    vision_frames_per_second: PositiveFloat = setting(
        "VISION_FRAMES_PER_SECOND", 6, "most images that are looked at per second", le=100
    )
    vision_train_sessions: PositiveInt = setting(
        "VISION_TRAIN_SESSIONS",
        5,
        "after so many new weighings of a camera its model is trained again, and every night",
    )
    vision_train_round_s: PositiveFloat = setting(
        "VISION_TRAIN_ROUND_SECONDS", 60, "how often the new sessions are counted"
    )
    vision_models_dir: Path | None = setting(
        "VISION_MODELS_DIR",
        None,
        "where models are kept, with a copy in the bucket; default: vision-models in "
        "FARMIQ_STATE_DIR",
    )

    def vision_models(self) -> Path:
        return self.vision_models_dir or state_dir() / "vision-models"
