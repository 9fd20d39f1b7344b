"""What an answer means for a picture: only a refusal of this picture counts against it (C-33)."""

import pytest

from farmiq.device import plan, uploading
from farmiq.device.uploading import Verdict
from farmiq.plumbing.retry import RetryPolicy


@pytest.mark.req("WV-30", "WV-31")
@pytest.mark.parametrize(
    ("status", "presign", "put"),
    [
        (200, "done", "done"),
        (201, "done", "done"),
        (204, "done", "done"),
        (400, "refused", "refused"),
        (401, "stranger", "refused"),
        (403, "stranger", "new_address"),
        (404, "stranger", "refused"),
        (408, "away", "away"),
        (412, "refused", "exists"),
        (413, "refused", "refused"),
        (422, "refused", "refused"),
        (429, "away", "away"),
        (500, "refused", "refused"),
        (502, "away", "away"),
        (503, "away", "away"),
        (504, "away", "away"),
    ],
)
def test_verdicts(status: int, presign: Verdict, put: Verdict) -> None:
    assert (uploading.of_presign(status), uploading.of_put(status)) == (presign, put)


@pytest.mark.req("WV-30")
def test_waits_grow_up_to_an_hour() -> None:
    policy = RetryPolicy(2, uploading.MAX_WAIT_S)
    waits = [policy.delay_s(attempts, chance=1) for attempts in range(14)]
    assert waits[:4] == [2, 4, 8, 16]
    assert waits == sorted(waits)
    assert max(waits) == 3600


def test_the_planner_says_what_does_not_fit_and_when_it_is_full() -> None:
    def made(sessions_per_hour: float) -> plan.Plan:
        return plan.plan(
            sessions_per_hour=sessions_per_hour, weights=2, pictures=1, picture_bytes=250_000,
            loose_per_hour=0, hours=72, events_limit=10_000, picture_limit=2 * 2**30,
        )  # fmt: skip

    assert made(20).fits
    assert not made(60).fits
    assert made(60).hours_that_fit == pytest.approx(33.3)
    assert made(60).events == 21_600
