// Forms with data-offline are kept on this device when the link breaks and sent when it is back.
// Each carries an idempotency key that the server knows it by, so sending twice stores once.

const STORE = "farmiq.waiting";
const place = document.getElementById("waiting-forms");
const SEND_MS = 15_000;

const kept = () => {
  try {
    return JSON.parse(localStorage.getItem(STORE) ?? "[]");
  } catch {
    return [];
  }
};
const keep = (entries) => localStorage.setItem(STORE, JSON.stringify(entries));
const without = (key) => kept().filter((one) => one.key !== key);

// Whose entries these are: of a person at a company. Nobody sends what another wrote down.
const company = document.querySelector("main")?.dataset.company ?? "";
const person = place?.dataset.person ?? "";
const isOwn = (entry) => entry.company === company && (entry.person ?? person) === person;
// Not about the entry: sign in again, wait, or try later.
const mustWait = (status) => status === 401 || status === 403 || status === 429 || status >= 500;

// A page that the service worker kept has the key of an entry that may be stored already.
const newKey = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
for (const form of document.querySelectorAll("form[data-offline]")) form.elements.idempotency_key.value = newKey();

function show(text, actions = []) {
  place.replaceChildren(document.createTextNode(text), ...actions);
  place.hidden = !text;
}

function showWaiting() {
  const own = kept().filter(isOwn);
  const rejected = own.find((entry) => entry.reason);
  if (rejected) {
    const remove = document.createElement("button");
    remove.type = "button";
    remove.className = "quiet";
    remove.textContent = place.dataset.discard;
    remove.addEventListener("click", () => {
      keep(without(rejected.key));
      showWaiting();
    });
    return show(place.dataset.rejected.replace("{reason}", rejected.reason), [remove]);
  }
  if (!own.length) return show("");
  show(own.length === 1 ? place.dataset.one : place.dataset.many.replace("{count}", own.length));
}

async function send(entry) {
  const csrf = document.querySelector('input[name="csrf"]')?.value ?? "";
  return fetch(entry.action, {
    method: "POST",
    headers: { Accept: "application/json" },
    body: new URLSearchParams([...entry.fields.filter(([name]) => name !== "csrf"), ["csrf", csrf]]),
    signal: AbortSignal.timeout(SEND_MS),
  });
}

let sending = false;
async function sendAll() {
  if (sending || !navigator.onLine) return;
  sending = true;
  let arrived = 0;
  try {
    for (const entry of kept().filter((one) => isOwn(one) && !one.reason)) {
      const answer = await send(entry);
      if (mustWait(answer.status)) break;
      if (answer.ok) {
        arrived += 1;
        keep(without(entry.key));
      } else {
        const problem = await answer.json().catch(() => ({}));
        const reason = problem.error?.message ?? `HTTP ${answer.status}`;
        keep(kept().map((one) => (one.key === entry.key ? { ...one, reason } : one)));
      }
    }
  } catch {
    // The link is still broken: what waits goes on waiting.
  } finally {
    sending = false;
  }
  showWaiting();
  if (arrived && place.hidden) show(place.dataset.sent);
}

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-offline]");
  if (!form || event.defaultPrevented) return;
  event.preventDefault();
  // When it was written down, however late it is sent.
  if (form.elements.entered_at) form.elements.entered_at.value = new Date().toISOString();
  const fields = [...new FormData(form, event.submitter)];
  const key = form.elements.idempotency_key.value;
  const entry = { key, company, person, action: form.action, fields, at: new Date().toISOString() };
  // On the device first: a browser that dies while it sends has lost nothing.
  try {
    keep([...without(key), entry]);
  } catch {
    // The device stores nothing more: the answer, or the browser's own error, says what became of it.
    return form.submit();
  }
  try {
    const answer = await send(entry);
    if (answer.ok) {
      keep(without(key));
      const done = await answer.json();
      return location.assign(done.page ?? form.dataset.next ?? "/");
    }
    // It is sent after the sign-in, on this page or any other.
    if (answer.status === 401) return location.assign(`/sign-in?${new URLSearchParams({ next: location.pathname + location.search })}`);
    if (!mustWait(answer.status)) {
      keep(without(key));
      // The page of the answer says best what is wrong.
      return form.submit();
    }
  } catch {
    // The link is broken.
  }
  form.reset();
  form.elements.idempotency_key.value = newKey();
  showWaiting();
  show(`${place.dataset.kept} ${place.textContent}`);
});

addEventListener("online", sendAll);
setInterval(sendAll, 30_000);
showWaiting();
sendAll();

if ("serviceWorker" in navigator) navigator.serviceWorker.register("/service-worker.js").catch(() => {});
