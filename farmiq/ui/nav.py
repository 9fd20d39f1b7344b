"""An entry of the way to the pages: of the bar on a wide screen and the tabs of a phone."""

from dataclasses import dataclass, replace

from farmiq.ui.i18n import gettext as _


@dataclass(frozen=True, slots=True)
class Entry:
    """`on_phone`: one of the tabs at the bottom; the others are behind More."""

    key: str
    name: str
    address: str
    icon: str
    on_phone: bool = False

    def translated(self) -> "Entry":
        """In the language of the page."""
        return replace(self, name=_(self.name))
