"""Pure: English sentences made of a pattern and values, so that pages can show them translated.

The English text is what is stored, logged, sent and answered to programs. `farmiq/ui/sentences.py`
recognizes it by its pattern and says it in the language of a page. `tools/texts` finds the patterns
by the names of these functions: the pattern is always written out where it is used.
"""

from typing import Any


def worded(pattern: str, **values: Any) -> str:
    """A sentence: `worded("there is no lot %(lot)s", lot="'A7'")`; without values the pattern."""
    return pattern % values if values else pattern


def phrase(_name: str, pattern: str, **values: Any) -> str:
    """What stands for the value of this name in other patterns, and is translated there."""
    return pattern % values if values else pattern
