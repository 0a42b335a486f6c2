"""Pictures of README.md and docs/web.md: the demo's table of pods with the memory of its pod on standby, and its web page.

`script/demo --picture` makes them.
"""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kubeletx_testing.lab.browser import Browser, PrivatePage, chromium

_COLUMNS, _INCHES = 96, 7.6
_SETTLED, _ASLEEP, _INK, _PAPER = "#e67e22", "#2563eb", "#e6edf3", "#0d1117"
_MEBIBYTE = 1 << 20
_WIDTH = 1200
"""Width of the browser's window in pixels."""
_SAMPLES = 6


def draw(path: Path, table: Table, pod: str, memory: dict[str, int]) -> None:
    """Write a PNG file. `memory`: bytes of the pod on standby after each event, the first while it runs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    console = Console(file=io.StringIO(), width=_COLUMNS)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().rstrip().splitlines()]
    events = list(memory)
    with plt.rc_context({"text.color": _INK, "font.family": "DejaVu Sans Mono", "font.size": 9}):
        table_inches, bars_inches = 0.19 * len(lines), 0.32 * len(events)
        height = table_inches + bars_inches + 0.7
        figure = plt.figure(figsize=(_INCHES, height), facecolor=_PAPER)
        text = "\n".join(lines)
        figure.text(0.02, 1 - 0.15 / height, text, va="top", linespacing=1.3)
        below = figure.add_axes((0.42, 0.1 / height, 0.55, bars_inches / height))
        below.set_facecolor(_PAPER)
        sizes = [memory[event] / _MEBIBYTE for event in events]
        bars = below.barh(events, sizes, color=[_SETTLED, *[_ASLEEP] * (len(events) - 1)], height=0.6)
        below.bar_label(bars, [f"{size:.1f} MiB" for size in sizes], padding=4, color=_INK)
        below.invert_yaxis()
        below.set_xlim(0, max(sizes) * 1.2)
        below.set_xticks([])
        below.tick_params(left=False, labelcolor=_INK)
        figure.text(0.02, (bars_inches + 0.25) / height, f"memory of {pod}")
        for spine in below.spines.values():
            spine.set_visible(False)
        figure.savefig(path, dpi=110, metadata={"Software": None})
        plt.close(figure)


def _samples(browser: Browser) -> int:
    """Return the number of samples in the sparkline of the machine's CPU; without usage there is none."""
    line = browser.script(
        "return document.querySelector('#head .spark path:last-of-type')?.getAttribute('d') ?? ''"
    )
    return len(re.findall("[ML]", line))


def draw_web(directory: Path, socket_path: Path, pod: str) -> None:
    """Write web-node.png and web-pod.png into `directory`: the pages of the node and of a pod, in Chromium."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        with PrivatePage(socket_path, work) as page, chromium(work / "chromium", width=_WIDTH) as browser:
            browser.driver.get(page.link)
            browser.until(lambda: _samples(browser) >= _SAMPLES, "usage of a minute")
            for name, path in (("web-node", ""), ("web-pod", f"pods/default/{pod}")):
                browser.driver.get(page.url + path)
                browser.until(lambda: browser.texts("#connection") == ["Live."], "connection")
                browser.driver.save_screenshot(str(work / f"{name}.png"))
                with Image.open(work / f"{name}.png") as image:
                    image.convert("RGB").quantize(128).save(directory / f"{name}.png", optimize=True)
