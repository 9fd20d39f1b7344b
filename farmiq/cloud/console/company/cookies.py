"""The cookies of a sign-in: no script reads them, no other site sends them with a form."""

from dataclasses import dataclass

from fastapi import Response

from farmiq.cloud.identity import sign_in
from farmiq.ui import i18n, look

# Proves that a browser has signed in before; it gives no access.
BROWSER = "farmiq_browser"
BROWSER_LASTS_S = 180 * 24 * 3600
LANGUAGE_LASTS_S = 400 * 24 * 3600


@dataclass(frozen=True)
class Cookies:
    is_secure: bool
    sign_in_lasts_s: int

    def set(self, answer: Response, name: str, value: str, *, path: str, lasts_s: int) -> None:
        look.set_cookie(answer, name, value, path=path, lasts_s=lasts_s, is_secure=self.is_secure)

    def open(self, answer: Response, opened: sign_in.Opened) -> None:
        """The new sign-in of this browser, in place of the one that it had."""
        self.set(answer, sign_in.COOKIE, opened.token, path="/", lasts_s=self.sign_in_lasts_s)
        self.set(answer, BROWSER, opened.browser, path="/sign-in", lasts_s=BROWSER_LASTS_S)

    def language(self, answer: Response, wanted: str) -> None:
        """Pages are in this language before anybody signs in."""
        self.set(answer, i18n.COOKIE, wanted, path="/", lasts_s=LANGUAGE_LASTS_S)
