"""The lines that `make test` prints of fault rounds."""

from tests.chaos.summary import fault_lines


def test_rounds_of_a_kind_are_folded_into_a_line() -> None:
    rounds = [
        {"kind": "kill b", "events": 10, "lost": 0, "twice": 0, "recovery_s": 1.0},
        {"kind": "kill a", "events": 5, "lost": 1, "twice": 2, "recovery_s": 0.5},
        {"kind": "kill b", "events": 20, "lost": 0, "twice": 0, "recovery_s": 2.55},
    ]
    lines = [" ".join(line.split()) for line in fault_lines(rounds)]
    assert lines == [
        "kill a rounds 1 events 5 lost 1 twice 2 slowest recovery 0.5 s",
        "kill b rounds 2 events 30 lost 0 twice 0 slowest recovery 2.5 s",
    ]
