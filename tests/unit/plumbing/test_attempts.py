import pytest

from farmiq.plumbing import attempts
from farmiq.plumbing.attempts import Attempts, Bound

A, B = [Bound("a", 1, window_s=10)], [Bound("b", 1, window_s=10)]


def test_five_tries_of_a_network_then_a_wait_that_ends() -> None:
    tries = Attempts()
    bounds = attempts.bounds_of_network("anna@example.com", "192.0.2.0/24")
    assert [tries.begin(bounds, float(second)) for second in range(5)] == [None] * 5
    assert tries.begin(bounds, 5.0) == 895
    assert tries.begin(bounds, 899.5) == 1
    assert tries.begin(bounds, 900.0) is None
    assert tries.begin(bounds, 900.5) == 1


def test_tries_of_strangers_do_not_count_for_another_network_or_a_known_browser() -> None:
    tries = Attempts()
    for network in range(100):
        for _ in range(6):
            tries.begin(attempts.bounds_of_network("anna@example.com", f"network {network}"), 0)

    assert tries.begin(attempts.bounds_of_browser("hers"), 0) is None
    assert tries.begin(attempts.bounds_of_network("anna@example.com", "her network"), 0) is None


def test_network_that_tries_many_accounts_is_slowed_down() -> None:
    tries = Attempts()
    outcomes = [
        tries.begin(attempts.bounds_of_network(f"{number}@example.com", "network"), 0)
        for number in range(100)
    ]
    assert outcomes.count(None) == 60
    assert outcomes[-1] == 900


def test_guesses_from_thousands_of_networks_are_bounded_per_account() -> None:
    tries = Attempts()
    outcomes = [
        tries.begin(attempts.bounds_of_network("anna@example.com", f"network {number}"), 0)
        for number in range(1100)
    ]
    assert outcomes.count(None) == 1000


def test_refused_tries_do_not_prolong_the_wait() -> None:
    tries = Attempts()
    tries.begin(A, 0)
    for second in range(1, 10):
        assert tries.begin(A, second) == 10 - second
    assert tries.begin(A, 10) is None


def test_try_refused_by_one_bound_counts_for_none() -> None:
    tries = Attempts()
    tries.begin(A, 0)
    assert tries.begin([*A, *B], 1) == 9
    assert tries.begin(B, 1) is None


def test_success_forgives_what_it_makes_up_for_and_withdraws_itself_elsewhere() -> None:
    tries = Attempts()
    own, shared = Bound("own", 3), Bound("shared", 3, forgiven=False)
    for second in (0, 1, 2):
        assert tries.begin([own, shared], second) is None
    tries.succeed([own, shared], 2)

    assert tries.begin([own], 3) is None
    assert tries.begin([shared], 3) is None
    assert tries.begin([shared], 3) is not None


def test_withdrawn_try_does_not_count() -> None:
    tries = Attempts()
    tries.begin(A, 0)
    tries.withdraw(A, 0)
    assert tries.begin(A, 0) is None
    tries.withdraw(B, 0)


def test_memory_is_bounded_and_the_longest_unused_goes_first() -> None:
    tries = Attempts(max_keys=2)
    for bound in (A, B, [Bound("c", 1)]):
        tries.begin(bound, 0)
    assert tries.begin(B, 1) is not None
    assert tries.begin(A, 1) is None


@pytest.mark.parametrize("network", ["192.0.2.0/24", ""])
def test_account_and_network_names_do_not_mix(network: str) -> None:
    keys = {bound.key for bound in attempts.bounds_of_network("x", network)}
    assert len(keys) == 3
