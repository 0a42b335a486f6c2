// Ages, the order of rows, the state of the connection, and reloads. Everything else is htmx.
"use strict";
(() => {
  const units = [["y", 31536000], ["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const age = (seconds) => {
    if (seconds < 120) return `${Math.max(0, Math.floor(seconds))}s`;
    const at = units.findIndex(([, size]) => seconds >= 2 * size);
    const [unit, size] = units[at];
    const whole = Math.floor(seconds / size);
    const [small, part] = units[at + 1];
    const rest = Math.floor((seconds % size) / part);
    return whole < 8 && rest ? `${whole}${unit}${rest}${small}` : `${whole}${unit}`;
  };
  const tick = () => {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const since = (Date.now() - Date.parse(time.dateTime)) / 1000;
      const text = age(time.classList.contains("until") ? -since : since);
      if (time.textContent !== text) time.textContent = text;
    }
  };
  setInterval(tick, 1000);
  const order = () => {
    const marker = document.getElementById("order");
    const wanted = marker?.dataset.order;
    const rows = document.getElementById("rows");
    if (!wanted || !rows) return;
    delete marker.dataset.order;
    for (const id of wanted.split(" ")) {
      const row = document.getElementById(id);
      if (row) rows.append(row);
    }
  };
  // An element that is replaced or moved loses the focus: the one in its place gets it.
  let focused = null;
  const focusable = (part) => [...part.querySelectorAll("a[href], button, input, [tabindex]")];
  const keepFocus = () => {
    const part = document.activeElement.closest("tr[id], section[id]");
    focused = part && { id: part.id, index: focusable(part).indexOf(document.activeElement), was: document.activeElement };
  };
  const giveFocus = () => {
    if (!focused || document.activeElement === focused.was) return;
    const part = document.getElementById(focused.id);
    if (part) focusable(part)[focused.index]?.focus({ preventScroll: true });
  };
  const say = (text) => { document.getElementById("connection").textContent = text; };
  document.addEventListener("htmx:sseBeforeMessage", keepFocus);
  document.addEventListener("htmx:sseMessage", () => { order(); giveFocus(); });
  document.addEventListener("htmx:sseOpen", (event) => {
    say("Live.");
    event.detail.source.addEventListener("reload", () => location.reload());
  });
  document.addEventListener("htmx:sseError", () => say("The connection is lost; the page shows the last known state."));
})();
