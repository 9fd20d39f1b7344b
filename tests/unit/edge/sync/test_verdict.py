"""What an answer of the cloud means: a table of every status, and when to try again."""

import math
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge.sync import rules
from farmiq.edge.sync.rules import CloudResponse, Delivered, Permanent, Transient, Unavailable
from farmiq.plumbing import retry

OUTAGES = {401, 403, 404, 408, 429, 502, 503, 504}


OURS = {"error": {"code": "ANY", "message": "so it is", "traceId": "t"}}


def test_every_status_of_our_cloud_has_its_verdict() -> None:
    for status in range(100, 600):
        judged = rules.classify_response(CloudResponse(status, OURS), count=3)

        assert isinstance(judged, Unavailable | Transient)
        assert isinstance(judged, Unavailable) == (status in OUTAGES), status
        assert (judged.code, judged.message) == (f"HTTP_{status}", "so it is")


def test_only_a_202_that_says_accepted_is_delivered() -> None:
    yes: dict[str, Any] = {"accepted": True, "batchId": "b"}
    assert rules.classify_response(CloudResponse(202, yes), count=3) == Delivered()
    for answer in (
        CloudResponse(200, yes),
        CloudResponse(202),
        CloudResponse(202, {"accepted": "yes"}),
    ):
        assert isinstance(rules.classify_response(answer, count=3), Unavailable)


@pytest.mark.parametrize("body", [None, "<html>", {}, {"error": "x"}])
def test_an_answer_of_somebody_else_blames_no_event(body: Any) -> None:
    """A captive portal or a proxy in between; only "too large" means the same from anybody."""
    for status in range(100, 600):
        judged = rules.classify_response(CloudResponse(status, body), count=3)

        assert isinstance(judged, Transient if status == 413 else Unavailable), status


@pytest.mark.req("OB-22")
def test_error_codes_are_those_of_the_contract() -> None:
    away = rules.classify_response(CloudResponse(None, problem="connection refused"), count=1)
    broken = rules.classify_response(CloudResponse(500, {"error": {"message": "boom"}}), count=1)

    assert away == Unavailable("NETWORK_ERROR", "connection refused")
    assert broken == Transient("HTTP_500", "boom")
    assert set(rules.OUTAGE_CODES) == {
        "CLOUD_BROKEN",
        "NETWORK_ERROR",
        "NOT_OUR_CLOUD",
        "CLOUD_OLDER",
        *(f"HTTP_{one}" for one in OUTAGES),
    }


def test_an_outage_keeps_what_the_cloud_asked_for() -> None:
    answer = CloudResponse(503, {"error": {"message": "away"}}, retry_after_s=5.0)

    assert rules.classify_response(answer, count=1) == Unavailable("HTTP_503", "away", 5.0)


def bad_request(*details: Any) -> CloudResponse:
    return CloudResponse(400, {"error": {"message": "no", "details": list(details)}})


def test_blamed_positions_are_refused_with_their_reasons() -> None:
    answer = bad_request({"index": 0, "reason": "odd"}, {"index": 2})

    assert rules.classify_response(answer, count=3) == Permanent({0: "odd", 2: "refused"})


@pytest.mark.parametrize(
    "detail",
    [
        {"index": 3},
        {"index": -1},
        {"index": "0"},
        {"index": None},
        {"index": 1.0},
        {},
        "x",
        None,
        [],
    ],
)
def test_classify_400_with_an_unknown_position_rejects_no_event(detail: Any) -> None:
    assert rules.classify_response(bad_request(detail), count=3) == Transient("HTTP_400", "no")
    assert rules.classify_response(bad_request(detail, {"index": 1}), count=3) == Permanent(
        {1: "refused"}
    )


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": "VALIDATION_ERROR"}},
        {"error": {"details": {"index": 0}}},
        {"error": {"details": []}},
    ],
)
def test_classify_400_of_our_cloud_without_details_is_transient(body: Any) -> None:
    assert rules.classify_response(CloudResponse(400, body), count=3) == Transient("HTTP_400", "")


def test_blame_is_heard_only_with_a_400() -> None:
    body = {"error": {"message": "", "details": [{"index": 0}]}}

    assert rules.classify_response(CloudResponse(500, body), count=1) == Transient("HTTP_500", "")
    assert rules.classify_response(CloudResponse(413, body), count=1) == Transient("HTTP_413", "")


def test_a_message_is_cut() -> None:
    judged = rules.classify_response(
        CloudResponse(500, {"error": {"message": "x" * 9000}}), count=1
    )

    assert isinstance(judged, Transient)
    assert len(judged.message) == 500


def delay_ms(attempt: int, *, jitter_ms: float) -> float:
    policy = retry.documented(base_s=1.0, cap_s=300.0)
    return policy.delay_s(attempt, chance=jitter_ms / 1000) * 1000


@pytest.mark.req("OB-13")
@given(attempt=st.integers(0, 64), jitter_ms=st.floats(0, 1000))
def test_the_delay_is_the_formula_of_the_contract(attempt: int, jitter_ms: float) -> None:
    delay = delay_ms(attempt, jitter_ms=jitter_ms)

    assert delay == pytest.approx(min(2**attempt * 1000 + jitter_ms, 300_000))
    assert min(2**attempt * 1000, 300_000) <= delay <= min(2**attempt * 1000 + 1000, 300_000)


@pytest.mark.req("OB-13")
@pytest.mark.parametrize("jitter_ms", [0.0, 999.9, 1000.0])
def test_the_delay_grows_up_to_its_cap(jitter_ms: float) -> None:
    delays = [delay_ms(attempt, jitter_ms=jitter_ms) for attempt in range(65)]

    assert delays == sorted(delays)
    assert delays[0] == pytest.approx(1000 + jitter_ms)
    assert delays[8] == pytest.approx(256_000 + jitter_ms)
    assert set(delays[9:]) == {300_000}


def test_an_attempt_beyond_all_bounds_still_has_a_delay() -> None:
    assert delay_ms(10**6, jitter_ms=0.0) == 300_000


def tried(attempts: int, code: str | None) -> rules.Claimed:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return rules.Claimed(UUID(int=1), "t", 100, attempts, code, now, reclaimed=False)


def backoff(*, cap_s: float = 60.0, max_attempts: int = 10) -> rules.Backoff:
    return rules.Backoff(base_s=1.0, cap_s=cap_s, breaker_s=cap_s, max_attempts=max_attempts)


def after_outage(attempts: int, code: str | None, *, max_attempts: int = 10) -> rules.Failure:
    row, outage = tried(attempts, code), rules.Unavailable("HTTP_503", "busy")
    return backoff(max_attempts=max_attempts).after_outage(row, outage, chance=0.5)


@given(attempts=st.integers(0, 100), most=st.integers(1, 20))
def test_outage_never_uses_up_the_last_attempt(attempts: int, most: int) -> None:
    for code in (None, "HTTP_500", "NETWORK_ERROR"):
        failure = after_outage(attempts, code, max_attempts=most)
        assert failure.attempts < most
        assert failure.dlq_reason is None


def test_outage_of_an_event_that_failed_alone_changes_neither_code_nor_count() -> None:
    failure = after_outage(3, "ALONE_HTTP_504")

    assert (failure.attempts, failure.code) == (3, "ALONE_HTTP_504")


@given(attempts=st.integers(0, 100))
def test_failure_of_an_event_counts_from_the_last_outage(attempts: int) -> None:
    def failure(code: str | None) -> rules.Failure:
        return backoff().after_failure(tried(attempts, code), "HTTP_500", "x", chance=0.5)

    assert failure(None).attempts == failure("HTTP_500").attempts == attempts + 1
    assert {failure(code).attempts for code in rules.OUTAGE_CODES} == {1}
    assert (failure(None).dlq_reason == rules.MAX_ATTEMPTS) == (attempts >= 9)


def test_outage_counts_as_documented_until_then() -> None:
    counted = [after_outage(n, "HTTP_503").attempts for n in range(12)]

    assert counted == [1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9]


def pause_s(failures: int, asked: float | None = None, *, cap_s: float = 60.0) -> float:
    return backoff(cap_s=cap_s).pause_s(failures, rules.Unavailable("HTTP_503", "busy", asked))


@given(
    failures=st.integers(0, 10_000),
    cap_s=st.floats(0.1, 600),
    retry_after_s=st.none() | st.floats(0, 1e9),
)
def test_pause_has_an_end(failures: int, cap_s: float, retry_after_s: float | None) -> None:
    pause = pause_s(failures, retry_after_s, cap_s=cap_s)

    assert 0 < pause <= cap_s
    assert math.isfinite(pause)


def test_pause_grows_and_is_at_least_what_the_cloud_asked_for() -> None:
    assert [pause_s(n) for n in range(9)] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert pause_s(0, 5.0) == 5.0
    assert pause_s(6, 5.0) == 32.0
    assert pause_s(0, 3600.0) == 60.0
