"""The language of a page: chosen per request, texts from gettext catalogues, English without one.

A catalogue is `languages/<language>/messages.po`; it is read at the first use and stays in memory.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from gettext import GNUTranslations, NullTranslations
from io import BytesIO
from pathlib import Path

from babel.core import negotiate_locale
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

FOLDER = Path(__file__).parent / "languages"
# The languages that ship, by their own names.
LANGUAGES = {"en": "English", "de": "Deutsch"}
_LOCALES = {"en": "en_GB"}
COOKIE = "farmiq_language"
# A header longer than this is not a list of languages.
_MAX_HEADER_CHARS = 200

_language: ContextVar[str] = ContextVar("language", default="en")


def language() -> str:
    """The language of this request."""
    return _language.get()


def locale() -> str:
    """Babel's name of it, for dates and numbers; English dates are "18 Nov", as in the barn."""
    return _LOCALES.get(_language.get(), _language.get())


@contextmanager
def use(wanted: str) -> Iterator[None]:
    """Everything inside speaks this language; one that does not ship is English."""
    token = _language.set(wanted if wanted in LANGUAGES else "en")
    try:
        yield
    finally:
        _language.reset(token)


def preferred(*, chosen: str, accepted: str) -> str:
    """The choice of a person, else what their browser accepts (Accept-Language), else English."""
    if chosen in LANGUAGES:
        return chosen
    parts = accepted[:_MAX_HEADER_CHARS].split(",")
    wanted = [part.partition(";")[0].strip().replace("-", "_") for part in parts]
    return negotiate_locale(wanted, list(LANGUAGES)) or "en"


def gettext(message: str) -> str:
    return _catalogue(_language.get()).gettext(message)


def ngettext(singular: str, plural: str, count: int) -> str:
    return _catalogue(_language.get()).ngettext(singular, plural, count)


def marked(message: str) -> str:
    """A text of the catalogue that is translated later, where it is shown."""
    return message


@functools.cache
def _catalogue(wanted: str) -> NullTranslations:
    file = FOLDER / wanted / "messages.po"
    if not file.exists():
        return NullTranslations()
    compiled = BytesIO()
    with file.open("rb") as text:
        write_mo(compiled, read_po(text, locale=wanted))
    compiled.seek(0)
    return GNUTranslations(compiled)
