"""What a refused certificate is explained by."""

from farmiq.plumbing import tls


def test_errors_that_are_each_others_cause_end() -> None:
    """The library of the bus raises one error from several tasks: the chain may be a circle."""
    one, other = OSError("away"), OSError("closed")
    one.__context__, other.__context__ = other, one
    assert tls.advice(one) is None
