"""Pictures made smaller, conservatively and only where the settings ask for it (WV-33)."""

from dataclasses import replace

from farmiq.device import camera
from farmiq.device.notebook import Picture, Refused
from farmiq.plumbing import decoding
from farmiq.plumbing.decoding import DecodeError, DecoderGoneError


def scaled(picture: Picture, *, side_px: int, quality: int) -> Picture:
    """The picture with a longer side of at most `side_px`; a smaller one stays as it is.

    So does one while there is no decoder: better too large than lost.
    Raises Refused if it cannot be decoded.
    """
    try:
        made = decoding.decode(
            "shrink", picture.data, limits=camera.LIMITS, side_px=side_px, quality=quality
        ).data
    except DecodeError as error:
        raise Refused(f"a picture that cannot be decoded: {error}") from error
    except DecoderGoneError:
        return picture
    return replace(picture, content_type="image/jpeg", data=made) if made else picture
