"""One visit of a page, and everything that is looked at during it.

A page is loaded once, on a wide screen; what its live stream says first comes when the test has
changed something. Then: figures against SQL, digits outside of figures, layout shifts, what it
loads, errors, requests to others; on each screen and theme axe, sideways scrolling and a picture.
What is wrong is collected, so that one run tells all of it.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from playwright.sync_api import BrowserContext

from tests.browser import look
from tests.browser.look import PHONE, WIDE
from tests.browser.pages.recount import Recount
from tests.browser.served import Served

MAX_SHIFT = 0.1
MAX_SCRIPT_BYTES, MAX_STYLE_BYTES = 60_000, 20_000

# Layout shifts are summed from the first paint on. The stream opens when the test says so: the
# page then hears "changed" first and fetches what the test has changed.
WATCHED = """
window.seen = { shift: 0, moved: [], refreshed: 0 };
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) {
    seen.shift += entry.value;
    seen.moved.push(...entry.sources.map((s) => s.node?.className ?? s.node?.nodeName));
  }
}).observe({ type: "layout-shift", buffered: true });
document.addEventListener("refreshed", () => { seen.refreshed += 1; });
const Real = EventSource;
window.EventSource = class extends EventTarget {
  constructor(url) {
    super();
    window.openStream = () => {
      this.real = new Real(url);
      for (const kind of ["changed", "beat", "deaf", "error"])
        this.real.addEventListener(kind, () => this.dispatchEvent(new Event(kind)));
    };
  }
  close() { this.real?.close(); }
};
"""
# A page without a live part has nothing to wait for.
OPEN_STREAM = "() => window.openStream?.()"
REFRESHED = "() => !window.openStream || seen.refreshed > 0"
# Figures, and digits outside of figures, times, ids, texts of people, and words to choose from.
FOUND = """() => {
  const stray = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const kept = "[data-value], time, code, .text, .copy, .plot, title, .secret, .qr, " +
    "select, label, button, .tabs, .hint, .wrong-text";
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (/[0-9]/.test(node.data) && !node.parentElement.closest(kept)) stray.push(node.data.trim());
  }
  const loaded = performance.getEntriesByType("resource");
  const bytes = (tail) => loaded.filter((entry) => entry.name.endsWith(tail))
    .reduce((sum, entry) => sum + entry.encodedBodySize, 0);
  return {
    stray, shift: seen.shift, moved: [...new Set(seen.moved)].slice(0, 8),
    script: bytes(".js"), style: bytes(".css"),
    figures: [...document.querySelectorAll("[data-value]")].filter((e) => e.dataset.value !== "")
      .map((e) => [e.dataset.name ?? "", e.dataset.key ?? "", e.dataset.value]),
  };
}"""


class Visitor:
    """Somebody who is signed in and goes from page to page."""

    def __init__(self, context: BrowserContext, served: Served, *, pictures: bool) -> None:
        context.add_init_script(WATCHED)
        self.page = context.new_page()
        self.wrong: list[str] = []
        self._served, self._pictures = served, pictures
        self._said: list[str] = []
        self._looks: list[int] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self._said.append(str(error)))
        self.page.on("request", self._asks)

    def _hear(self, said: Any) -> None:
        if said.type == "error":
            self._said.append(said.text)

    def _asks(self, request: Any) -> None:
        if not request.url.startswith((f"{self._served.url}/", "data:", "blob:")):
            self._said.append(f"asked another host: {request.url}")

    def see(
        self,
        address: str,
        name: str,
        *,
        recount: Recount,
        change: Callable[[], None] | None = None,
    ) -> None:
        """All of it for the page at this address; `name` is that of its pictures."""
        found = self._open(address, width=WIDE, change=change)
        self.wrong += [f"{address} {problem}" for problem in self._judged(found)]
        self.wrong += [
            f"{address} {problem}" for problem in recount.wrong(found["figures"], address)
        ]
        self.wrong += [
            f"{address} {problem}"
            for problem in look.problems(
                self.page, name, known=self._looks, pictures=self._pictures
            )
        ]
        self._forget(address)

    def glance(self, address: str) -> None:
        """On a phone, what text of others could break: its script runs, something is too wide."""
        found = self._open(address, width=PHONE)
        self.wrong += [f"{address} {problem}" for problem in _shifts(found)]
        for width in (PHONE, WIDE):
            self.page.set_viewport_size({"width": width, "height": 800})
            self.wrong += [f"{address} {problem}" for problem in look.too_wide(self.page)]
        if self.page.evaluate("window.evil") is not None:
            self.wrong.append(f"{address} ran a script of stored text")
        self._forget(address)

    def check(self) -> None:
        assert not self.wrong, f"{len(self.wrong)} problems:\n" + "\n".join(self.wrong)

    def _open(self, address: str, *, width: int, change: Callable[[], None] | None = None) -> Any:
        # A screen that is changed while a page loads would count as a shift of that page.
        self.page.goto("about:blank")
        self.page.set_viewport_size({"width": width, "height": 800})
        self.page.emulate_media(color_scheme="light")
        answer = self.page.goto(f"{self._served.url}{address}")
        if answer is None or answer.status != HTTPStatus.OK:
            self.wrong.append(f"{address} answers {answer and answer.status}")
        if change:
            change()
        self.page.evaluate(OPEN_STREAM)
        self.page.wait_for_function(REFRESHED)
        return self.page.evaluate(FOUND)

    def _judged(self, found: Any) -> list[str]:
        problems = [f"has digits outside of figures: {text!r}" for text in found["stray"]]
        problems += _shifts(found)
        if found["script"] > MAX_SCRIPT_BYTES or found["style"] > MAX_STYLE_BYTES:
            problems.append(f"loads {found['script']} B of scripts, {found['style']} B of styles")
        return problems

    def _forget(self, address: str) -> None:
        """What the browser complained about."""
        self.wrong += [f"{address} says: {said}" for said in self._said]
        self._said.clear()


def _shifts(found: Any) -> list[str]:
    if found["shift"] <= MAX_SHIFT:
        return []
    return [f"shifts by {found['shift']:.3f}: {found['moved']}"]
