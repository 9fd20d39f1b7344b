"""The bucket of a site in the repository: each object once, by its hash, and lists of them.

objects/<sha256>         an object's bytes, stored once however often they occur
buckets/<moment>.json    a list: key, size and hash of every object at that moment
recent/<moment>.json     objects that came since the last list, until the next one names them
newest/list.json         which list was written last, also if a clock that was ahead named another

A later list names what is known already and reads only what is new: our keys are written once.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit

import msgspec

from farmiq.plumbing.backup import streams
from farmiq.plumbing.backup.repository import Repository, RepositoryError
from farmiq.plumbing.backup.sealed import UnsealError
from farmiq.plumbing.storage import objects
from farmiq.plumbing.tls import Tls

OBJECTS, LISTS, RECENT = "objects/", "buckets/", "recent/"
NEWEST = "newest/list.json"


class Entry(msgspec.Struct, frozen=True):
    key: str
    size_bytes: int
    sha256: str
    content_type: str


class Listing(msgspec.Struct, frozen=True):
    """What the bucket held at that moment."""

    at: datetime
    entries: list[Entry]


@dataclass(frozen=True, slots=True)
class Outcome:
    objects: int
    new_objects: int
    new_bytes: int


class Source:
    """A bucket to read from or to write to, by its address."""

    def __init__(self, url: str, *, tls: Tls | None = None) -> None:
        self._s3 = objects.client(url, at=url, tls=tls)
        self._bucket = unquote(urlsplit(url).path).strip("/")

    def sizes(self) -> Iterator[tuple[str, int]]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket)
        for page in pages:
            for item in page.get("Contents", []):
                yield item["Key"], item["Size"]

    def get(self, key: str) -> tuple[bytes, str] | None:
        """(bytes, type), None if it is gone by now. Objects of ours have 10 MiB at most."""
        try:
            answer = self._s3.get_object(Bucket=self._bucket, Key=key)
        except self._s3.exceptions.NoSuchKey:
            return None
        return answer["Body"].read(), answer.get("ContentType", "")

    def put(self, entry: Entry, body: bytes) -> None:
        self._s3.put_object(
            Bucket=self._bucket, Key=entry.key, Body=body, ContentType=entry.content_type
        )


def run(repository: Repository, source: Source, *, now: datetime) -> Outcome:
    """Store what is new and write a list of all."""
    recent = repository.names(RECENT)
    known = {entry.key: entry for entry in around(repository, None)}
    stored = {name.removeprefix(OBJECTS) for name in repository.names(OBJECTS)}
    entries: list[Entry] = []
    new_objects = new_bytes = 0
    for key, size in source.sizes():
        entry = known.get(key)
        if entry is None or entry.size_bytes != size or entry.sha256 not in stored:
            entry = _copy(repository, source, key, stored)
            if entry is None:
                continue
            new_objects, new_bytes = new_objects + 1, new_bytes + entry.size_bytes
        entries.append(entry)
    listing = Listing(now.astimezone(UTC), entries)
    repository.write_document(_name(listing.at), listing)
    repository.write_document(NEWEST, _name(listing.at))
    for name in recent:  # its objects are in the list now, or deleted
        repository.delete(name)
    return Outcome(len(entries), new_objects, new_bytes)


def add(repository: Repository, source: Source, keys: Iterable[str], *, now: datetime) -> int:
    """Store these new objects, without reading the list of all; return how many there were."""
    copied = (_copy(repository, source, key, set()) for key in keys)
    entries = [entry for entry in copied if entry is not None]
    if entries:
        listing = Listing(now.astimezone(UTC), entries)
        repository.write_document(_name(listing.at, below=RECENT), listing)
    return len(entries)


def _copy(repository: Repository, source: Source, key: str, stored: set[str]) -> Entry | None:
    """Store an object's bytes unless they are; None if it is gone by now."""
    answer = source.get(key)
    if answer is None:
        return None
    body, content_type = answer
    digest = hashlib.sha256(body).hexdigest()
    if digest not in stored:
        repository.write(f"{OBJECTS}{digest}", [body])
        stored.add(digest)
    return Entry(key, len(body), digest, content_type)


def newest(repository: Repository) -> Listing | None:
    name = _newest(repository)
    return _read(repository, name) if name else None


def _newest(repository: Repository) -> str | None:
    names = repository.names(LISTS)
    if repository.has(NEWEST) and (name := repository.read_document(NEWEST, str)) in names:
        return str(name)
    return names[-1] if names else None


def around(repository: Repository, at: datetime | None) -> list[Entry]:
    """What the bucket held at a moment, or holds now: of the lists before and behind it.

    An image that came a second before is in the list behind, or in none yet and recent; one that
    retention deleted a second after is in the list before.
    """
    if at is None:
        name = _newest(repository)
        chosen = [name] if name else []
    else:
        names, limit = repository.names(LISTS), _name(at)
        before = [name for name in names if name <= limit][-1:]
        chosen = [*before, *(name for name in names if name > limit)][: len(before) + 1]
    listings = [_read(repository, name) for name in (*chosen, *repository.names(RECENT))]
    return list({entry.key: entry for listing in listings for entry in listing.entries}.values())


def restore(repository: Repository, entries: Iterable[Entry], target: Source) -> int:
    """Put back what the bucket lacks, or has in another size; return how many objects."""
    there = dict(target.sizes())
    missing = [entry for entry in entries if there.get(entry.key) != entry.size_bytes]
    for entry in missing:
        target.put(entry, b"".join(repository.read(f"{OBJECTS}{entry.sha256}")))
    return len(missing)


def verify(repository: Repository, entries: Iterable[Entry]) -> list[str]:
    """Read every object of a list; problems in words."""
    problems = []
    have = set(repository.names(OBJECTS))
    for entry in entries:
        name = f"{OBJECTS}{entry.sha256}"
        if name not in have:
            problems.append(f"object {entry.key} is missing")
            continue
        try:
            if streams.sha256(repository.read(name)) != entry.sha256:
                problems.append(f"object {entry.key} has other bytes than were stored")
        except (RepositoryError, UnsealError) as error:
            problems.append(f"object {entry.key}: {error}")
    return problems


def prune(repository: Repository, *, before: datetime) -> int:
    """Delete lists from before a moment, but never the newest, and objects that no list names."""
    limit, newest_name = _name(before), _newest(repository)
    names = repository.names(LISTS)
    old = [name for name in names if name < limit and name != newest_name]
    for name in old:
        repository.delete(name)
    if not old:
        return 0
    others = [*repository.names(RECENT), *(name for name in names if name not in old)]
    remaining = (_read(repository, name) for name in others)
    needed = {f"{OBJECTS}{entry.sha256}" for listing in remaining for entry in listing.entries}
    unneeded = [name for name in repository.names(OBJECTS) if name not in needed]
    for name in unneeded:
        repository.delete(name)
    return len(unneeded)


def _name(at: datetime, *, below: str = LISTS) -> str:
    return f"{below}{at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}.json"


def _read(repository: Repository, name: str) -> Listing:
    listing: Listing = repository.read_document(name, Listing)
    return listing
