// This device is told of alerts: the browser's subscription becomes a contact of the person.

const form = document.getElementById("push-form");
const button = document.getElementById("push-button");
const says = document.getElementById("push-says");

function bytes(base64url) {
  const text = atob(base64url.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}

async function send(address, subscription) {
  form.elements.subscription.value = JSON.stringify(subscription);
  form.elements.label.value = navigator.userAgentData?.platform || navigator.platform || "";
  const body = new URLSearchParams(new FormData(form));
  const answer = await fetch(address, { method: "POST", body, redirect: "manual" });
  if (answer.type !== "opaqueredirect") throw new Error(`HTTP ${answer.status}`);
}

const removeAddress = () => form.action.replace("/device?", "/device/remove?");

async function start(registration) {
  if ((await Notification.requestPermission()) !== "granted") return form.dataset.denied;
  let subscription;
  try {
    const applicationServerKey = bytes(form.dataset.key);
    subscription = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey });
  } catch {
    return form.dataset.noService;
  }
  try {
    await send(form.action, subscription);
  } catch {
    await subscription.unsubscribe();
    return form.dataset.failed;
  }
  return form.dataset.done;
}

async function stop(subscription) {
  try {
    await send(removeAddress(), subscription);
    await subscription.unsubscribe();
  } catch {
    return form.dataset.failed;
  }
  return form.dataset.stopped;
}

async function show(registration) {
  const known = await registration.pushManager.getSubscription();
  button.textContent = known ? form.dataset.stop : form.dataset.start;
  button.disabled = false;
  return known;
}

async function run() {
  if (!("serviceWorker" in navigator) || !("PushManager" in window) || !("Notification" in window)) {
    says.textContent = form.dataset.noPush;
    return;
  }
  const registration = await navigator.serviceWorker.ready;
  let known = await show(registration);
  button.addEventListener("click", async () => {
    button.disabled = true;
    says.textContent = known ? await stop(known) : await start(registration);
    known = await show(registration);
  });
}

if (form) run();
