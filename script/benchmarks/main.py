"""Runs benchmarks and shows their results; see script/bench and docs/performance.md."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from kubeletx.api.errors import InvalidConfig

from . import (
    cluster,
    command_line,
    fornax_link,
    guarded,
    health,
    idle,
    isolated,
    machines,
    neighbours,
    outside,
    pods,
    remedy,
    rooms,
    scale,
    sessions,
    standby,
    standby_memory,
    standby_rest,
    storage,
    storage_records,
    storage_unused,
    streams,
    web,
)
from .compare import Verdict, compare, read_report, summary, table
from .lab import ROOT, BenchLab, bench_lab
from .model import HEADINGS, QUICK, Report, Result, Sizes, machine, markdown, rows

OUT = ROOT / "bench-results"
PUBLISHED = ROOT / "docs" / "performance"
PAGE = ROOT / "docs" / "performance.md"
MARKS = ("<!-- table -->", "<!-- end of table -->")
ROOM_MARKS = ("<!-- rooms -->", "<!-- end of rooms -->")

WITH_DAEMONS: dict[str, Callable[[BenchLab, Sizes], Result]] = {
    "pods": pods.pods,
    "one-pod": pods.one_pod,
    "outside": outside.outside,
    "hang": pods.hang,
    "flooding-neighbour": neighbours.flooding_neighbour,
    "hanging-neighbour": neighbours.hanging_neighbour,
    "guarded-start": guarded.guarded_start,
    "idle": idle.idle,
    "start": idle.start,
    "rooms": rooms.rooms,
    "storage-unused": storage_unused.storage_unused,
    "web": web.web,
}
MACHINES: dict[str, Callable[[BenchLab, Sizes], Result]] = {
    "machine": machines.machine,
    "machines": machines.machines,
    "machine-list": machines.machine_list,
    "machine-rest": machines.machine_rest,
    "machine-image": machines.machine_image,
}
CLUSTER: dict[str, Callable[[BenchLab, Sizes], Result]] = {
    "api-pod": cluster.api_pod,
    "api-pods": cluster.api_pods,
    "api-rest": cluster.api_rest,
}
STREAMS: dict[str, Callable[[BenchLab, Sizes], Result]] = {
    "stream-exec": streams.stream_exec,
    "stream-logs": streams.stream_logs,
    "stream-rates": streams.stream_rates,
}
STANDBY: dict[str, Callable[[BenchLab, Sizes], Result]] = {
    "command-line": command_line.command_line,
    "standby-wake": standby.standby_wake,
    "standby-burst": standby.standby_burst,
    "standby-idle": standby_rest.standby_idle,
    "standby-500": standby_rest.standby_500,
    "standby-memory": standby_memory.standby_memory,
}
SESSIONS: dict[str, Callable[[BenchLab, Sizes], Result]] = {
    "session-open": sessions.session_open,
    "cold-open": sessions.cold_open,
    "core-changes": sessions.core_changes,
    "session-idle": sessions.session_idle,
    "session-restart": sessions.session_restart,
}
STORAGE: dict[str, Callable[[Sizes], Result]] = {
    "storage-mount": storage.storage_mount,
    "storage-many": storage.storage_many,
    "storage-records": storage_records.storage_records,
}
IN_PROCESS: dict[str, Callable[[Sizes], Result]] = {
    "scale": scale.scale,
    "health": health.health,
    "remedy": remedy.remedy,
    "isolated-call": isolated.isolated_call,
    "link-changes": fornax_link.link_changes,
    "fornax-fleet": fornax_link.fornax_fleet,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks that the command line names; exit status 0 if all were measured, whether goals are met or not.

    With ``--compare``: 1 if a figure is worse than the published one, 2 if a report cannot be read.
    """
    options = _options(arguments)
    if options.list:
        print(
            "\n".join(
                (*WITH_DAEMONS, *MACHINES, *CLUSTER, *STREAMS, *STANDBY, *SESSIONS, *STORAGE, *IN_PROCESS)
            )
        )
        return 0
    try:
        published = None if options.compare is None else read_report(PUBLISHED / "results.json")
        if published is not None and options.compare:
            return show_comparison(published, read_report(Path(options.compare)))
    except InvalidConfig as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    wanted = options.only or [
        *WITH_DAEMONS,
        *MACHINES,
        *CLUSTER,
        *STREAMS,
        *STANDBY,
        *SESSIONS,
        *STORAGE,
        *IN_PROCESS,
    ]
    sizes = msgspec.structs.replace(QUICK if options.quick else Sizes(), kubelet=options.kubelet)
    results = run(wanted, sizes)
    report = Report(machine=machine(), results=results)
    show(report)
    save(report, OUT, merge=False)
    if options.publish:
        publish(report)
    return 0 if published is None else show_comparison(published, report)


def run(wanted: list[str], sizes: Sizes) -> dict[str, Result]:
    """Run the named benchmarks, those without daemons before the others; returns results in the order of `wanted`."""
    results: dict[str, Result] = {}
    alone = {**IN_PROCESS, **STORAGE}
    for name in wanted:
        if name in alone:
            results[name] = _timed(name, partial(alone[name], sizes))
    known = {**WITH_DAEMONS, **MACHINES, **CLUSTER, **STREAMS, **STANDBY, **SESSIONS}
    with_daemons = [name for name in wanted if name in known]
    if with_daemons:
        with bench_lab() as bench:
            for name in with_daemons:
                results[name] = _timed(name, partial(known[name], bench, sizes))
    return {name: results[name] for name in wanted}


def show(report: Report) -> None:
    """Print the table of all figures."""
    table = [HEADINGS, *rows(report.results)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def show_comparison(published: Report, measured: Report) -> int:
    """Print how the measured figures differ from the published ones; 1 if any is worse, else 0."""
    compared = compare(published.results, measured.results)
    print(table(compared))
    if published.machine != measured.machine:
        print(f"published on: {_described(published)}\nmeasured on:  {_described(measured)}")
    print(summary(compared))
    return 1 if any(comparison.verdict is Verdict.WORSE for comparison in compared) else 0


def _described(report: Report) -> str:
    return ", ".join(f"{name} {value}" for name, value in report.machine.items())


def save(report: Report, directory: Path, *, merge: bool) -> Report:
    """Write results.json and plots into `directory`; returns the report that was written.

    `merge`: results of benchmarks that were not run now are kept.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "results.json"
    if merge and path.exists():
        old = msgspec.json.decode(path.read_bytes(), type=Report)
        report = Report(machine=report.machine, results={**old.results, **report.results})
    order = [*WITH_DAEMONS, *MACHINES, *CLUSTER, *STREAMS, *STANDBY, *SESSIONS, *STORAGE, *IN_PROCESS]
    report = Report(
        machine=report.machine,
        results={name: report.results[name] for name in order if name in report.results},
    )
    path.write_text(as_json(report))
    from .plots import draw

    for drawn in draw(report, directory):
        print(f"drew {drawn}")
    return report


def as_json(report: Report) -> str:
    """Format as JSON, each list of numbers on one line: the samples of all figures are thousands."""
    text = msgspec.json.format(msgspec.json.encode(report), indent=1).decode()
    return re.sub(r"\[[-+.,\deE\s]+\]", _on_one_line, text) + "\n"


def _on_one_line(numbers: re.Match[str]) -> str:
    return "".join(numbers[0].split()).replace(",", ", ")


def publish(report: Report) -> None:
    """Write results, plots and tables into the documentation."""
    whole = save(report, PUBLISHED, merge=True)
    PAGE.write_text(page_with_tables(PAGE.read_text(), whole))


def page_with_tables(text: str, report: Report) -> str:
    """Replace the tables between the marks in the page's `text`."""
    text = _between(MARKS, text, markdown(report.results))
    if "rooms" in report.results:
        text = _between(ROOM_MARKS, text, rooms.rooms_markdown(report.results["rooms"]))
    return text


def _between(marks: tuple[str, str], text: str, table: str) -> str:
    before, _, rest = text.partition(marks[0])
    after = rest.partition(marks[1])[2]
    return f"{before}{marks[0]}\n\n{table}\n\n{marks[1]}{after}"


def _timed(name: str, measure: Callable[[], Result]) -> Result:
    print(f"== {name}", flush=True)
    load, began = os.getloadavg()[0], time.monotonic()
    result = measure()
    return msgspec.structs.replace(
        result, seconds=round(time.monotonic() - began, 1), load_before=round(load, 2)
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    known = (*WITH_DAEMONS, *MACHINES, *CLUSTER, *STREAMS, *STANDBY, *SESSIONS, *STORAGE, *IN_PROCESS)
    parser = argparse.ArgumentParser(prog="script/bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=known, metavar="NAME", help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, smaller sizes")
    parser.add_argument(
        "--kubelet", type=_program, metavar="PATH", help="a stock kubelet, for benchmark outside"
    )
    parser.add_argument("--publish", action="store_true", help="also write docs/performance and its table")
    parser.add_argument(
        "--compare",
        nargs="?",
        const="",
        metavar="FILE",
        help="name every figure that is more than 10 %% worse than the published one, of a run or of FILE",
    )
    parser.add_argument("--list", action="store_true", help="names of the benchmarks")
    options = parser.parse_args(arguments)
    if options.compare and (options.only or options.quick or options.publish):
        parser.error("--compare FILE measures nothing: leave out --only, --quick and --publish")
    return options


def _program(text: str) -> Path:
    path = Path(text).absolute()
    if not os.access(path, os.X_OK) or path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no program")
    return path


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what was made is removed
    sys.exit(main())
