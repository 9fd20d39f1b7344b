"""Names in farmiq/ use the words of the glossary."""

import pytest

from tests.house import retired


def test_no_retired_word_is_a_name() -> None:
    assert retired.count() == {}, "use the words of docs/develop/glossary.md"


def test_glossary_has_every_concept_with_its_retired_words() -> None:
    text = retired.GLOSSARY.read_text(encoding="utf-8")

    assert {"door", "told", "keep_in_halves", "Letter", "=each"} <= retired.words(text)
    assert sum(line.startswith("| ") for line in text.splitlines()) > 60


@pytest.mark.parametrize(
    ("name", "is_class", "expected"),
    [
        ("door", False, {"door"}),
        ("_OPEN_DOOR", False, {"door"}),
        ("DoorTest", True, {"door"}),
        ("indoor", False, set()),
        ("set_door_aside", False, {"door"}),
        ("hand_back_rows", False, {"hand_back"}),
        ("back_hand", False, set()),
        ("Letter", True, {"Letter"}),
        ("DeadLetter", True, set()),
        ("letter", False, set()),
        ("each", False, {"=each"}),
        ("each_row", False, set()),
    ],
)
def test_name_is_matched_by_whole_words(
    name: str,
    is_class: bool,  # noqa: FBT001
    expected: set[str],
) -> None:
    known = {"door", "hand_back", "Letter", "=each"}

    assert retired.matches(name, is_class=is_class, retired=known) == expected


def test_every_kind_of_name_is_read() -> None:
    source = """
import a as door_1
DOOR_2 = 1
class Door3:
    door_4: int
    def door_5(self, door_6, *, door_7=1):
        self.door_8 = 1
        for door_9 in (): pass
        with a as door_10: pass
        try: pass
        except ValueError as door_11: pass
        match a:
            case [*door_12]: pass
            case {"k": door_13}: pass
"""
    found = [name for name, _ in retired.names(source, "door_0") if "door" in name.lower()]

    assert len(found) == 14
