"""The process that looks at cameras' images; service.py starts it (plumbing/sandbox.py)."""

import base64

import msgspec
from PIL import Image, WebPImagePlugin  # noqa: F401 - loads its codec

from farmiq.cloud.camera.observations import time_lapse
from farmiq.farm.vision.dishes import change, locate
from farmiq.plumbing import sandbox_worker
from farmiq.plumbing.images import quality
from farmiq.plumbing.sandbox_worker import Made, Operations

# In the light of these nothing is compared.
NOT_MEASURED = {"dark", "bright", "unreadable", "missing"}


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What one image says: how good it is, and how its dish changed.

    The data beside it are the small copy; a new reference is in `dish`.
    """

    quality: quality.Quality
    dish: change.Measured


def assess(data: bytes, *, circle: list[float] | None, reference: str | None) -> Made:
    """`circle` and `reference` (its image in base64) are of the dish's first image, if known."""
    known = None
    if circle is not None and reference is not None:
        known = change.Reference(circle=locate.Circle(*circle), image=base64.b64decode(reference))
    rated, small = quality.assess(data)
    if rated.grade in NOT_MEASURED:
        dish = change.Measured(problem=f"the image is {rated.grade}")
    else:
        dish = change.measure(data, known)
    return msgspec.to_builtins(Facts(quality=rated, dish=dish)), small or b""


OPERATIONS: Operations = {"assess": assess, "time_lapse": time_lapse.make}

if __name__ == "__main__":
    # All codecs are loaded now: what comes later counts as the picture's.
    Image.preinit()
    sandbox_worker.main(OPERATIONS)
