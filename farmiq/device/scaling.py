"""Pictures made smaller, conservatively and only where the settings ask for it (WV-33)."""

import io
from dataclasses import replace

from farmiq.device.notebook import Picture, Refused

MOST_PIXELS = 40_000_000


def scaled(picture: Picture, *, side_px: int, quality: int) -> Picture:
    """The picture with a longer side of at most `side_px`; a smaller one stays as it is.

    Raises Refused if it cannot be decoded.
    """
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - 12 MB that most stations spare

    try:
        with Image.open(io.BytesIO(picture.data), formats=("JPEG", "PNG", "WEBP")) as image:
            if image.width * image.height > MOST_PIXELS:
                raise Refused(f"a picture of {image.width} x {image.height} pixels is too large")
            if max(image.size) <= side_px:
                return picture
            image.thumbnail((side_px, side_px), Image.Resampling.LANCZOS)
            made = io.BytesIO()
            image.convert("RGB").save(made, "JPEG", quality=quality)
    except UnidentifiedImageError as error:
        raise Refused("a picture that cannot be decoded: it is no jpeg, png or webp") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise Refused(f"a picture that cannot be decoded: {error}") from error
    return replace(picture, content_type="image/jpeg", data=made.getvalue())
