"""Programs out of Debian's packages, without root and without touching the system.

apt works on lists and caches of its own beside the target and only reads what is installed, so
it names exactly the packages that are missing; they are unpacked, never installed.
"""

import shutil
import subprocess
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from farmiq import config
from farmiq.lab.stack import files
from farmiq.lab.stack.engine import Say, StackError

STATUS = Path("/var/lib/dpkg/status")
FONT = "fonts-dejavu-core"
CHROMIUM = "chromium"
HEADLESS = "chromium-headless-shell"


def missing(simulation: str) -> tuple[str, ...]:
    """Read the output of `apt-get -s install`: the packages to get, as name=version."""
    packages = []
    for line in simulation.splitlines():
        word, _, rest = line.partition(" ")
        name, _, detail = rest.partition(" ")
        if word == "Inst":
            version = detail.partition("(")[2].split(maxsplit=1)[0]
            packages.append(f"{name}={version}")
    return tuple(packages)


def usable() -> bool:
    """Say whether this is a system whose packages can be had this way."""
    return STATUS.exists() and all(shutil.which(name) for name in ("apt-get", "dpkg"))


def extract(
    packages: Collection[str],
    target: Path,
    *,
    say: Say,
    finish: Callable[[Path], None] = lambda _: None,
) -> None:
    """Unpack packages and what they need that is not installed; nothing if that was done before.

    `finish` adapts the unpacked files; the target appears only when all of it is done.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with files.locked(target.with_name(f"{target.name}.lock")):
        if target.exists():
            return
        draft = target.with_name(f"{target.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        (draft / "packages").mkdir(parents=True)
        _unpack(packages, draft, say=say)
        finish(draft)
        shutil.rmtree(draft / "packages")
        draft.rename(target)


def library_folders(target: Path) -> list[Path]:
    """Return the folders of shared libraries below an extraction."""
    candidates = [*target.glob("usr/lib/*-linux-gnu*"), *target.glob("lib/*-linux-gnu*")]
    nested = [folder for top in candidates for folder in top.iterdir() if any(folder.glob("*.so*"))]
    return [*candidates, *nested]


def chromium_path(cache: Path, *, package: str = HEADLESS, say: Say = lambda _: None) -> Path:
    """Return a Chromium to run: an installed one, else one extracted into the cache.

    The one without windows is the same engine and costs a quarter less; it has no notifications.
    """
    for name in (package, CHROMIUM, "chromium-browser", "google-chrome"):
        installed = shutil.which(name)
        if installed is not None:
            return Path(installed)
    if not usable():
        raise StackError(
            "No Chromium on the PATH, and this is no Debian system to take it from: "
            "install chromium (or Google Chrome) and try again."
        )
    target = cache.resolve() / package
    extract((package, FONT), target, say=say, finish=lambda draft: _wrap_chromium(draft, target))
    return target / CHROMIUM


def strace_path(cache: Path, *, say: Say = lambda _: None) -> Path:
    """Return a strace to run: the installed one, else one extracted into the cache."""
    installed = shutil.which("strace")
    if installed is not None:
        return Path(installed)
    if not usable():
        raise StackError(
            "No strace on the PATH, and this is no Debian system to take it from: install it."
        )
    target = cache.resolve() / "strace"
    extract(("strace",), target, say=say)
    return target / "usr/bin/strace"


def promtool_path(cache: Path, *, say: Say = lambda _: None) -> Path:
    """Return a promtool to run: the installed one, else one extracted into the cache."""
    installed = shutil.which("promtool")
    if installed is not None:
        return Path(installed)
    if not usable():
        raise StackError(
            "No promtool on the PATH, and this is no Debian system to take it from: "
            "install Prometheus."
        )
    target = cache.resolve() / "promtool"
    extract(("prometheus",), target, say=say, finish=_only_promtool)
    return target / "promtool"


def _only_promtool(draft: Path) -> None:
    """The package is a server with its pages, ten times as large."""
    (draft / "usr/bin/promtool").rename(draft / "promtool")
    for folder in ("etc", "lib", "usr", "var"):
        shutil.rmtree(draft / folder, ignore_errors=True)


def chromium_wrapper(target: Path, libraries: Sequence[Path]) -> str:
    """Return the shell script that starts an extracted Chromium with its own libraries.

    The target is named as its package, and that as the program.
    """
    return f"""\
#!/bin/sh
export LD_LIBRARY_PATH="{":".join(str(folder) for folder in libraries)}"
export FONTCONFIG_FILE="{target}/fonts.conf"
exec "{target}/usr/lib/chromium/{target.name}" "$@"
"""


def fonts_configuration(target: Path) -> str:
    """Return a fontconfig file that knows the extracted font and the system's."""
    return f"""\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{target}/usr/share/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>{target}/fonts-cache</cachedir>
</fontconfig>
"""


def _wrap_chromium(draft: Path, target: Path) -> None:
    libraries = [target / folder.relative_to(draft) for folder in library_folders(draft)]
    wrapper = draft / CHROMIUM
    wrapper.write_text(chromium_wrapper(target, libraries), encoding="utf-8")
    wrapper.chmod(0o755)
    (draft / "fonts.conf").write_text(fonts_configuration(target), encoding="utf-8")


def _unpack(packages: Collection[str], draft: Path, *, say: Say) -> None:
    what = ", ".join(packages)
    say(f"{what}  asking Debian's package lists")
    apt = _private_apt(draft / "packages")
    _run([*apt, "update"], draft, what)
    simulation = _run([*apt, "-s", "install", "--no-install-recommends", *packages], draft, what)
    needed = missing(simulation)
    folder = draft / "packages"
    total = total_bytes(_run([*apt, "download", "--print-uris", *needed], folder, what))
    report = progress(f"{what}  downloaded", total, say=say)
    say(f"{what}  downloading {len(needed)} packages, {total / 1e6:.0f} MB")
    _run([*apt, "download", *needed], folder, what, meanwhile=lambda: report(_size(folder)))
    say(f"{what}  unpacking {_size(folder) / 1e6:.0f} MB")
    for archive in sorted(folder.glob("*.deb")):
        _run(["dpkg", "-x", str(archive), str(draft)], draft, what)


def total_bytes(uris: str) -> int:
    """Read what `apt-get download --print-uris` prints: address, file, size, hash in a line."""
    return sum(int(line.split()[2]) for line in uris.splitlines() if line.startswith("'"))


def progress(what: str, total: int, *, say: Say) -> Callable[[int], None]:
    """Return what says how many bytes there are by now, at every tenth of the whole."""
    reported = 0

    def report(now: int) -> None:
        nonlocal reported
        tenth = 10 * now // total if total else 0
        if tenth > reported:
            reported = tenth
            say(f"{what} {now / 1e6:.0f} of {total / 1e6:.0f} MB")

    return report


def _size(folder: Path) -> int:
    return sum(archive.stat().st_size for archive in folder.glob("*.deb"))


def _private_apt(folder: Path) -> list[str]:
    state, cache = folder / "state", folder / "cache"
    (state / "lists" / "partial").mkdir(parents=True)
    (cache / "archives" / "partial").mkdir(parents=True)
    options = {
        "Dir::State": state,
        "Dir::State::status": STATUS,
        "Dir::Cache": cache,
        "Debug::NoLocking": 1,
        "APT::Sandbox::User": "root",
        "APT::Update::Error-Mode": "any",
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    return ["apt-get", "-q", *flags]


def _run(
    command: Sequence[str],
    folder: Path,
    what: str,
    *,
    meanwhile: Callable[[], None] = lambda: None,
) -> str:
    """Run a command to its end and return its output; `meanwhile` is called every second."""
    # The caller's environment: behind a proxy, apt needs its variables. C: the output is parsed.
    environment = config.environment(over={"LC_ALL": "C"})
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True
    ) as process:
        while True:
            try:
                output, errors = process.communicate(timeout=1)
                break
            except subprocess.TimeoutExpired:
                meanwhile()
    if process.returncode != 0:
        raise StackError(
            f"{what} could not be taken from Debian's packages: `{command[0]}` failed with\n"
            f"{(errors or output).strip()}\n"
            "Check the network and /etc/apt, then try again; or install it with apt."
        )
    return output
