"""What a page says of an estimate from pictures."""

import re
from pathlib import Path

from farmiq.farm.vision import estimate
from farmiq.ui import estimates

VISION = Path(__file__).parents[3] / "farmiq/farm/vision"
# With an estimate: why it has no bounds.
NOT_SILENT = {"provisional_model"}


def test_the_page_says_what_confidence_is_the_probability_of() -> None:
    assert estimate.RIGHT_WITHIN == 0.05
    template = (VISION.parents[1] / "ui/templates/estimate.html").read_text(encoding="utf-8")
    assert "sure that it is within five per cent of the scale" in template


def test_every_reason_for_no_estimate_has_words() -> None:
    made = {
        reason
        for file in ("frames.py", "estimate.py")
        for reason in re.findall(
            r'(?:return|reason=|or) "([a-z]+(?:_[a-z]+)*)"',
            (VISION / file).read_text(encoding="utf-8"),
        )
    }
    assert {"no_contrast", "scene_changed", "hand"} <= made
    assert made - estimates.REASONS.keys() - NOT_SILENT == set()
