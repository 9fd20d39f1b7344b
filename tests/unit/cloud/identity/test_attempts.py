from farmiq.cloud.identity.attempts import Attempts


def test_five_tries_then_a_wait_that_ends() -> None:
    attempts = Attempts()
    assert [attempts.begin("a", float(second)) for second in range(5)] == [None] * 5
    assert attempts.begin("a", 5.0) == 895
    assert attempts.begin("a", 899.5) == 1
    assert attempts.begin("a", 900.0) is None
    assert attempts.begin("a", 900.5) == 1


def test_refused_tries_do_not_prolong_the_wait() -> None:
    attempts = Attempts(most=1, window_s=10)
    attempts.begin("a", 0)
    for second in range(1, 10):
        assert attempts.begin("a", second) == 10 - second
    assert attempts.begin("a", 10) is None


def test_names_do_not_disturb_each_other_and_success_forgets() -> None:
    attempts = Attempts(most=1)
    attempts.begin("a", 0)
    assert attempts.begin("b", 0) is None
    attempts.forget("a")
    assert attempts.begin("a", 0) is None
    attempts.forget("never seen")


def test_memory_is_bounded_and_the_longest_unused_goes_first() -> None:
    attempts = Attempts(most=1, names=2)
    for name in ("a", "b", "a", "c"):
        attempts.begin(name, 0)
    assert attempts.begin("a", 1) is not None
    assert attempts.begin("b", 1) is None
