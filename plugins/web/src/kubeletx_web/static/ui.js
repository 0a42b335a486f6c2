// Ages and the state of the connection. Everything else is htmx.
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
  // What a reader types stays when the page around it changes.
  Idiomorph.defaults.ignoreActiveValue = true;
  const say = (text) => { document.getElementById("connection").textContent = text; };
  const lost = () => say("The connection is lost; the page shows the last known state.");
  document.addEventListener("htmx:afterSwap", () => { tick(); say("Live."); });
  document.addEventListener("htmx:sseOpen", () => say("Live."));
  for (const name of ["sseError", "responseError", "sendError"]) document.addEventListener(`htmx:${name}`, lost);
})();
