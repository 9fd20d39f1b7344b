"""New ids: version 7, each later one behind the earlier."""

from farmiq.plumbing import ids


def test_new_ids_are_version_7_unique_and_in_order() -> None:
    made = [ids.new() for _ in range(2000)]

    assert {one.version for one in made} == {7}
    assert len(set(made)) == len(made)
    assert made == sorted(made)
