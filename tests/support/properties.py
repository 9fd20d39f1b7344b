"""How many examples a property sees: all of them in `make test-long`, fewer in `make test`."""

from hypothesis import settings

EXPLORING, REPEATABLE = "exploring", "repeatable"
USUAL = 100
LEAST = 5


def some(count: int) -> int:
    """Of those that are the same in every run."""
    return max(LEAST, 2 * count // 5)


def drawn(count: int) -> settings:
    """So many examples if they are drawn anew, else some."""
    repeatable = settings.get_current_profile_name() == REPEATABLE
    return settings(max_examples=some(count) if repeatable else count)
