"""Many people look at live pages of one process: each hears of a change, and of the end."""

import http.client
from contextlib import ExitStack
from datetime import timedelta

from farmiq.cloud.identity import accounts
from tests.browser import barns
from tests.browser.served import Served
from tests.conftest import Database
from tests.support import databases

SIGN_INS, EACH = 30, 10


def heard(answer: http.client.HTTPResponse, event: bytes) -> None:
    """Read on until the stream says this; the socket's own deadline ends the wait."""
    while (line := answer.readline()) != b"event: " + event + b"\n":
        assert line, "the stream has ended"


def test_three_hundred_viewers_hear_of_a_change_and_all_streams_end_with_the_server(
    cloud_db: Database,
) -> None:
    barns.add_company(cloud_db.admin_url)
    barns.report(cloud_db.url, barns.TEMPERATURE)
    with databases.connected(cloud_db.admin_url) as connection:
        tokens = [
            accounts.open_sign_in(connection, barns.EMAIL, lasts=timedelta(hours=1))
            for _ in range(SIGN_INS)
        ]
    served = Served(cloud_db.url)
    served.start()
    with ExitStack() as opened:
        opened.callback(served.stop)
        answers = []
        for token in tokens * EACH:
            viewer = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
            opened.callback(viewer.close)
            viewer.request("GET", "/live", headers={"Cookie": f"farmiq_sign_in={token}"})
            answer = viewer.getresponse()
            assert answer.status == http.HTTPStatus.OK
            answers.append(answer)
        for answer in answers:
            heard(answer, b"changed")  # the first word of each stream
        barns.report_now(cloud_db.url, barns.TEMPERATURE, 17.5)
        for answer in answers:
            heard(answer, b"changed")
        served.stop()
        # The rest up to the end: http.client raises for a stream that is cut off.
        assert not any(answer.read().endswith(b"changed\n") for answer in answers)
