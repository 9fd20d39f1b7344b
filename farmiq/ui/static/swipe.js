// A finger that moves a picture aside steps to what stands beside it, as the arrow keys do.

const FAR_PX = 56;
let from = null;

for (const stage of document.querySelectorAll("[data-swipe]")) {
  stage.addEventListener("pointerdown", (event) => {
    from = event.pointerType === "touch" && event.isPrimary ? { x: event.clientX, y: event.clientY } : null;
  });
  stage.addEventListener("pointercancel", () => (from = null));
  stage.addEventListener("pointerup", (event) => {
    if (!from) return;
    const moved = event.clientX - from.x;
    const steep = Math.abs(event.clientY - from.y) > Math.abs(moved) / 2;
    from = null;
    if (Math.abs(moved) < FAR_PX || steep) return;
    document.querySelector(`a[rel="${moved < 0 ? "next" : "prev"}"]`)?.click();
  });
}
