"""The process that decodes pictures for others; decoding.py starts it (plumbing/sandbox.py)."""

from collections.abc import Callable
from functools import wraps

import msgspec
from PIL import Image, WebPImagePlugin  # noqa: F401 - loads its codec

from farmiq.plumbing import sandbox_worker
from farmiq.plumbing.images import pictures, quality
from farmiq.plumbing.images.pictures import UnreadableError
from farmiq.plumbing.sandbox import InputRejectedError, TooCostlyError
from farmiq.plumbing.sandbox_worker import Made


def _thumbnail(data: bytes) -> Made:
    return {}, pictures.thumbnail(data)


def _assess(data: bytes) -> Made:
    quality_, small = quality.assess(data)
    return msgspec.to_builtins(quality_), small or b""


def _check(data: bytes) -> Made:
    return msgspec.to_builtins(pictures.check(data)), b""


def _shrink(data: bytes, *, side_px: int, quality: int) -> Made:
    return {}, pictures.shrunk(data, side_px=side_px, quality=quality)


def _rejecting(operation: Callable[..., Made]) -> Callable[..., Made]:
    @wraps(operation)
    def checked(data: bytes, **arguments: int) -> Made:
        try:
            return operation(data, **arguments)
        except UnreadableError as error:
            raise (TooCostlyError if error.too_costly else InputRejectedError)(str(error)) from None

    return checked


OPERATIONS = {
    "thumbnail": _rejecting(_thumbnail),
    "assess": _rejecting(_assess),
    "check": _rejecting(_check),
    "shrink": _rejecting(_shrink),
}

if __name__ == "__main__":
    # All codecs are loaded now: what comes later counts as the picture's.
    Image.preinit()
    sandbox_worker.main(OPERATIONS)
