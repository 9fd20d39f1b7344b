"""A camera's images as one animated WebP, or as MP4 by ffmpeg: bounded in frames, pixels, bytes."""

import io
import subprocess
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
# Of H.264: the higher, the smaller.
RATE_FACTORS = (23, 32, 42)
FFMPEG_S = 20.0
LIMITS = Limits(memory_bytes=600 * 2**20, cpu_s=40)


def chosen(count: int) -> list[int]:
    """Which of so many images are shown: the first, the last, and evenly between them."""
    if count <= MAX_FRAMES:
        return list(range(count))
    return [round(index * (count - 1) / (MAX_FRAMES - 1)) for index in range(MAX_FRAMES)]


def make(data: bytes, *, ffmpeg: str | None = None) -> Made:
    """`data` are the images in a msgpack list. Those that cannot be read are left out.

    An animated WebP; MP4 if the path of an ffmpeg is given.
    """
    frames = []
    for image in msgspec.msgpack.decode(data, type=list[bytes])[:MAX_FRAMES]:
        try:
            frames.append(pictures.small(image, side_px=MAX_SIDE_PX))
        except pictures.UnreadableError:
            continue
    if not frames:
        raise InputRejectedError("none of its images can be read")
    frames = [frame.resize(frames[0].size) for frame in frames]
    for number, quality in enumerate(QUALITIES):
        made = _mp4(frames, ffmpeg, RATE_FACTORS[number]) if ffmpeg else _webp(frames, quality)
        if len(made) <= MAX_BYTES:
            return {"frames": len(frames)}, made
    raise InputRejectedError(f"{len(frames)} frames take more than {MAX_BYTES} bytes")


def _webp(frames: Sequence[Image.Image], quality: int) -> bytes:
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


def _mp4(frames: Sequence[Image.Image], ffmpeg: str, rate_factor: int) -> bytes:
    """H.264, which every player shows. ffmpeg gets pixels alone, no file of a camera.

    The worker writes no file, and neither may what it starts: so the MP4 goes through a pipe, as
    one fragment (`frag_custom`), whose index lies before it, as in a file. `-bf 0`: it begins at 0.
    """
    # Pixels of colour are shared by two by two.
    width, height = (side - side % 2 for side in frames[0].size)
    held = [frames[-1]] * (LAST_MS // FRAME_MS - 1)
    pixels = b"".join(frame.crop((0, 0, width, height)).tobytes() for frame in (*frames, *held))
    pixels_of = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}")
    arguments = [
        *("-v", "error", "-nostdin", "-threads", "1", "-filter_threads", "1"),
        *(*pixels_of, "-r", f"{1000 / FRAME_MS}", "-i", "pipe:0"),
        *("-c:v", "libx264", "-threads", "1", "-preset", "veryfast", "-bf", "0"),
        *("-crf", str(rate_factor), "-pix_fmt", "yuv420p"),
        *("-movflags", "frag_custom", "-f", "mp4", "pipe:1"),
    ]
    try:
        made = subprocess.run(  # noqa: S603 - the server's own ffmpeg
            [ffmpeg, *arguments], input=pixels, capture_output=True, timeout=FFMPEG_S, check=True
        )
    except subprocess.CalledProcessError as error:
        why = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        why = why or f"it ended with {error.returncode}"
        raise InputRejectedError(f"ffmpeg made no MP4: {why}"[:300]) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputRejectedError(f"ffmpeg made no MP4: {error}"[:300]) from None
    return made.stdout
