"""A camera's images as one animated WebP: bounded in frames, pixels and bytes."""

import io
from collections.abc import Sequence

import msgspec
from PIL import Image

from farmiq.plumbing.images import pictures
from farmiq.plumbing.sandbox import InputRejectedError, Limits
from farmiq.plumbing.sandbox_worker import Made

MAX_FRAMES = 120
MAX_SIDE_PX = 320
MAX_BYTES = 6 * 2**20
FRAME_MS = 200
# The last frame stays for longer, before it begins again.
LAST_MS = 1500
# Tried one after the other, until the file is small enough.
QUALITIES = (70, 40, 15)
LIMITS = Limits(memory_bytes=600 * 2**20, cpu_s=40)


def chosen(count: int) -> list[int]:
    """Which of so many images are shown: the first, the last, and evenly between them."""
    if count <= MAX_FRAMES:
        return list(range(count))
    return [round(index * (count - 1) / (MAX_FRAMES - 1)) for index in range(MAX_FRAMES)]


def make(data: bytes) -> Made:
    """`data` are the images in a msgpack list. Those that cannot be read are left out."""
    frames = []
    for image in msgspec.msgpack.decode(data, type=list[bytes])[:MAX_FRAMES]:
        try:
            frames.append(pictures.small(image, side_px=MAX_SIDE_PX))
        except pictures.UnreadableError:
            continue
    if not frames:
        raise InputRejectedError("none of its images can be read")
    frames = [frame.resize(frames[0].size) for frame in frames]
    for quality in QUALITIES:
        made = _encoded(frames, quality)
        if len(made) <= MAX_BYTES:
            return {"frames": len(frames)}, made
    raise InputRejectedError(f"{len(frames)} frames take more than {MAX_BYTES} bytes")


def _encoded(frames: Sequence[Image.Image], quality: int) -> bytes:
    file = io.BytesIO()
    durations = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    frames[0].save(
        file,
        "WEBP",
        save_all=True,
        append_images=frames[1:],
        duration=durations,
        loop=0,
        quality=quality,
        method=2,
    )
    return file.getvalue()
