"""Settings of edge-vision-inference."""

from pydantic import PositiveFloat

from farmiq.config.settings import Settings, setting


class VisionSettings(Settings):
    vision: bool = setting("VISION", True, "false: no image is looked at, and nothing is estimated")
    vision_wait_s: PositiveFloat = setting(
        "VISION_WAIT_SECONDS",
        300,
        "how long after its last image a weigh session is looked at that has not ended, or lacks "
        "images that its station counted; what comes later changes nothing",
    )
    vision_round_s: PositiveFloat = setting(
        "VISION_ROUND_SECONDS", 1, "how often it is looked for images to look at"
    )
    vision_frames_per_second: PositiveFloat = setting(
        "VISION_FRAMES_PER_SECOND", 10, "most images that are looked at per second", le=100
    )
