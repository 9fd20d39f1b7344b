"""Install a site as docs/tutorial/install.md says, then run the commands of the other pages."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import psycopg
import pytest
import trustme

from farmiq.lab import stack
from farmiq.plumbing.tls import Tls
from tests.browser import patience
from tests.support import pages, preloaded
from tests.support.engines import state_dir
from tests.support.pages import Block, Shell
from tests.support.ports import free_port

# One site for all pages; dozens of commands, each a process, beside it: to install it alone takes
# most of a minute, and several on a machine that others use.
pytestmark = [pytest.mark.xdist_group("documents"), pytest.mark.timeout(600)]

ENGINES = ("mqtt-edge", "mqtt-cloud", "postgres-edge", "postgres-cloud", "rabbitmq")
OF_THE_SERVICES = "of-the-services"
# What the pages say belongs into a site's settings beside its database.
BROKER = (
    "MQTT_URL",
    "BROKER_CALLOUT_URL",
    "BROKER_CALLOUT_KEY_FILE",
    "BROKER_NATS_URL",
    "BROKER_MONITOR_URL",
)
# What a person reads off the terminal for a later command.
READ = {
    "MQTT_USER": r"(?m)^user +(\S+)$",
    "MQTT_PASSWORD": r"(?m)^password +(\S+)$",
    "KEY": r"(?m)^(fiq_\S+)$",
    "--code": r"(?m)^([0-9A-Z]{5}(?:-[0-9A-Z]{5})+)$",
    "try it": r"(?m)^(mosquitto_pub .*)$",
}


@dataclass
class Operator:
    """Follows pages: fills files of settings, notes what commands print, starts what runs on."""

    shells: dict[str, Shell]
    # By place and file: what is to be filled in there.
    settings: dict[str, dict[str, dict[str, str]]]
    addresses: dict[str, str]
    trusting: Tls
    values: dict[str, str]
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def follow(self, page: str) -> None:
        """Run the blocks of a page in their order. README also prints what is not ours."""
        for block in pages.blocks(page):
            if block.language == "sh" and (page != "README.md" or "farmiq " in block.text):
                self.do(block)

    def do(self, block: Block) -> str:
        """Run a block where it belongs; what it printed."""
        where = "cloud" if "cloud" in block.words else "edge"
        for file, values in self.settings[where].items():
            fill(self.shells[where].folder / file, values)
        if "not-run" in block.words:
            return ""
        if "keeps-running" in block.words:
            self._start(where, block.filled(self.values))
            return ""
        return self.run(where, block.filled(self.values), block.place)

    def run(self, where: str, text: str, place: str = "") -> str:
        done = self.shells[where].run(text)
        said = f"{place}\n{text}\n{done.stdout}\n{done.stderr}\n{self._log(where)}"
        assert done.returncode == 0, said
        self.settings[where][f"{where}.env"] |= dict(
            re.findall(r'(?m)^(FARMIQ_\w+)="(.*)"$', done.stdout)
        )
        for name, pattern in READ.items():
            if found := re.search(pattern, done.stdout):
                self.values[name] = found[1]
        return done.stdout

    def edge(self, query: str) -> str | None:
        """The first value of the first row, as text."""
        url = self.settings["edge"]["admin.env"]["FARMIQ_EDGE_DB_ADMIN_URL"]
        with psycopg.connect(url) as connection:
            row = connection.execute(query.encode()).fetchone()
        return None if row is None else str(row[0])

    def _start(self, where: str, text: str) -> None:
        shell = self.shells[where]
        with (shell.folder / "run.log").open("wb") as log:
            self.running[where] = subprocess.Popen(
                shell.command(text),
                cwd=shell.folder,
                env=shell.settings(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        patience.until(partial(self._ready, where), f"{where} is ready", within_s=120)

    def _ready(self, where: str) -> bool:
        assert self.running[where].poll() is None, self._log(where)
        url = f"{self.addresses[where]}/readyz"
        try:
            answer = httpx2.get(url, verify=self.trusting.client(), timeout=20)
        except httpx2.HTTPError:
            return False
        return answer.status_code == 200

    def _log(self, where: str) -> str:
        log = self.shells[where].folder / "run.log"
        return log.read_text()[-2000:] if log.exists() else ""

    def stop(self) -> None:
        for process in self.running.values():
            os.killpg(process.pid, signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def fill(file: Path, values: dict[str, str]) -> None:
    """Write settings into a file of them, as an editor would; each has its line there."""
    if file.exists():
        text = file.read_text()
        for name, value in values.items():
            text, count = re.subn(rf'(?m)^#?{name}=".*"$', f'{name}="{value}"', text)
            assert count == 1, f"{file.name} has no {name}"
        file.write_text(text)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Two machines installed as docs/tutorial/install.md says; a first reading has arrived."""
    folder = tmp_path_factory.mktemp("i")
    with (
        preloaded.commands() as programs,
        stack.start(
            folder / "s", engines=ENGINES, downloads=state_dir() / "engines", shared_login=False
        ) as engines,
    ):
        operator = _operator(engines, folder, programs)
        try:
            operator.follow("docs/tutorial/install.md")
            _publish(operator)
            yield operator
        finally:
            operator.stop()


def test_site_made_by_the_documents_takes_readings_to_the_cloud(installed: Operator) -> None:
    delivered = "select count(*) from sync_outbox where status = 'acked'"
    patience.until(lambda: installed.edge(delivered) not in {None, "0"}, "the cloud has a reading")


@pytest.mark.parametrize("page", pages.FOLLOWED)
def test_commands_of_a_page_work_as_printed(installed: Operator, page: str) -> None:
    if page == "docs/operate/telemetry.md":
        installed.run("edge", "farmiq key add office")
    installed.follow(page)
    if page == "docs/integrate/plain-client.md":
        seeing, values = pages.block(page, "Seeing it"), ('"metric_value":23.5', "25.5")
        patience.until(
            lambda: all(value in installed.do(seeing) for value in values), "what was sent is shown"
        )


def _publish(operator: Operator) -> None:
    """The line that `device add` printed, one that speaks for another, one that is wrong."""
    line = operator.values["try it"]
    operator.run("edge", line)
    operator.run("edge", line.replace('"device_id":"silo-1"', '"device_id":"silo-2"'))
    operator.run("edge", line.replace('"value":21.5', '"value":"warm"'))
    for name, query in {
        "event_id": "select id from sync_outbox where event_type = 'telemetry.ingested'",
        "id": "select quarantine_id from quarantine where raw like '%warm%'",
    }.items():
        patience.until(lambda query=query: operator.edge(query) is not None, name)  # type: ignore[misc]
        operator.values[name] = str(operator.edge(query))


def _operator(engines: stack.Stack, folder: Path, programs: Path) -> Operator:
    given, trusting = engines.environment, _certificates(folder)
    ports = {"cloud": free_port(), "edge": free_port()}
    files: dict[str, dict[str, dict[str, str]]] = {}
    for where, port in ports.items():
        (folder / where).mkdir()
        site = f"FARMIQ_{where.upper()}"
        role = urlsplit(given[f"{site}_DB_URL"])
        login = f"{role.username}:{OF_THE_SERVICES}@{role.hostname}:{role.port}"
        ca = {"FARMIQ_TLS_CA_FILE": str(trusting.ca_file)}
        files[where] = {
            "admin.env": {f"{site}_DB_ADMIN_URL": given[f"{site}_DB_ADMIN_URL"], **ca},
            f"{where}.env": {
                f"{site}_DB_URL": role._replace(netloc=login).geturl(),
                f"{site}_HTTP_PORT": str(port),
                **{f"{site}_{name}": given[f"{site}_{name}"] for name in BROKER},
                **ca,
            },
        }
    files["cloud"]["admin.env"]["FARMIQ_RABBITMQ_API_URL"] = given["FARMIQ_RABBITMQ_API_URL"]
    files["cloud"]["cloud.env"]["FARMIQ_TLS_CERT_FILE"] = str(trusting.cert_file)
    files["cloud"]["cloud.env"]["FARMIQ_TLS_KEY_FILE"] = str(trusting.key_file)
    # The broker of this stack was told which key is to answer it: `device callout` finds it there.
    key = Path(given["FARMIQ_EDGE_BROKER_CALLOUT_KEY_FILE"]).read_text()
    (folder / "edge" / "callout.nk").write_text(key)
    files["edge"]["edge.env"]["FARMIQ_EDGE_BROKER_CALLOUT_KEY_FILE"] = "callout.nk"
    # README is followed at the top of the repository, where `make` has put the commands.
    (folder / "edge" / ".venv").symlink_to(sys.prefix)
    cloud, edge = f"https://127.0.0.1:{ports['cloud']}", f"http://127.0.0.1:{ports['edge']}"
    broker = urlsplit(given["FARMIQ_DEVICES_MQTT_URL"])
    typed = {"FARMIQ_STATE_DIR": "state", "FARMIQ_NEW_PASSWORD": "a long enough password"}
    return Operator(
        {where: Shell(folder / where, typed, programs) for where in ports},
        files,
        {"cloud": cloud, "edge": edge},
        trusting,
        {
            "PASSWORD": OF_THE_SERVICES,
            "--cloud": cloud,
            "FARMIQ_CLOUD_URL": cloud,
            "EDGE": edge,
            "BROKER": str(broker.hostname),
            "PORT": str(broker.port),
        },
    )


def _certificates(folder: Path) -> Tls:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    ca, cert, key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(ca)
    for index, part in enumerate(issued.cert_chain_pems):
        part.write_to_path(cert, append=index > 0)
    issued.private_key_pem.write_to_path(key)
    return Tls(ca, cert, key)
