// The page of a pod: plots of its usage by uPlot, and its log as it grows.
"use strict";
(() => {
  const KEPT = 500;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const pathOf = { memory: (value) => value / 1048576, cpu: (value) => value };
  let plots = [];
  let drawn = "";

  const marks = (usage) => (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = 1;
    ctx.textAlign = "left";
    ctx.font = `${11 * devicePixelRatio}px system-ui`;
    for (const [at, word] of usage.marks) {
      const x = plot.valToPos(at, "x", true);
      ctx.strokeStyle = ctx.fillStyle = colour(word === "woken" ? "--good" : "--rest");
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(word, x + 4, bbox.top + 12 * devicePixelRatio);
    }
    ctx.restore();
  };
  const draw = (figure, name, usage) => {
    const scale = pathOf[name];
    const line = usage[name].map((value) => (value === null ? null : scale(value)));
    const limit = usage[`${name}Limit`];
    const data = [usage.times, line];
    const series = [{}, { label: name === "cpu" ? "CPU (m)" : "Memory (MiB)", stroke: colour("--plot"), width: 1.5, points: { size: 4 } }];
    if (limit !== null) {
      data.push(usage.times.map(() => scale(limit)));
      series.push({ label: "limit", stroke: colour("--bad"), dash: [4, 3], width: 1, points: { show: false } });
    }
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 } };
    figure.querySelector("svg")?.remove();
    plots.push(new uPlot({
      width: figure.clientWidth, height: 220, series, axes: [axis, { ...axis, size: 60 }],
      scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, 1) * 1.05] } },
      hooks: { draw: [marks(usage)] }, cursor: { drag: { x: false, y: false } },
    }, data, figure));
  };
  const redraw = () => {
    const section = document.getElementById("pod-usage");
    if (!section || !window.uPlot) return;
    const usage = JSON.parse(section.dataset.usage);
    for (const plot of plots) plot.destroy();
    plots = [];
    drawn = section.dataset.usage;
    const [memory, cpu] = section.querySelectorAll("figure");
    if (!cpu || usage.times.length < 2) return; // the server's picture shows as much
    draw(memory, "memory", usage);
    draw(cpu, "cpu", usage);
  };

  const lines = document.getElementById("log-lines");
  const note = document.getElementById("log-note");
  let source = null;
  const follow = () => {
    if (source || !lines.dataset.follow || document.hidden) return;
    source = new EventSource(lines.dataset.follow);
    let isFirst = true;
    source.onopen = () => { isFirst = true; note.textContent = "New lines appear as they come."; };
    source.onmessage = (event) => {
      const isAtEnd = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 8;
      const old = isFirst ? [] : lines.textContent.split("\n").slice(0, -1);
      isFirst = false;
      lines.textContent = [...old, ...JSON.parse(event.data)].slice(-KEPT).join("\n") + "\n";
      if (isAtEnd) lines.scrollTop = lines.scrollHeight;
    };
    source.addEventListener("end", (event) => {
      note.textContent = JSON.parse(event.data) || "The log has ended.";
      rest();
    });
    source.onerror = () => { note.textContent = "The connection to the log is lost."; };
  };
  const rest = () => { source?.close(); source = null; };

  let runs = document.getElementById("pod-units")?.dataset.runs;
  document.addEventListener("htmx:afterSwap", () => {
    const usage = document.getElementById("pod-usage");
    if (usage && (usage.dataset.usage !== drawn || !plots.every((plot) => plot.root.isConnected))) redraw();
    const now = document.getElementById("pod-units")?.dataset.runs;
    if (now !== runs) { runs = now; follow(); } // a container began or ended
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : follow()));
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  redraw();
  lines.scrollTop = lines.scrollHeight;
  follow();
})();
