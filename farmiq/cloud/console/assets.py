"""Static files: read once, served under a URL with the hash of the content, cached for ever."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "static"

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    address: str
    media_type: str
    content: bytes


def read(folder: Path = FOLDER) -> Mapping[str, Asset]:
    """Every file below the folder, by its name relative to it."""
    files = sorted(file for file in folder.rglob("*") if file.suffix in _MEDIA_TYPES)
    return {name: _asset(name, file) for file in files if (name := _name(folder, file))}


def _name(folder: Path, file: Path) -> str:
    return file.relative_to(folder).as_posix()


def _asset(name: str, file: Path) -> Asset:
    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:12]
    return Asset(f"/static/{digest}/{name}", _MEDIA_TYPES[file.suffix], content)
