"""The environment: this is the only file that reads it."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

# Numpy's library for matrices waits for its threads before each fork, for ever if one of them is
# at work: a process that starts a child then would hang. One thread has nobody to wait for.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Every secret setting is an address with a password in it, a token, or headers with one.
SECRET_ENDINGS = ("_URL", "_TOKEN", "_HEADERS")


class SettingsError(Exception):
    """Settings are missing or odd; the text names each and says what it is for."""


def given_by_process() -> Mapping[str, str]:
    """The environment; a secret may be in a file that NAME_FILE names.

    Raises SettingsError, which does not quote the secret.
    """
    return {**os.environ, **dict(_from_files())}


def _from_files() -> Iterator[tuple[str, str]]:
    for variable, file in os.environ.items():
        name = variable.removesuffix("_FILE")
        if name == variable or not name.endswith(SECRET_ENDINGS) or not file:
            continue
        if os.environ.get(name):
            raise SettingsError(f"{name} and {variable} are both set: remove one of them")
        try:
            yield name, Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise SettingsError(f"{variable}: {file} cannot be read: {why}") from None


def crash_at() -> str | None:
    """Where a test wants this process to die (farmiq/crash.py)."""
    return os.environ.get("FARMIQ_CRASH_AT") or None


def state_dir() -> Path:
    """Local engines' data: FARMIQ_STATE_DIR, the nearest .farmiq above, or ~/.local/state."""
    given = os.environ.get("FARMIQ_STATE_DIR")
    if given:
        return Path(given).absolute()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / ".farmiq").is_dir():
            return folder / ".farmiq"
    return Path.home() / ".local" / "state" / "farmiq"


def state_dir_given() -> bool:
    """Whether FARMIQ_STATE_DIR names the folder of local stacks: then no other is looked into."""
    return bool(os.environ.get("FARMIQ_STATE_DIR"))


def running_stacks_dir() -> Path:
    """Where this user's running stacks are noted, whatever folder they were started in."""
    return Path.home() / ".local" / "state" / "farmiq" / "running"


def stack_postgres() -> str | None:
    """Which of Debian's PostgreSQL local stacks start, such as 15; None: the one of the wheel."""
    return os.environ.get("FARMIQ_STACK_POSTGRES") or None


def stack_mqtt_sync() -> str:
    """When local brokers flush to disk: `always` (before they acknowledge), or as often as 2m."""
    return os.environ.get("FARMIQ_STACK_MQTT_SYNC") or "always"


def given_urls() -> dict[str, str]:
    """Engines that the environment names: those are used and not started."""
    return {
        name: value
        for name, value in given_by_process().items()
        if name.startswith("FARMIQ_") and name.endswith("_URL") and value
    }


def environment(
    *, over: Mapping[str, str] | None = None, under: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Our environment: `under` gives what it lacks, `over` wins over it."""
    return {**(under or {}), **given_by_process(), **(over or {})}
