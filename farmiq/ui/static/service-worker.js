// Shows the last known state, with its age, when the server cannot be reached.
// Pages and files are kept as they were fetched last; nothing else is cached.

const PAGES = "farmiq-pages-1";
const FILES = "farmiq-files-1";
const MAX_PAGES = 40;
// Pages with secrets of a person, and files to download, are never kept.
const SECRET = /^\/(sign-in|settings\/account)|\.pdf$/;

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== location.origin) return;
  if (url.pathname.startsWith("/static/")) event.respondWith(file(request));
  else if (request.mode === "navigate" && !SECRET.test(url.pathname)) event.respondWith(page(request));
});

async function file(request) {
  const cache = await caches.open(FILES);
  const found = await cache.match(request);
  if (found) return found;
  const answer = await fetch(request);
  if (answer.ok) cache.put(request, answer.clone());
  return answer;
}

async function page(request) {
  const cache = await caches.open(PAGES);
  try {
    const answer = await fetch(request);
    if (answer.ok && !answer.redirected && answer.headers.get("Content-Type")?.startsWith("text/html")) {
      await cache.put(request, answer.clone());
      const keys = await cache.keys();
      await Promise.all(keys.slice(0, Math.max(0, keys.length - MAX_PAGES)).map((key) => cache.delete(key)));
    }
    return answer;
  } catch (error) {
    const last = await cache.match(request);
    if (!last) throw error;
    return marked(last);
  }
}

// Says that this page is old, and how old: the text is the server's own, with the page.
async function marked(answer) {
  const html = await answer.text();
  const headers = new Headers(answer.headers);
  return new Response(html.replace("<body", '<body data-kept="true"'), { status: 200, headers });
}

// Whoever signs out takes the kept pages along.
self.addEventListener("message", (event) => {
  if (event.data === "forget") event.waitUntil(caches.delete(PAGES));
});

// --- alerts, also when no page is open

self.addEventListener("push", (event) => {
  let alert = {};
  try {
    alert = event.data?.json() ?? {};
  } catch {
    alert = { body: event.data?.text() };
  }
  const options = {
    body: String(alert.body ?? ""),
    // A later word about the same episode takes the place of the one before.
    tag: String(alert.episode_id ?? alert.message_id ?? "farmiq"),
    renotify: true,
    requireInteraction: alert.severity === "critical" || alert.severity === "security",
    data: { page: String(alert.page ?? "/alerts") },
  };
  event.waitUntil(self.registration.showNotification(String(alert.title ?? "FarmIQ"), options));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(openPage(event.notification.data?.page));
});

async function openPage(page) {
  // Only pages of our own: the message came over somebody else's service.
  const url = new URL(page ?? "/alerts", location.origin);
  const address = url.origin === location.origin ? url.href : `${location.origin}/alerts`;
  const windows = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const open = windows.find((client) => client.url === address) ?? windows[0];
  if (!open) return self.clients.openWindow(address);
  await open.focus();
  return open.url === address ? open : open.navigate(address);
}
