"""Backups of a real cluster and a real bucket: taken under load, restored, compared."""

import asyncio
import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psycopg
import pytest

from farmiq.lab import stack
from farmiq.lab.stack import postgres, processes
from farmiq.plumbing import migrations, sealing
from farmiq.plumbing.backup import database, drill, marks, objects, repository, sealed, site, wal
from farmiq.plumbing.backup.database import BackupError, Programs
from farmiq.plumbing.backup.repository import Repository, RepositoryError
from farmiq.services import SQL
from tests.support.ports import free_port
from tests.support.until import until

WAL_S = 0.5


def wait_for(condition: Callable[[], Any]) -> None:
    asyncio.run(until(condition))


def _quiet(text: str) -> None:
    del text


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A cluster and a store of this module: a backup is of a whole cluster."""
    root = tmp_path_factory.mktemp("stacks") / "backup"
    with stack.start(root, engines=["postgres-edge", "s3"]) as running:
        yield dict(running.environment)
    stack.stop(root)
    stack.remove(root)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that PostgreSQL's user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="farmiq-backup-", dir="/var/tmp"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def backed_up(engines: dict[str, str], place: Path) -> Iterator[site.Site]:
    """The site with an empty table `readings`; its slot is dropped at the end."""
    sealing.write_new_key(place / "key")
    url = engines["FARMIQ_EDGE_DB_ADMIN_URL"]
    with psycopg.connect(url) as connection:
        connection.execute("drop table if exists readings")
        connection.execute(
            "create table readings (id bigserial primary key, at timestamptz default now())"
        )
    kept = repository.open_at(f"file://{place}/repository", keys=sealing.read_keys(place / "key"))
    kept.prepare(is_first=True)
    yield site.Site(
        repository=kept,
        url=url,
        bucket=objects.Source(engines["FARMIQ_EDGE_S3_URL"]),
        files=(),
        programs=Programs(postgres.packaged()),
        spool=place / "spool",
    )
    wait_for(lambda: _drop_slot(url))


def _drop_slot(url: str) -> bool:
    """False while the server has not noticed that its receiver is gone."""
    try:
        wal.drop_slot(url)
    except psycopg.errors.ObjectInUse:
        return False
    return True


@contextmanager
def streaming(backed_up: site.Site) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(
        target=lambda: backed_up.stream(
            stop, wal_s=WAL_S, base_hours=24, bucket_hours=24, days=30, at_least=2
        )
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def writing(url: str) -> Iterator[None]:
    """Commit rows one by one beside the block."""
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not stop.wait(0.003):
                connection.execute("insert into readings default values")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def insert(url: str) -> tuple[int, datetime]:
    """One committed row: its id, and a moment of the server after the commit."""
    with psycopg.connect(url, autocommit=True) as connection:
        (number,) = connection.execute(
            "insert into readings default values returning id"
        ).fetchone()  # type: ignore[misc]
        (at,) = connection.execute("select clock_timestamp()").fetchone()  # type: ignore[misc]
    return number, at


def numbers(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("select id from readings order by 1")]


def is_covered(backed_up: site.Site, at: datetime) -> bool:
    covered = database.covered(backed_up.repository)
    return covered is not None and covered.at > at


def has_more(backed_up: site.Site, segments: int) -> bool:
    return len(database.segments(backed_up.repository)) > segments


def account() -> database.Account | None:
    found = processes.unprivileged_account()
    return database.Account(uid=found.uid, gid=found.gid) if found else None


@contextmanager
def restored(backed_up: site.Site, folder: Path, to: datetime | None) -> Iterator[str]:
    folder.mkdir(mode=0o711)
    copy = backed_up.restore(folder, to=to, account=account(), port=free_port(), say=_quiet)
    try:
        yield copy.url
    finally:
        copy.stop()


@pytest.mark.req("BK-04", "BK-01")
def test_drill_under_load_restores_every_row_and_finds_what_differs(
    backed_up: site.Site, place: Path
) -> None:
    with writing(backed_up.url), streaming(backed_up):
        wait_for(lambda: database.bases(backed_up.repository))
        report = backed_up.drill(
            place / "drill",
            account=account(),
            port=free_port(),
            name="try",
            say=_quiet,
            images_s=3600,
        )
    assert report.is_clean, report
    assert report.rows > 0
    assert report.tables > 0
    live = {"public.readings": drill.Content(3, 1), "public.gone": drill.Content(1, 1)}
    copy = {"public.readings": drill.Content(3, 2)}
    assert [str(difference) for difference in drill.compare(live, copy)] == [
        "public.gone: 1 rows live, no such table restored",
        "public.readings: 3 rows, but not the same ones",
    ]


def test_restore_says_which_moments_there_are_also_without_changes(
    backed_up: site.Site, place: Path
) -> None:
    backed_up.run(_quiet)
    (base,) = database.bases(backed_up.repository)
    for days, why in ((-1, "the first moment is"), (1, f"everything up to {base.ended_at:%FT%TZ}")):
        to = base.ended_at + timedelta(days=days)
        with pytest.raises(BackupError, match=why):
            backed_up.restore(place / "far", to=to, account=None, port=free_port(), say=_quiet)


@pytest.mark.req("BK-05", "BK-06")
def test_restore_goes_back_to_any_moment_and_to_the_last_commit_before_a_crash(
    backed_up: site.Site, place: Path
) -> None:
    with streaming(backed_up):
        wait_for(lambda: database.bases(backed_up.repository))
        first, middle = insert(backed_up.url)
        last, end = insert(backed_up.url)
        wait_for(lambda: is_covered(backed_up, end))
        with pytest.raises(BackupError, match="does not reach that far"):
            backed_up.restore(
                place / "far",
                to=end + timedelta(days=1),
                account=None,
                port=free_port(),
                say=_quiet,
            )
    # The machine is gone: all that is left is the repository.
    with restored(backed_up, place / "middle", middle) as url:
        assert numbers(url) == [first]
        assert insert(url)[0] > first
    with restored(backed_up, place / "end", end) as url:
        assert numbers(url) == [first, last]
    with restored(backed_up, place / "newest", None) as url:
        assert numbers(url) == [first, last]
    before = database.bases(backed_up.repository)[0].ended_at - timedelta(seconds=1)
    with pytest.raises(BackupError, match="the first moment is"):
        database.choose(database.bases(backed_up.repository), before)


@pytest.mark.req("BK-05", "BK-06")
def test_restored_cluster_is_backed_up_again_and_damaged_changes_are_found(
    backed_up: site.Site, place: Path
) -> None:
    with streaming(backed_up):
        wait_for(lambda: database.bases(backed_up.repository))
        first, end = insert(backed_up.url)
        wait_for(lambda: is_covered(backed_up, end))
    with restored(backed_up, place / "copy", None) as url:
        # Its timeline is another: a base of it is made at once, and changes are taken.
        second = dataclasses.replace(backed_up, url=url, spool=place / "second-spool")
        with streaming(second):
            wait_for(lambda: len(database.bases(backed_up.repository)) == 2)
            last, end = insert(url)
            wait_for(lambda: is_covered(backed_up, end))
    with restored(backed_up, place / "newest", None) as url:
        assert numbers(url) == [first, last]
    assert backed_up.verify(_quiet) == []
    segment = max((place / "repository" / "wal").iterdir())
    segment.write_bytes(segment.read_bytes()[:-1])
    assert backed_up.verify(_quiet) == [
        f"wal/{segment.name} was changed or cut off, or its key is not in the key file"
    ]


@pytest.mark.req("BK-06")
def test_changes_between_a_copy_and_the_first_stream_are_not_lost(
    backed_up: site.Site, place: Path
) -> None:
    made = backed_up.run(_quiet)
    first, _ = insert(backed_up.url)
    with psycopg.connect(backed_up.url, autocommit=True) as connection:
        connection.execute("select pg_switch_wal()")
    with streaming(backed_up):
        wait_for(lambda: database.bases(backed_up.repository)[-1].started_at > made.started_at)
        second, end = insert(backed_up.url)
        wait_for(lambda: is_covered(backed_up, end))
    with restored(backed_up, place / "copy", None) as url:
        assert numbers(url) == [first, second]


@pytest.mark.req("BK-05")
def test_restore_says_that_changes_are_missing(backed_up: site.Site, place: Path) -> None:
    with streaming(backed_up):
        wait_for(lambda: database.bases(backed_up.repository))
        for _ in range(3):
            _, end = insert(backed_up.url)
            with psycopg.connect(backed_up.url, autocommit=True) as connection:
                connection.execute("select pg_switch_wal()")
        wait_for(lambda: is_covered(backed_up, end))
    assert backed_up.lost_changes() == []
    last_of_base = database.bases(backed_up.repository)[-1].last_wal
    lost = min(name for name in database.segments(backed_up.repository) if name > last_of_base)
    (place / "repository" / "wal" / lost).unlink()
    assert backed_up.lost_changes() == [lost]
    with (
        pytest.raises(BackupError, match=f"segment {lost} is missing"),
        restored(backed_up, place / "end", end),
    ):
        pass
    with restored(backed_up, place / "newest", None) as url:
        assert len(numbers(url)) < 3


def test_backups_of_another_cluster_in_the_same_folder_are_refused(backed_up: site.Site) -> None:
    made = backed_up.run(_quiet)
    other = msgspec.structs.replace(made, system_id="1")
    backed_up.repository.write_document(f"{database.BASE}{made.id}/about.json", other)
    before = backed_up.repository.names("")
    with pytest.raises(BackupError, match="backups of another database"):
        backed_up.run(_quiet)
    # The stream must not add changes either: those of two clusters have the same names.
    with pytest.raises(BackupError, match="backups of another database"):
        backed_up.stream(
            threading.Event(), wal_s=WAL_S, base_hours=24, bucket_hours=24, days=30, at_least=2
        )
    assert backed_up.repository.names("") == before


def test_copy_of_a_busy_server_has_the_changes_that_were_made_meanwhile(
    backed_up: site.Site, place: Path
) -> None:
    """The server recycles what it wrote at every checkpoint, faster than the copy is made."""

    class Churning(repository.Folder):
        def put(self, name: str, pieces: Iterable[bytes]) -> None:
            super().put(name, self._churned(pieces) if name.startswith("base/") else pieces)

        def _churned(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
            taken = iter(pieces)
            yield next(taken)
            with psycopg.connect(backed_up.url, autocommit=True) as connection:
                for _ in range(12):
                    connection.execute("insert into readings default values")
                    connection.execute("select pg_switch_wal()")
                connection.execute("checkpoint")
                connection.execute("checkpoint")
            yield from taken

    kept = Repository(Churning(place / "busy"), sealing.read_keys(place / "key"))
    kept.prepare(is_first=True)
    busy = dataclasses.replace(backed_up, repository=kept)
    busy.run(_quiet)
    assert busy.verify(_quiet) == []
    wait_for(lambda: _slots(backed_up.url) == 0)
    with restored(busy, place / "copy", None) as url:
        assert len(numbers(url)) == 12


def _slots(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("select count(*) from pg_replication_slots").fetchone()
    return int(row[0]) if row else 0


def test_restore_without_room_is_refused_before_it_begins(
    backed_up: site.Site, place: Path
) -> None:
    made = backed_up.run(_quiet)
    assert made.unpacked_bytes > made.size_bytes
    huge = msgspec.structs.replace(made, unpacked_bytes=2**60)
    backed_up.repository.write_document(f"{database.BASE}{made.id}/about.json", huge)
    with pytest.raises(BackupError, match="restore into a folder on a larger disk"):
        backed_up.restore(place / "new", to=None, account=account(), port=free_port(), say=_quiet)
    assert list((place / "new").iterdir()) == []


STREAM = """
import sys, threading
from pathlib import Path
from farmiq.plumbing import migrations, sealing
from farmiq.plumbing.backup import repository, wal
from farmiq.plumbing.backup.database import Programs
place, programs = Path(sys.argv[1]), Path(sys.argv[2])
archive = wal.WalArchive(
    repository.open_at(f"file://{place}/repository", keys=sealing.read_keys(place / "key")),
    sys.stdin.readline().strip(), spool=place / "spool", programs=Programs(programs))
archive.prepare()
archive.run(threading.Event(), every_s=0.2)
"""


def test_copy_of_a_clock_that_was_ahead_does_not_put_off_the_next_one(
    backed_up: site.Site,
) -> None:
    copies = backed_up.repository
    with streaming(backed_up):
        wait_for(lambda: database.bases(copies))
    (base,) = database.bases(copies)
    ahead = base.started_at + timedelta(days=60)
    copies.delete(f"base/{base.id}/about.json")
    copies.write_document(
        f"base/{ahead:%Y%m%dT%H%M%SZ}/about.json",
        msgspec.structs.replace(
            base, id=f"{ahead:%Y%m%dT%H%M%SZ}", started_at=ahead, ended_at=ahead
        ),
    )
    with streaming(backed_up):
        wait_for(lambda: len(database.bases(copies)) == 2)
    assert database.bases(copies)[0].started_at < ahead - timedelta(days=59)


def test_killed_stream_loses_no_change(backed_up: site.Site, place: Path) -> None:
    """Kill -9 while segments are received, packed and stored; the slot holds the rest."""
    spawned: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, "-c", STREAM, str(place), str(postgres.packaged())],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert program.stdin is not None
        program.stdin.write(f"{backed_up.url}\n")
        program.stdin.close()
        spawned.append(program)
        return program

    try:
        with writing(backed_up.url):
            program = start()
            wait_for(lambda: database.covered(backed_up.repository))
            database.run(backed_up.repository, backed_up.url, programs=backed_up.programs)
            for _ in range(3):
                stored = len(database.segments(backed_up.repository))
                wait_for(partial(has_more, backed_up, stored + 1))
                _kill_family(program)
                program = start()
        _, end = insert(backed_up.url)
        wait_for(lambda: is_covered(backed_up, end))
    finally:
        for program in spawned:
            _kill_family(program)
    assert backed_up.verify(_quiet) == []
    with restored(backed_up, place / "copy", None) as url:
        assert numbers(url) == numbers(backed_up.url)


def _kill_family(program: "subprocess.Popen[str]") -> None:
    """The stream and its receiver, which has a group of its own."""
    found = processes.look(program.pid)
    if found is not None:
        processes.kill_family(found)
    program.wait()


@pytest.mark.req("BK-07", "BK-08", "BK-02")
def test_bucket_is_copied_once_and_put_back_with_the_same_bytes(
    backed_up: site.Site, place: Path
) -> None:
    source = backed_up.bucket
    assert source is not None
    pictures = {f"media/{number}.jpg": os.urandom(1000 + number) for number in range(5)}
    for key, body in pictures.items():
        source.put(objects.Entry(key, len(body), "", "image/jpeg"), body)
    first = objects.run(backed_up.repository, source, now=datetime.now(UTC))
    again = objects.run(backed_up.repository, source, now=datetime.now(UTC))
    assert first.new_objects == first.objects >= len(pictures)
    assert again.new_objects == 0
    other = place / "other"
    copy = _FolderBucket(other)
    count = objects.restore(backed_up.repository, objects.around(backed_up.repository, None), copy)
    assert count == first.objects
    assert {key: (other / key).read_bytes() for key in pictures} == pictures
    listing = objects.newest(backed_up.repository)
    assert listing is not None
    assert objects.verify(backed_up.repository, listing.entries) == []
    backed_up.repository.delete(f"{objects.OBJECTS}{listing.entries[0].sha256}")
    assert objects.verify(backed_up.repository, listing.entries) == [
        f"object {listing.entries[0].key} is missing"
    ]


def test_images_are_copied_and_put_back_after_the_clock_was_ahead(backed_up: site.Site) -> None:
    source, now = backed_up.bucket, datetime.now(UTC)
    assert source is not None
    with psycopg.connect(backed_up.url) as connection:
        connection.execute("drop table if exists images")
        connection.execute("create table images (object_key text, stored_at timestamptz)")
    copies = dataclasses.replace(
        backed_up,
        new_objects="select object_key, stored_at from images where stored_at > %s order by 2",
    )

    def add_image(key: str, stored_at: datetime) -> None:
        source.put(objects.Entry(key, 1, "", "image/jpeg"), b"x")
        with psycopg.connect(backed_up.url) as connection:
            connection.execute("insert into images values (%s, %s)", (key, stored_at))

    def keys() -> set[str]:
        return {entry.key for entry in objects.around(backed_up.repository, None)}

    add_image("clock/ahead.jpg", now + timedelta(days=60))
    objects.run(backed_up.repository, source, now=now + timedelta(days=60))
    add_image("clock/back.jpg", now)
    since = copies.copy_new(None, set())
    assert "clock/back.jpg" in keys()
    add_image("clock/later.jpg", now + timedelta(seconds=1))
    copies.copy_new(since, set())
    assert "clock/later.jpg" in keys()

    backed_up.copy_bucket(_quiet)
    listed = {"clock/ahead.jpg", "clock/back.jpg", "clock/later.jpg"}
    assert listed <= keys()
    assert objects.prune(backed_up.repository, before=now + timedelta(days=1)) == 0
    assert listed <= keys()


class _FolderBucket(objects.Source):
    """A second store, on a disk, so that nothing of the first one is in it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def sizes(self, *, before: datetime | None = None) -> Iterator[tuple[str, int]]:
        del before
        yield from ()

    def put(self, entry: objects.Entry, body: bytes) -> None:
        file = self._root / entry.key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)


@pytest.mark.req("BK-04", "BK-06")
def test_commands_back_up_drill_and_restore_an_edge_that_calls_its_stations(
    backed_up: site.Site, engines: dict[str, str], place: Path
) -> None:
    """As a person types them; the restored edge asks its stations to send again."""
    migrations.apply(backed_up.url, SQL["edge"])
    variables = {
        **engines,
        "PATH": os.environ["PATH"],
        "FARMIQ_STATE_DIR": str(place / "state"),
        "FARMIQ_BACKUP_URL": f"file://{place}/copies",
        "FARMIQ_BACKUP_KEY_FILE": str(place / "new.key"),
        "FARMIQ_BACKUP_SPOOL": str(place / "spool"),
        "BACKUP_WAL_SECONDS": "0.5",
        "BACKUP_FILES": str(place / "key"),
    }

    def farmiq(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "farmiq", *words],
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    farmiq("device", "add", "t-001", "farm-1", "barn-1", "station-1", "--station", "scale-1")
    assert "cannot read the key" in farmiq("backup", "run", "edge", code=1)
    assert "Store a copy" in farmiq("backup", "key", str(place / "new.key"))
    assert "there is no site 'barn'; choose edge, cloud" in farmiq("backup", "run", "barn", code=2)
    with subprocess.Popen(
        [sys.executable, "-m", "farmiq", "backup", "stream", "edge"], env=variables
    ) as stream:
        try:
            wait_for((place / "copies" / "edge" / "base").exists)
            # Its folder is there before it is complete: exit code 3 until then.
            command = [sys.executable, "-m", "farmiq", "backup", "list", "edge"]
            wait_for(lambda: subprocess.run(command, env=variables, check=False).returncode == 0)
            report = json.loads(farmiq("drill", "edge", "--into", str(place / "new"), "--json"))
            noted = {("copy", ""), ("change", ""), ("drill", "")}
            wait_for(lambda: _marks(backed_up.url) == noted)
        finally:
            stream.terminate()
    assert stream.returncode == 0
    assert report["differences"] == []
    assert report["rows"] > 0
    assert "all is well" in farmiq("backup", "verify", "edge")
    assert ("verify", "") in _marks(backed_up.url)
    (place / "restored").mkdir(mode=0o711)
    told = json.loads(farmiq("restore", "edge", "--into", str(place / "restored"), "--json"))
    assert told["stations"] == 1
    key = Path(told["files"]) / str(place / "key").lstrip("/")
    assert key.read_bytes() == (place / "key").read_bytes()
    copy = database.Restored(
        place / "restored",
        port=free_port(),
        url=backed_up.url,
        account=account(),
        programs=backed_up.programs,
    )
    copy.start()
    try:
        with psycopg.connect(copy.url) as connection:
            commands = connection.execute("select device_id, name from device_commands").fetchall()
    finally:
        copy.stop()
    assert commands == [("station-1", "edge.restored")]


def _marks(url: str) -> set[tuple[str, str]]:
    with psycopg.connect(url) as connection:
        return set(connection.execute("select mark, problem from backup_marks").fetchall())


@pytest.mark.req("BK-03")
def test_prune_keeps_what_a_restore_of_the_last_days_needs(
    engines: dict[str, str], place: Path
) -> None:
    kept = _folder(place / "repository")
    now = datetime.now(UTC)
    for days, segment in ((50, 1), (40, 5), (10, 9), (1, 12)):
        _base(kept, now - timedelta(days=days), segment)
    for number in range(14):
        kept.write(f"wal/{_segment(number)}", [b"x"])
    chosen = site.Site(
        repository=kept, url=engines["FARMIQ_EDGE_DB_ADMIN_URL"], bucket=None, files=(),
        programs=Programs(None), spool=place,
    )  # fmt: skip
    assert chosen.prune(days=30, at_least=1) == {"bases": 1, "segments": 5, "objects": 0}
    # A restore to 30 days ago begins with the base of 40 days ago.
    assert [base.first_wal for base in database.bases(kept)] == [_segment(n) for n in (5, 9, 12)]
    assert database.segments(kept)[0] == _segment(5)
    assert chosen.prune(days=30, at_least=1) == {"bases": 0, "segments": 0, "objects": 0}


@pytest.mark.req("BK-01")
def test_prune_deletes_what_aborted_copies_left_and_damaged_bases_that_are_old(
    engines: dict[str, str], place: Path
) -> None:
    kept = _folder(place / "repository")
    now = datetime.now(UTC)
    days_ago = [now - timedelta(days=days) for days in (50, 40, 20, 10, 1)]
    bases = [_base(kept, at, number) for number, at in enumerate(days_ago)]
    for number in range(6):
        kept.write(f"wal/{_segment(number)}", [b"x"])
    _flip(place / "repository/base" / bases[0].id / "about.json")
    _flip(place / "repository/base" / bases[2].id / "about.json")
    for at, is_part in (
        (days_ago[3] + timedelta(hours=1), True),
        (days_ago[3], False),
        (now, True),
    ):
        left = place / "repository/base" / f"{at - timedelta(hours=2):%Y%m%dT%H%M%SZ}"
        left.mkdir()
        (left / ("base.tar.gz.part" if is_part else "base.tar.gz")).write_bytes(b"x")
    chosen = site.Site(
        repository=kept,
        url=engines["FARMIQ_EDGE_DB_ADMIN_URL"],
        bucket=None,
        files=(),
        programs=Programs(None),
        spool=place,
    )
    # What the damaged base of 20 days ago needs is not known: every segment stays.
    assert chosen.prune(days=30, at_least=1) == {"bases": 1, "segments": 0, "objects": 0}
    assert database.damaged(kept) == [bases[2].id]
    assert [base.id for base in database.bases(kept)] == [bases[n].id for n in (1, 3, 4)]
    stays = sorted(name for name in kept.names("base/", with_parts=True) if "about" not in name)
    assert stays == [
        *(f"base/{bases[n].id}/base.tar.gz" for n in (1, 2, 3, 4)),
        f"base/{now - timedelta(hours=2):%Y%m%dT%H%M%SZ}/base.tar.gz.part",
    ]
    assert chosen.prune(days=9, at_least=1) == {"bases": 2, "segments": 3, "objects": 0}
    assert database.damaged(kept) == []


def test_copy_that_fills_the_disk_leaves_nothing(place: Path) -> None:
    kept = _folder(place / "repository")

    def pieces() -> Iterator[bytes]:
        yield b"x" * 2 * sealed.CHUNK_BYTES
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RepositoryError, match="No space left"):
        kept.write("base/one/base.tar.gz", pieces())
    assert list((place / "repository/base/one").iterdir()) == []


@pytest.mark.req("BK-02")
def test_folder_whose_disk_is_not_mounted_takes_nothing(backed_up: site.Site, place: Path) -> None:
    folder, away = place / "repository", place / "away"
    backed_up.repository.write("wal/1", [b"x"])
    migrations.apply(backed_up.url, SQL["edge"])
    marks.note(backed_up.url, marks.COPY)
    folder.rename(away)
    folder.mkdir()
    with pytest.raises(RepositoryError, match="is its disk mounted"):
        backed_up.repository.write("wal/2", [b"x"])
    with pytest.raises(RepositoryError, match="is its disk mounted"):
        backed_up.run(_quiet)
    assert list(folder.iterdir()) == []
    folder.rmdir()
    away.rename(folder)
    backed_up.repository.write("wal/2", [b"x"])
    assert backed_up.repository.names("wal/") == ["wal/1", "wal/2"]


@pytest.mark.req("BK-01", "BK-05")
def test_one_damaged_base_blocks_neither_the_stream_nor_a_restore(
    backed_up: site.Site, place: Path
) -> None:
    assert backed_up.bucket is not None
    backed_up.bucket.put(objects.Entry("media/old.jpg", 1, "", "image/jpeg"), b"x")
    base = backed_up.run(_quiet)
    old = msgspec.structs.replace(base, id="20200101T000000Z")
    backed_up.repository.write_document(f"{database.BASE}{old.id}/about.json", old)
    _flip(place / "repository/base" / old.id / "about.json")
    with streaming(backed_up):
        wait_for(lambda: database.bases(backed_up.repository)[-1].started_at > base.started_at)
        number, end = insert(backed_up.url)
        wait_for(lambda: is_covered(backed_up, end))
    for name in ("wal-covered.json", *backed_up.repository.names(objects.LISTS)[-1:]):
        _flip(place / "repository" / name)
    assert [problem.split(" ")[:4] for problem in backed_up.verify(_quiet)] == [
        ["base", old.id, "is", "damaged,"],
        ["wal-covered.json", "was", "changed", "or"],
        [backed_up.repository.names(objects.LISTS)[-1], "was", "changed", "or"],
    ]
    keys = [entry.key for entry in objects.around(backed_up.repository, None)]
    assert "media/old.jpg" in keys
    far = end + timedelta(days=1)
    with pytest.raises(BackupError, match="does not reach that far"):
        backed_up.restore(place / "far", to=far, account=None, port=free_port(), say=_quiet)
    with restored(backed_up, place / "copy", None) as url:
        assert numbers(url) == [number]
    for base in database.bases(backed_up.repository):
        _flip(place / "repository/base" / base.id / "about.json")
    with pytest.raises(sealed.UnsealError, match="its key is not in the key file"):
        backed_up.run(_quiet)


def test_stream_ends_with_the_error_that_no_later_attempt_mends(
    backed_up: site.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else changes would go on, and nobody would see that no copy is made."""
    other = RuntimeError("a mistake")

    def broken(*_: object, **__: object) -> None:
        raise other

    monkeypatch.setattr(objects, "run", broken)
    with pytest.raises(RuntimeError) as error:
        backed_up.stream(
            threading.Event(), wal_s=WAL_S, base_hours=24, bucket_hours=24, days=30, at_least=2
        )
    assert error.value is other


def test_bucket_that_is_away_costs_no_further_copy_of_the_database(
    backed_up: site.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first stream begins with a copy; one for each attempt would fill the repository."""
    monkeypatch.setattr(site, "_AGAIN_S", 1.5)
    attempts = []
    copy_bucket = site.Site.copy_bucket

    def counted(each: site.Site, say: site.Say) -> None:
        attempts.append(say)
        copy_bucket(each, say)

    monkeypatch.setattr(site.Site, "copy_bucket", counted)
    away = objects.Source(f"http://id:secret@127.0.0.1:{free_port()}/none")
    with streaming(dataclasses.replace(backed_up, bucket=away)):
        wait_for(lambda: len(attempts) >= 3)
    assert len(database.bases(backed_up.repository)) == 1


def test_file_of_the_settings_that_is_missing_is_said_before_anything_is_copied(
    backed_up: site.Site, place: Path
) -> None:
    wrong = dataclasses.replace(backed_up, files=(place / "key", place / "no such file"))
    with pytest.raises(BackupError, match=r"no such file of BACKUP_FILES cannot be read"):
        wrong.run(_quiet)
    assert backed_up.repository.names(database.BASE) == []


def test_restore_goes_where_the_owners_address_has_tls(backed_up: site.Site, place: Path) -> None:
    backed_up.run(_quiet)
    parts = urlsplit(backed_up.url)
    tls = parts._replace(query="sslmode=verify-full&sslrootcert=/etc/farmiq/ca.pem").geturl()
    with restored(dataclasses.replace(backed_up, url=tls), place / "copy", None) as url:
        assert numbers(url) == []
    login, _, host = parts.netloc.rpartition("@")
    wrong = parts._replace(netloc=f"{login.partition(':')[0]}:wrong@{host}").geturl()
    with (
        pytest.raises(BackupError, match="password authentication failed"),
        restored(dataclasses.replace(backed_up, url=wrong), place / "wrong", None),
    ):
        pass


@pytest.mark.req("BK-04", "BK-07")
def test_drill_finds_an_image_that_the_backup_lacks(backed_up: site.Site, place: Path) -> None:
    assert backed_up.bucket is not None
    words: list[str] = []
    with streaming(backed_up):
        wait_for(lambda: backed_up.repository.names(objects.LISTS))
        backed_up.bucket.put(objects.Entry("media/new.jpg", 3, "", "image/jpeg"), b"abc")

        def drill_of(chosen: site.Site, folder: str, images_s: float) -> list[str]:
            return chosen.drill(
                place / folder,
                account=account(),
                port=free_port(),
                name=folder,
                say=words.append,
                images_s=images_s,
            ).problems

        lacking = ["object media/new.jpg is in the bucket and not in the backup"]
        assert drill_of(backed_up, "now", 0) == lacking
        assert drill_of(backed_up, "soon", 3600) == []
    assert site.NO_BUCKET not in words
    dataclasses.replace(backed_up, bucket=None).copy_bucket(words.append)
    assert words[-1] == site.NO_BUCKET


def test_new_images_are_copied_without_reading_the_lists_again(
    backed_up: site.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a hundred thousand images a list has 24 MB, and one comes every half minute."""
    assert backed_up.bucket is not None
    chosen = dataclasses.replace(
        backed_up,
        new_objects="select 'media/fresh-' || id, at from readings where at > %s order by at",
    )
    copied: set[str] = set()
    since: datetime | None = None
    around, reads = objects.around, []

    def counted(kept: Repository, at: datetime | None) -> list[objects.Entry]:
        reads.append(at)
        return around(kept, at)

    monkeypatch.setattr(objects, "around", counted)
    keys: list[str] = []
    for _ in range(3):
        number, _at = insert(backed_up.url)
        key = f"media/fresh-{number}"
        backed_up.bucket.put(objects.Entry(key, 1, "", "image/jpeg"), b"x")
        since = chosen.copy_new(since, copied)
        keys.append(key)
    recent = [
        backed_up.repository.read_document(name, objects.Listing)
        for name in backed_up.repository.names(objects.RECENT)
    ]
    assert [entry.key for listing in recent for entry in listing.entries] == keys
    assert len(reads) == 1


def _flip(file: Path) -> None:
    body = bytearray(file.read_bytes())
    body[40] ^= 1
    file.write_bytes(body)


def _folder(root: Path) -> Repository:
    kept = Repository(repository.Folder(root), [b"k" * 32])
    kept.prepare(is_first=True)
    return kept


def _base(kept: Repository, at: datetime, segment: int) -> database.Base:
    base = database.Base(
        id=f"{at:%Y%m%dT%H%M%SZ}", started_at=at, ended_at=at,
        first_wal=_segment(segment), last_wal=_segment(segment), size_bytes=1, sha256="",
        server_version="18", system_id="1",
    )  # fmt: skip
    kept.write(f"base/{base.id}/base.tar.gz", [b"x"])
    kept.write_document(f"base/{base.id}/about.json", base)
    return base


def _segment(number: int) -> str:
    return f"0000000100000000{number:08X}"


Damage = Callable[[Path], Any]


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(file.read_bytes()[: -sealed.CHUNK_BYTES]),
        lambda file: file.write_bytes(file.read_bytes() + b"x"),
        lambda file: file.write_bytes(b"\0" + file.read_bytes()[1:]),
        lambda file: file.write_bytes(bytes([file.read_bytes()[99] ^ 1]).join(_parts(file, 99))),
        lambda file: shutil.copy(file.with_name("other"), file),
    ],
    ids=["cut", "whole chunk cut", "longer", "other header", "one bit", "another file"],
)
def test_changed_file_of_the_repository_is_found(damage: Damage, place: Path) -> None:
    kept = _folder(place)
    body = os.urandom(2 * sealed.CHUNK_BYTES + 7)
    for name in ("file", "other"):
        kept.write(name, [body[:9], body[9:]])
    assert b"".join(kept.read("file")) == body
    damage(place / "file")
    with pytest.raises(sealed.UnsealError):
        list(kept.read("file"))
    with pytest.raises(sealed.UnsealError):
        list(Repository(repository.Folder(place), [b"o" * 32]).read("other"))
    with pytest.raises(RepositoryError, match="has no nothing"):
        list(kept.read("nothing"))


def _parts(file: Path, at: int) -> tuple[bytes, bytes]:
    body = file.read_bytes()
    return body[:at], body[at + 1 :]


@pytest.mark.req("BK-02")
def test_repository_in_a_bucket_stores_and_lists_like_a_folder(engines: dict[str, str]) -> None:
    kept = repository.open_at(f"{engines['FARMIQ_EDGE_S3_URL']}/backups/barn-1", keys=[b"k" * 32])
    body = os.urandom(9 * 2**20)
    written = kept.write("wal/one", iter([body]))
    assert written.size_bytes == len(body)
    kept.write("wal/two", [b""])
    assert b"".join(kept.read("wal/one")) == body
    assert b"".join(kept.read("wal/two")) == b""
    assert kept.names("wal/") == ["wal/one", "wal/two"]
    kept.delete("wal/one")
    assert kept.names("") == ["wal/two"]
    with pytest.raises(RepositoryError, match="has no wal/one"):
        list(kept.read("wal/one"))
    kept.delete("wal/two")


@pytest.mark.parametrize(
    "url", ["/mnt/backup", "file://host/folder", "ftp://host/x", "https://host"]
)
def test_address_of_another_kind_is_refused_with_the_right_ones(url: str) -> None:
    with pytest.raises(ValueError, match="a backup goes to file:///folder"):
        repository.open_at(url, keys=[b"k" * 32])
