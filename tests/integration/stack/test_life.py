"""From start to stop: ready means usable, stopped means gone, the data stays."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import farmiq
from farmiq.lab import stack
from farmiq.lab.stack import processes, record
from farmiq.lab.stack.processes import Process

OWNER = """
import sys
from pathlib import Path
from farmiq.lab import stack
with stack.start(Path(sys.argv[1]), engines=sys.argv[2].split(",")):
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextmanager
def owner(root: Path, engines: str) -> Iterator[subprocess.Popen[str]]:
    """Run another program that owns a stack; it is killed at the end if it still runs."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(root), engines],
        cwd=Path(farmiq.__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            yield program
        finally:
            program.kill()


def recorded(root: Path) -> list[Process]:
    run = record.read_run(root)
    assert run is not None
    return [one for engine in run.engines for one in (*engine.helpers, engine.process) if one]


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_engines_are_usable_when_ready_and_gone_when_stopped(root: Path) -> None:
    lines: list[str] = []
    with stack.start(
        root, engines=["postgres-cloud", "mqtt-cloud", "s3"], say=lines.append
    ) as running:
        started = recorded(root)
        found = stack.states(root)
        attached = stack.attach(root)
        assert attached == running.environment
    assert [state.name for state in found] == ["s3", "mqtt-cloud", "postgres-cloud"]
    assert all(state.healthy and state.rss_bytes > 1e6 for state in found)
    assert any(line.startswith("postgres-cloud  PostgreSQL 1") for line in lines)
    assert len(started) == 3
    assert not any(processes.alive(process) for process in started)
    assert stack.states(root) == []


def test_the_service_role_of_the_cloud_is_an_ordinary_one(root: Path) -> None:
    with stack.start(root, engines=["postgres-cloud"]) as running:
        rows = execute(
            running.environment["FARMIQ_CLOUD_DB_URL"],
            "select current_user, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb,"
            " datdba::regrole::text"
            " from pg_roles, pg_database"
            " where rolname = current_user and datname = current_database()",
        )
    assert rows == [("farmiq_service", False, False, False, False, "farmiq")]


def test_a_second_start_keeps_data_passwords_and_ports(root: Path) -> None:
    with stack.start(root, engines=["postgres-edge", "mqtt-edge"]) as running:
        first = dict(running.environment)
        execute(first["FARMIQ_EDGE_DB_ADMIN_URL"], "create table kept as select 7 as number")
    with stack.start(root, engines=["postgres-edge", "mqtt-edge"]) as running:
        assert running.environment == first
        rows = execute(first["FARMIQ_EDGE_DB_ADMIN_URL"], "select number from kept")
    assert rows == [(7,)]


def test_a_killed_owner_takes_its_engines_along_and_the_next_start_finds_the_data(
    root: Path,
) -> None:
    with owner(root, "postgres-edge,mqtt-edge,s3") as program:
        url = stack.attach(root)["FARMIQ_EDGE_DB_ADMIN_URL"]
        execute(url, "create table kept as select 7 as number")
        orphans = recorded(root)
        program.kill()
        program.wait()
        assert processes.await_end(orphans, within_s=60) == []
    with stack.start(root, engines=["postgres-edge", "mqtt-edge", "s3"]) as running:
        assert running.environment["FARMIQ_EDGE_DB_ADMIN_URL"] == url
        assert execute(url, "select number from kept") == [(7,)]


def test_engines_live_on_when_the_thread_that_started_them_ends(root: Path) -> None:
    with ThreadPoolExecutor(max_workers=1) as thread:
        running = thread.submit(stack.start, root, engines=["mqtt-edge"]).result()
    with running:
        assert processes.await_end(recorded(root), within_s=0.5) != []


def test_a_folder_in_use_is_refused_with_the_pid_of_its_owner(root: Path) -> None:
    with (
        owner(root, "mqtt-edge") as program,
        pytest.raises(stack.StackError, match=rf"in use by pid {program.pid}: end that program"),
    ):
        stack.start(root, engines=["mqtt-edge"])


def test_a_recorded_pid_that_now_belongs_to_a_stranger_is_left_alone(root: Path) -> None:
    root.mkdir(parents=True)
    with subprocess.Popen(["/bin/sleep", "60"]) as stranger:
        recycled = Process(pid=stranger.pid, started="an earlier boot:1")
        stale = record.Running(
            name="mqtt-edge",
            version="",
            host="127.0.0.1",
            port=1,
            urls={},
            stop_signal=15,
            helpers=(recycled,),
            process=recycled,
        )
        record.write_run(root, record.Run(owner=recycled, engines=(stale,)))
        with stack.start(root, engines=["mqtt-edge"]):
            pass
        untouched = stranger.poll() is None
        stranger.kill()
    assert untouched


def test_two_stacks_run_side_by_side(root: Path, second_root: Path) -> None:
    names = ["mqtt-edge", "postgres-edge", "s3"]
    with stack.start(root, engines=names) as one, stack.start(second_root, engines=names) as two:
        shared = set(one.environment.items()) & set(two.environment.items())
        assert {name for name, _ in shared} == {"FARMIQ_EDGE_BROKER_OWN_USERS"}
        assert all(state.healthy for state in (*stack.states(root), *stack.states(second_root)))
        two.kill("mqtt-edge")
        assert [state.healthy for state in stack.states(second_root)] == [False, True, True]
        assert all(state.healthy for state in stack.states(root))


def test_a_detached_stack_outlives_its_starter_until_it_is_stopped(root: Path) -> None:
    starter = (
        "import sys; from pathlib import Path; from farmiq.lab import stack;"
        "stack.start(Path(sys.argv[1]), engines=['mqtt-edge', 'postgres-edge'], detach=True)"
    )
    subprocess.run(
        [sys.executable, "-c", starter, str(root)],
        cwd=Path(farmiq.__file__).parents[1],
        check=True,
        timeout=120,
    )
    left = recorded(root)
    assert all(state.healthy for state in stack.states(root))
    with pytest.raises(stack.StackError, match=r"already running in .* \(pid \d+"):
        stack.start(root, engines=["mqtt-edge"])
    assert stack.stop(root) == ["mqtt-edge", "postgres-edge"]
    assert processes.await_end(left, within_s=0) == []


@pytest.mark.parametrize("engine", ["postgres-edge", "mqtt-edge", "s3"])
def test_a_killed_engine_restarts_on_its_port_with_its_data(root: Path, engine: str) -> None:
    with stack.start(root, engines=[engine]) as running:
        before, pid = dict(running.environment), running.pid(engine)
        if engine == "postgres-edge":
            execute(before["FARMIQ_EDGE_DB_ADMIN_URL"], "create table kept as select 7 as number")
        running.kill(engine)
        assert [(state.healthy, state.pid) for state in stack.states(root)] == [(False, None)]
        running.restart(engine)
        assert running.pid(engine) != pid
        assert running.environment == before
        assert [state.healthy for state in stack.states(root)] == [True]
        if engine == "postgres-edge":
            assert execute(before["FARMIQ_EDGE_DB_ADMIN_URL"], "select * from kept") == [(7,)]


def test_an_engine_that_ends_while_starting_shows_its_log_and_leaves_nothing(root: Path) -> None:
    with stack.start(root, engines=["postgres-edge"]):
        pass
    configuration = (root / "postgres-edge" / "data").resolve() / "postgresql.conf"
    configuration.write_text("no_such_setting = 1\n")

    with pytest.raises(stack.StackError, match=r"(?s)postgres-edge ended while .*no_such_setting"):
        stack.start(root, engines=["postgres-edge", "mqtt-edge", "s3"])
    assert stack.states(root) == []


def test_stopping_twice_does_not_touch_the_next_run(root: Path) -> None:
    first = stack.start(root, engines=["mqtt-edge"])
    first.stop()
    with stack.start(root, engines=["mqtt-edge"]):
        first.stop()
        assert [state.healthy for state in stack.states(root)] == [True]


def test_the_data_of_a_running_stack_is_not_deleted(root: Path) -> None:
    with (
        stack.start(root, engines=["mqtt-edge"]),
        pytest.raises(stack.StackError, match="stop it with"),
    ):
        stack.remove(root)


def test_secrets_are_closed_to_other_users(root: Path) -> None:
    with stack.start(root, engines=["mqtt-edge"]):
        files = [path for path in root.rglob("*") if path.is_file() and path.name != "lock"]
        secret = [path for path in files if path.suffix in {".json", ".conf"}]
        assert len(secret) >= 4
        assert all(path.stat().st_mode & 0o077 == 0 for path in secret)
    assert os.access(root, os.X_OK)


def test_a_folder_deleted_by_hand_starts_afresh(root: Path) -> None:
    """Also where the data had to be put outside it: its passwords are gone with the folder."""
    for _ in range(2):
        with stack.start(root, engines=("postgres-edge",)) as started:
            url = started.environment["FARMIQ_EDGE_DB_ADMIN_URL"]
            execute(url, "create table kept ()")
        shutil.rmtree(root)


def test_only_the_engine_that_is_unwell_is_restarted(root: Path) -> None:
    started = stack.start(root, engines=["postgres-edge", "mqtt-edge"], detach=True)
    before = {state.name: state.pid for state in stack.states(root)}
    started.kill("mqtt-edge")

    assert stack.mend(root) == ["mqtt-edge"]

    found = {state.name: state for state in stack.states(root)}
    assert all(state.healthy for state in found.values())
    assert found["postgres-edge"].pid == before["postgres-edge"]
    assert found["mqtt-edge"].pid != before["mqtt-edge"]
    assert stack.attach(root) == started.environment
