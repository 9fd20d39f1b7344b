"""Reading apt, and the texts that make unpacked programs run."""

from pathlib import Path

from farmiq.lab.stack import debian, rabbitmq

SIMULATION = """\
NOTE: This is only a simulation!
Reading package lists...
The following NEW packages will be installed:
  erlang-base rabbitmq-server
Inst erlang-base (1:25.2.3+dfsg-1+deb12u4 Debian:12.15/oldstable [amd64])
Inst libssl3 [3.0.1-1] (3.0.2-1 Debian:12.15/oldstable [amd64]) []
Inst rabbitmq-server (3.10.8-1.1 Debian:12.15/oldstable, Debian-Security:12/x [all])
Conf erlang-base (1:25.2.3+dfsg-1+deb12u4 Debian:12.15/oldstable [amd64])
"""


def test_new_and_upgraded_packages_are_named_with_their_versions() -> None:
    assert debian.missing(SIMULATION) == (
        "erlang-base=1:25.2.3+dfsg-1+deb12u4",
        "libssl3=3.0.2-1",
        "rabbitmq-server=3.10.8-1.1",
    )


def test_no_package_is_missing_when_all_are_installed() -> None:
    assert debian.missing("rabbitmq-server is already the newest version (3.10.8-1.1).\n") == ()


def test_size_of_a_download_is_read_from_what_apt_would_fetch() -> None:
    uris = (
        "'http://packages.example/a_1_amd64.deb' a_1_amd64.deb 1500000 SHA256:00\n"
        "NOTE: something else\n"
        "'http://packages.example/b_2_all.deb' b_2_all.deb 500000 SHA256:00\n"
    )

    assert debian.total_bytes(uris) == 2_000_000


def test_download_says_how_far_it_is_once_per_tenth() -> None:
    said: list[str] = []
    tell = debian.progress("browser  downloaded", 100_000_000, say=said.append)

    for megabytes in (0, 5, 9, 31, 32, 39, 40, 100):
        tell(megabytes * 1_000_000)

    assert said == [f"browser  downloaded {here} of 100 MB" for here in (31, 40, 100)]


def test_the_browser_finds_its_libraries_and_fonts_in_its_own_folder() -> None:
    script = debian.chromium_wrapper(Path("/x/chromium"), [Path("/x/a"), Path("/x/b")])

    assert 'LD_LIBRARY_PATH="/x/a:/x/b"' in script
    assert 'exec "/x/chromium/usr/lib/chromium/chromium" "$@"' in script
    assert "<dir>/x/chromium/usr/share/fonts</dir>" in debian.fonts_configuration(
        Path("/x/chromium")
    )


def test_erlang_looks_for_its_home_beside_its_script(tmp_path: Path) -> None:
    script = tmp_path / "usr/lib/erlang/bin/erl"
    script.parent.mkdir(parents=True)
    script.write_text("    ROOTDIR=/usr/lib/erlang\nexec $ROOTDIR/erlexec\n")

    rabbitmq.make_movable(tmp_path)

    assert "ROOTDIR=/usr/lib/erlang" not in script.read_text()
    assert "readlink -f" in script.read_text()
