"""Small pictures, each with other bytes."""

import io

from PIL import Image


def picture(number: int = 0, *, kind: str = "JPEG", size: tuple[int, int] = (64, 48)) -> bytes:
    image = Image.new("RGB", size, (number % 256, number // 256 % 256, 90))
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()
