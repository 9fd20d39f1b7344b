// A page kept live: the server says "changed", we fetch the same part of it again and change only
// what differs. Ages grow here every second; every other word comes from the server.

const SILENCE_MS = 25_000;
const FETCH_MS = 10_000;
const HIDDEN_MS = 60_000;
const METERED_MS = 10_000;

// This page stays with its company, also when the sign-in switches to another in another tab.
const company = `company=${document.querySelector("main").dataset.company}`;
// The part that is kept live says itself where it comes from and what it is about.
const shown = document.querySelector("[data-fragment]");
const withCompany = (address) => `${address}${address.includes("?") ? "&" : "?"}${company}`;
const pill = document.getElementById("pill");
const says = document.getElementById("pill-says");


// What we know, and what follows from it.
let begun = false;
let paused = false;
let hearing = false;
let fetched = true;
const standing = () => (paused ? "paused" : hearing && fetched ? "live" : "reconnecting");

function show() {
  if (!begun) return;
  const now = standing();
  const count = now === "reconnecting" ? `(?) ${shown.dataset.page}` : shown.dataset.title;
  if (document.title !== count) document.title = count;
  if (document.body.dataset.live === now) return;
  document.body.dataset.live = now;
  pill.hidden = false;
  pill.title = now === "paused" ? pill.dataset.resume : pill.dataset.pause;
  document.getElementById("pill-word").textContent = pill.dataset[now];
  says.textContent = pill.dataset[now];
}

// --- ages, in the words of words.py

const text = document.body.dataset;
const fill = (pattern, value) => pattern.replace("#", value);

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return fill(text.ageS, whole);
  if (whole < 3600) return fill(text.ageMin, Math.floor(whole / 60));
  if (whole < 172800) return fill(text.ageH, Math.floor(whole / 3600));
  return fill(text.ageDays, Math.floor(whole / 86400));
}

export function ago(seconds) {
  if (seconds < 1) return text.ageNow;
  if (seconds >= 172800) return fill(text.ageDaysAgo, Math.floor(seconds / 86400));
  return fill(text.ageAgo, duration(seconds));
}

// The browser's clock may be wrong, so ages are counted on the server's.
let lastTurn = null;
// A page that the service worker kept is as old as it is: there the browser's clock must do.
let aheadMs = document.body.dataset.kept ? 0 : Date.now() - Date.parse(shown.dataset.now);

function tick() {
  const now = Date.now() - aheadMs;
  for (const time of shown.querySelectorAll("time.ago")) {
    const words = ago((now - Date.parse(time.dateTime)) / 1000);
    if (time.textContent !== words) time.textContent = words;
  }
  // Some things turn by themselves: the page says when, and is fetched once for each such moment.
  const turnsAt = shown.dataset.turnsAt;
  if (turnsAt && turnsAt !== lastTurn && now > Date.parse(turnsAt)) {
    lastTurn = turnsAt;
    refresh();
  }
  if (hearing && performance.now() - heardAt > SILENCE_MS) lose();
}

// --- fetch again, at most one at a time, and slower where it takes long

let fetching = false;
let wanted = false;
let pressed = false;

async function refresh() {
  wanted = true;
  if (fetching || pressed || paused) return;
  wanted = false;
  fetching = true;
  const asked = Date.now();
  try {
    const answer = await fetch(withCompany(shown.dataset.fragment), { signal: AbortSignal.timeout(FETCH_MS) });
    // Signed out, or a page that was kept while there was no link.
    if (answer.status === 401 || (answer.ok && document.body.dataset.kept)) return location.reload();
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const html = await answer.text();
    fetched = true;
    // Paused meanwhile: the page stays as it is.
    if (paused) wanted = true;
    else swap(html, asked);
  } catch {
    fetched = false;
    wanted = true;
  }
  show();
  const took = Date.now() - asked;
  // Whoever pays for each megabyte has asked the browser to save them.
  const least = navigator.connection?.saveData ? METERED_MS : 500;
  setTimeout(rest, Math.max(fetched ? least : 2000, 4 * took));
}

function rest() {
  fetching = false;
  if (wanted) refresh();
}

function swap(html, asked) {
  const page = new DOMParser().parseFromString(html, "text/html");
  const fresh = page.getElementById(shown.id);
  aheadMs = (asked + Date.now()) / 2 - Date.parse(fresh.dataset.now);
  staying(() => patch(shown, document.adoptNode(fresh)));
  document.dispatchEvent(new Event("refreshed"));
  tick();
}

// --- what is under the finger or has the focus stays where it is

let pointed = null;

function staying(change) {
  const focus = document.activeElement?.closest("[data-fragment] [id]");
  const anchor = focus ?? (pointed?.isConnected ? pointed : null);
  const before = anchor?.getBoundingClientRect().top;
  change();
  const moved = anchor?.isConnected ? anchor.getBoundingClientRect().top - before : 0;
  if (moved) scrollBy({ top: moved, behavior: "instant" });
}

shown.addEventListener("pointerover", (event) => {
  pointed = event.target.closest("tr[id], li[id]");
});
shown.addEventListener("pointerleave", () => {
  pointed = null;
});
shown.addEventListener("pointerdown", () => {
  pressed = true;
});
for (const end of ["pointerup", "pointercancel", "blur"]) {
  window.addEventListener(end, () => {
    if (!pressed) return;
    pressed = false;
    if (wanted) refresh();
  });
}

// --- change only what differs

function patch(old, fresh) {
  if (old.isEqualNode(fresh) || old.classList?.contains("plot")) return;
  if (old.nodeType === Node.TEXT_NODE) {
    old.data = fresh.data;
    return;
  }
  // Whoever opened or closed something keeps it so.
  const own = (name) => name === "open" && old.nodeName === "DETAILS";
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !own(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (!own(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  patchChildren(old, fresh);
}

function patchChildren(old, fresh) {
  const named = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  let here = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const found = child.id ? named.get(child.id) : here;
    if (!found || !alike(found, child)) {
      old.insertBefore(child, here);
      continue;
    }
    if (found === here) here = here.nextSibling;
    else old.insertBefore(found, here);
    patch(found, child);
  }
  while (here) {
    const next = here.nextSibling;
    here.remove();
    here = next;
  }
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && (one.id ?? "") === (other.id ?? "");
}

// --- forms whose effect this very page shows: sent without leaving it

shown.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-stay]");
  if (!form || paused) return;
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    const answer = await fetch(form.action, {
      method: "POST",
      body: new URLSearchParams(new FormData(form)),
      redirect: "manual",
      signal: AbortSignal.timeout(FETCH_MS),
    });
    // Done is told by a redirect; whatever else it is, the page of the answer says it best.
    if (answer.type !== "opaqueredirect") return form.submit();
    refresh();
  } catch {
    fetched = false;
    show();
  } finally {
    button.disabled = false;
  }
});

// --- the stream

let source = null;
let heardAt = performance.now();
let failures = 0;
let reopening = 0;

function open() {
  clearTimeout(reopening);
  source?.close();
  source = new EventSource(withCompany(`/live?about=${shown.dataset.about}`));
  source.addEventListener("changed", () => hear(refresh));
  source.addEventListener("beat", () => hear());
  source.addEventListener("deaf", () => {
    begun = true;
    heardAt = performance.now();
    hearing = false;
    show();
  });
  source.addEventListener("error", lose);
}

function hear(then) {
  begun = true;
  heardAt = performance.now();
  hearing = true;
  failures = 0;
  show();
  then?.();
}

function lose() {
  begun = true;
  source?.close();
  clearTimeout(reopening);
  hearing = false;
  show();
  if (paused || document.hidden) return;
  failures += 1;
  const wait = Math.min(10_000, 500 * 2 ** Math.min(failures, 5)) * (0.5 + Math.random() / 2);
  reopening = setTimeout(open, wait);
  refresh();
}

function rely() {
  if (paused || document.hidden) {
    clearTimeout(reopening);
    source?.close();
  } else {
    heardAt = performance.now();
    open();
  }
  show();
}

pill.addEventListener("click", () => {
  begun = true;
  paused = !paused;
  rely();
});

// A browser opens few connections to one server: pages nobody sees give theirs back and ask
// once a minute instead, so that their title stays true.
document.addEventListener("visibilitychange", rely);
setInterval(() => {
  if (document.hidden) refresh();
}, HIDDEN_MS);
window.addEventListener("pageshow", (event) => {
  if (event.persisted) rely();
});
// Leaving closes the stream, which is no failure to report.
window.addEventListener("pagehide", () => source?.close());

document.getElementById("not-live").remove();
setInterval(tick, 1000);
tick();
rely();
// The page itself is new; only when the stream does not open soon is there something to say.
setTimeout(() => {
  begun = true;
  show();
}, 3000);
