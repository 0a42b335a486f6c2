"""Checks: settings, looks at a node of files, hysteresis, deadlines, and the verdict on an image."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from msgspec.structs import fields, replace

from kubeletx.health.background import Background
from kubeletx.health.checks.base import CheckOutcome, CheckRecord, LookFacts, settle
from kubeletx.health.checks.http_get import get
from kubeletx.health.checks.section import BrokenCheck, read_checks
from kubeletx.health.commands import status_lines
from kubeletx.health.model import CheckState, Reach
from kubeletx.health.topics import HEALTH_STATUS, HealthStatus, KubeletxStatus, find, path_of, read_field
from kubeletx.health.watchdog.ages import WatchedAgent, WatchLevel
from kubeletx_testing.apiserver import CertificateAuthority
from kubeletx_testing.waiting import block_until
from tests.unit.health.trial import SHORT, Trial, fail

DONE = 70
"""Seconds from a request of a reboot to the reboot."""
COMMAND = {"kind": "command", "level": "required", "period": 10, "failures": 2}


def look(node: Path, kind: str, **values: Any) -> CheckOutcome:
    """Look once at a node whose /proc and /sys lie in a directory. `values`: fields of the check, and of `LookFacts`."""
    names = [field.name for field in fields(LookFacts)]
    facts = {"now": 100, "seconds": 10} | {name: values.pop(name) for name in names if name in values}
    (check,) = read_checks([{"kind": kind, **values}], fail).values()
    return check.look(LookFacts(run=node / "run", proc=node / "proc", sys=node / "sys", **facts))


@pytest.fixture
def node(tmp_path: Path) -> Path:
    files = {
        "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 200 kB\nHugePages_Total: 0\n",
        "proc/stat": "cpu  50 0 50 800 100 0 0 0 0 0\ncpu0 1 1\n",
        "proc/pressure/memory": "some avg10=1.00 avg60=60.50 avg300=3.00 total=9\nfull avg10=0.00 avg60=0.25 avg300=0.00 total=1\n",
    }
    write(tmp_path, files)
    return tmp_path


def write(base: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(content)


# -- looks


def test_disk_memory_and_pressure_compare_with_their_limits(node: Path) -> None:
    path = str(node)
    assert look(node, "disk-space", path=path, free="1Ki").ok
    assert look(node, "disk-space", path=path, free="999999Ti").ok is False
    assert look(node, "inodes", path=path, free="0%").ok
    assert look(node, "memory", available="20%") == CheckOutcome(
        True, "20.0% of memory free, 20% wanted at least"
    )
    assert look(node, "memory", available="201Ki").ok is False
    assert look(node, "pressure").ok is False
    assert look(node, "pressure", stall="full", window="avg300").ok


def test_cpu_use_is_the_share_between_two_looks(node: Path) -> None:
    first = look(node, "cpu")
    assert first.ok is None
    write(node, {"proc/stat": "cpu 140 0 50 805 105 0 0 0 0 0\n"})
    second = look(node, "cpu", before=first.counters, most=89.5)
    assert (second.ok, second.message) == (False, "CPUs are busy for 90.0%, at most 89.5%")


def test_the_clock_has_a_state(node: Path) -> None:
    outcome = look(node, "clock")
    assert outcome.ok is ("not" not in outcome.message)


@pytest.mark.parametrize(
    ("script", "ok", "message"),
    [
        ("echo all well; exit 0", True, "all well"),
        ("echo no link >&2; exit 1", False, "no link"),
        ("echo huh; exit 3", None, "exit code 3: huh"),
        ("exec sleep 60", None, "/bin/sh did not end within 0.2 s, and was stopped with SIGKILL"),
    ],
)
def test_a_command_decides_by_its_exit_code(node: Path, script: str, ok: bool | None, message: str) -> None:
    deadline = 0.2 if ok is None and "sleep" in script else 60
    outcome = look(node, "command", command=["/bin/sh", "-c", script], deadline=deadline)
    assert (outcome.ok, outcome.message) == (ok, message)


def interface(node: Path, **values: int) -> None:
    names = {f"{way}_{what}" for way in ("rx", "tx") for what in ("bytes", "packets", "errors", "dropped")}
    write(node, {f"sys/class/net/eth0/statistics/{name}": f"{values.get(name, 0)}\n" for name in names})


def test_an_interface_has_limits_for_bytes_and_errors(node: Path) -> None:
    interface(node)
    use = {"kind": "network-usage", "interface": "eth0", "most": "1Ki"}
    first = look(node, **use), look(node, "network-errors", interface="eth0")
    interface(node, rx_bytes=9000, tx_bytes=1240, rx_packets=95, rx_dropped=3, tx_errors=2)
    carried = look(node, **use, before=first[0].counters)
    lost = look(node, "network-errors", interface="eth0", before=first[1].counters)
    assert (carried.ok, carried.message) == (True, "eth0 carries 1024 bytes/s, at most 1Ki")
    assert (lost.ok, lost.message) == (False, "eth0 loses 5.0%, at most 1%")
    assert look(node, **use, before=carried.counters | {"rx_bytes": 99999}).ok is None, "counters began again"
    assert look(node, "network-errors", interface="eth0", before=lost.counters).ok, "no packets"


def test_links_routes_and_addresses_are_found(node: Path) -> None:
    header = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
    default = "eth0 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0\n"
    zeros = "0" * 32
    rejected = f"{zeros} 00 {zeros} 00 {zeros} ffffffff 1 0 00200200 lo\n"
    write(
        node,
        {
            "proc/net/route": header,
            "proc/net/ipv6_route": rejected,
            "proc/net/if_inet6": "fe800000000000000000000000000001 02 40 20 80 eth0\n",
            "sys/class/net/eth0/carrier": "1\n",
            "sys/class/net/eth1/carrier": "0\n",
        },
    )
    assert look(node, "route").message == "default route (any): missing"
    assert look(node, "address", interface="eth0", family="ipv6").ok is False
    write(node, {"proc/net/route": header + default, "proc/net/if_inet6": "20010db8 02 40 00 80 eth0\n"})
    assert [look(node, "route", interface=name).ok for name in ("", "eth0", "eth1")] == [True, True, False]
    assert look(node, "route", family="ipv6").ok is False
    assert look(node, "address", interface="eth0", family="ipv6").ok
    assert look(node, "address", interface="lo").message == "addresses of lo: 127.0.0.1"
    links = [look(node, "link", interface=name) for name in ("eth0", "eth1", "eth2")]
    assert [link.ok for link in links] == [True, False, False]
    assert links[2].message == "there is no interface eth2"


def test_a_name_is_resolved(node: Path) -> None:
    assert look(node, "dns", host="127.0.0.1") == CheckOutcome(True, "127.0.0.1: 127.0.0.1")
    assert look(node, "dns", host="a..b").ok is False


def test_watched_agents_give_signs_of_life(node: Path) -> None:
    cam = WatchedAgent(sign=None, since=60, level=WatchLevel.OK)
    assert look(node, "watched-agents", watched={"file/cam": cam}).ok
    assert (
        look(node, "watched-agents", agents=["net"], watched={"file/cam": cam}).message
        == "net is not registered"
    )
    silent = {"file/cam": replace(cam, level=WatchLevel.ERROR)}
    assert look(node, "watched-agents", watched=silent) == CheckOutcome(False, "cam gave no sign for 40 s")


def test_runtimes_pods_and_plugins_are_as_kubeletx_says(node: Path) -> None:
    agent = KubeletxStatus(
        runtimes_not_ready=("quark",),
        pods_not_ready=("apps/db-0",),
        pods_ready=("apps/web-0", "system/dns-node1"),
        checks=(CheckState(name="raid", ok=False, message="degraded"),),
    )
    assert look(node, "runtimes", agent=agent).message == "quark is not ready"
    assert look(node, "runtimes").message == "kubeletx has not published KubeletxStatus"
    assert look(node, "runtimes", agent=KubeletxStatus(), agent_silent=70).ok is False
    assert look(node, "pods", pods=["apps/web-*", "system/dns-*"], agent=agent).ok
    missing = look(node, "pods", pods=["apps/db-*", "apps/mail"], agent=agent)
    assert missing.message == "apps/db-0 is not ready; apps/mail is not there"
    assert look(node, "pods", agent=agent).message == "apps/db-0 is not ready"
    assert look(node, "plugin", check="raid", agent=agent) == CheckOutcome(False, "degraded")
    assert look(node, "plugin", check="disk", agent=agent).ok is None


def test_an_agent_works_if_a_field_of_its_topic_says_so(node: Path) -> None:
    path = node / "run/cam/CameraStatus/cam.json"
    check: dict[str, Any] = {
        "kind": "topic",
        "topic": "cam/CameraStatus/cam",
        "field": "Lens.State",
        "good": ["open", 1],
        "fresh": 60,
    }
    assert look(node, **check).ok is False
    write(node, {str(path): json.dumps({"Lens": {"State": "open"}})})
    first = look(node, **check)
    assert (first.ok, first.message) == (True, "Lens.State is open")
    assert (
        look(node, **check, before=first.counters | {"since": 30}).message
        == f"{path} was not written for 70 s"
    )
    for state, ok in ((1, True), (True, False), ("shut", False)):
        path.write_text(json.dumps({"Lens": {"State": state}}))
        assert look(node, **check).ok is ok
    for content in ("{", '{"Lens": 1}', '{"Lens": {}}'):
        path.write_text(content)
        with pytest.raises(ValueError, match="cam/CameraStatus"):
            read_field(path, "Lens.State")
        assert look(node, **check).ok is None


# -- settings


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"kind": "disc"}, "checks[0]: kind 'disc' is not one of "),
        (["disk"], "checks[0]: kind 'None' is not one of "),
        ({"kind": "memory", "free": "5%"}, "unknown field `free`; the fields of memory are name, level, "),
        ({"kind": "memory", "available": "much"}, "'much' is not an amount such as 512Mi or 5%"),
        ({"kind": "cpu", "period": 5}, "checks[0]: Expected `int` >= 10 - at `period`"),
        ({"kind": "cpu", "level": "vital"}, "Invalid enum value 'vital' - at `level`"),
        ({"kind": "topic", "topic": "../x/y", "field": "f", "good": []}, "is not AGENT/TOPIC/KEY"),
        ({"kind": "url", "url": "ftp://host/"}, "is not http://HOST/ or https://HOST/"),
        ({"kind": "command", "command": []}, "command is empty"),
        ({"kind": "command"}, "missing required field `command`"),
    ],
)
def test_a_bad_entry_is_named_and_stays_unknown(entry: Any, problem: str) -> None:
    lines: list[str] = []
    checks = read_checks([entry, {"kind": "cpu", "name": "load"}], lines.append)
    assert len(lines) == 1
    assert problem in lines[0]
    assert list(checks) == ["checks[0]", "load"]
    assert isinstance(checks["checks[0]"], BrokenCheck)


def test_names_are_unique_and_a_section_is_a_list() -> None:
    lines: list[str] = []
    checks = read_checks([{"kind": "cpu"}, {"kind": "cpu", "level": "required"}], lines.append)
    assert list(checks) == ["cpu", "checks[1]"]
    assert checks["checks[1]"].level == "required"
    assert read_checks({"kind": "cpu"}, lines.append) == {}
    assert "checks: a list is expected" in lines[1]


# -- results


def test_a_result_changes_after_looks_in_a_row() -> None:
    record, seen = CheckRecord(), ""
    words = {"+": True, "-": False, ".": None}
    for word in "+---+-...+":
        record = settle(record, CheckOutcome(words[word], "so it is"), failures=3, successes=1)
        seen += next(letter for letter, ok in words.items() if ok is record.ok)
    assert seen == "+++-++++.+"
    record = settle(record, CheckOutcome(False, "two\nlines"), failures=3, successes=1)
    assert record.message == "1 of 3 in a row: two lines"


def test_work_that_hangs_is_late_in_each_period_and_never_started_twice() -> None:
    now, over, begun = [0.0], Event(), []

    def work() -> str:
        begun.append(now[0])
        over.wait()
        return "done"

    background: Background[str] = Background(lambda: now[0])
    background.start("disk", work, 10)
    assert background.results() == {}
    for now[0] in (10, 40, 70):
        background.start("disk", work, 10)
        assert background.results() == {"disk": None}
        assert background.results() == {}
    over.set()
    block_until(lambda: background.is_idle)
    assert background.results() == {}
    background.start("disk", work, 10)
    block_until(lambda: background.is_idle)
    assert background.results() == {"disk": "done"}
    assert begun == [0, 70]


# -- verdict


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """A node whose required check reads a file: its first line is the exit code."""
    (tmp_path / "code").write_text("0")
    command = ["/bin/sh", "-c", f'echo "the code is $(cat {tmp_path}/code)"; exit $(cat {tmp_path}/code)']
    return Trial(tmp_path, SHORT, checks=[{**COMMAND, "name": "app", "command": command, "deadline": 60}])


def tick(trial: Trial, seconds: int) -> None:
    """Let ticks pass; each takes the results of the looks of the one before."""
    for _ in range(seconds // 10):
        trial.tick()
        block_until(lambda: trial.guardian.check_runner.background.is_idle)


def install(trial: Trial) -> None:
    assert trial.order("install", "IMGB").outcome == "accepted"
    trial.until_reboot()


def test_an_image_with_good_checks_is_committed(trial: Trial) -> None:
    install(trial)
    tick(trial, 100)
    assert trial.states == ("unused", "active", "IMGB")
    (check,) = trial.guardian.checks
    assert (check.name, check.ok, check.message) == ("app", True, "the code is 0")


def test_an_image_with_a_failed_check_falls_back_with_its_message(trial: Trial) -> None:
    (trial.base / "code").write_text("1")
    install(trial)
    tick(trial, 40 + 300 + DONE + 20)
    assert trial.states == ("active", "inprogress", "IMGA")
    assert "app: the code is 1" in trial.reboots[-1]["reason"]
    assert any(line == "CheckFailed: app: the code is 1" for line in trial.lines)


def test_an_unknown_required_check_holds_the_commit_within_its_limit(trial: Trial) -> None:
    (trial.base / "code").write_text("7")
    install(trial)
    tick(trial, 200)
    assert trial.states == ("active", "inprogress", "IMGB")
    assert trial.guardian.checks[0].ok is False
    (trial.base / "code").write_text("0")
    tick(trial, 100)
    assert trial.states == ("unused", "active", "IMGB")


def test_a_result_outlives_a_restart_of_the_guardian(trial: Trial) -> None:
    (trial.base / "code").write_text("1")
    tick(trial, 40)
    trial.start()
    trial.tick()
    assert trial.guardian.checks[0].ok is False


def test_checks_of_plugins_are_shown_as_information_unless_they_are_named(tmp_path: Path) -> None:
    trial = Trial(
        tmp_path, SHORT, checks=[{"kind": "plugin", "check": "raid", "level": "required", "failures": 1}]
    )
    results = [
        {"Name": name, "Level": "required", "Ok": False, "Message": "broken"} for name in ("raid", "fan")
    ]
    trial.publish("kubeletx", "KubeletxStatus", "kubeletx", Checks=results)
    trial.tick(20)
    found = [(check.name, check.level, check.ok) for check in trial.guardian.checks]
    assert found == [("plugin", "required", False), ("fan", "information", False)]
    assert health(trial).is_healthy is False
    text = "\n".join(status_lines(trial.status, health(trial)))
    assert "Health:       required checks fail: plugin: broken" in text
    assert "fan                     information  failed   broken" in text


def health(trial: Trial) -> HealthStatus:
    status = find(HealthStatus, path_of(trial.run, HEALTH_STATUS, "nodeagent"))
    assert status is not None
    return status


def test_a_required_check_of_an_unknown_kind_is_named_at_the_start_and_holds_the_commit(
    tmp_path: Path,
) -> None:
    trial = Trial(tmp_path, SHORT, checks=[{"kind": "disc", "level": "required"}])
    assert any(line.startswith("BadCheck: checks[0]: kind 'disc' is not one of ") for line in trial.lines)
    install(trial)
    tick(trial, 200)
    assert trial.states == ("active", "inprogress", "IMGB")


def test_a_broken_check_costs_no_tick(tmp_path: Path) -> None:
    trial = Trial(tmp_path, SHORT, checks=["rubbish", {"kind": "disk-space", "path": "/does/not/exist"}])
    tick(trial, 50)
    assert [check.ok for check in trial.guardian.checks] == [None, None]
    assert len([line for line in trial.lines if line.startswith("BadCheck")]) == 1
    assert trial.reboots == []


# -- contact


class Controller(BaseHTTPRequestHandler):
    """Answers with the status of its path: GET /503 is answered with 503."""

    def do_GET(self) -> None:
        self.send_response(int(self.path[1:]))
        self.send_header("Location", "/200")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Controller) as http_server:
        Thread(target=http_server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{http_server.server_port}"
        http_server.shutdown()


def test_a_server_says_how_the_controller_is_reached(server: str) -> None:
    reaches = {code: get(f"http://{server}/{code}", 30)[0] for code in (200, 204, 302, 404, 500, 503)}
    good = dict.fromkeys((200, 204), Reach.SUCCESS)
    assert reaches == good | dict.fromkeys((302, 404, 500), Reach.FAIL) | {503: Reach.TEMPORARY_FAIL}
    assert get(f"https://{server}/200", 30)[0] is Reach.FAIL, "no certificate"
    assert get("http://127.0.0.1:1/", 30)[0] is Reach.FAIL
    assert get(f"http://{server}/200", 30) == (Reach.SUCCESS, f"http://{server}/200: 200 OK")


def test_only_a_server_with_a_trusted_certificate_is_contact(tmp_path: Path) -> None:
    ca = CertificateAuthority(tmp_path / "ca")
    pair, other = ca.server("server"), CertificateAuthority(tmp_path / "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    with ThreadingHTTPServer(("127.0.0.1", 0), Controller) as http_server:
        http_server.socket = context.wrap_socket(http_server.socket, server_side=True)
        Thread(target=http_server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"https://localhost:{http_server.server_port}/200"
        assert get(url, 30, str(ca.ca_file))[0] is Reach.SUCCESS
        for untrusted in (str(other.ca_file), ""):
            reach, line = get(url, 30, untrusted)
            assert (reach, "certificate verify failed" in line) == (Reach.FAIL, True)
        trial = Trial(tmp_path, contact={"urls": [{"url": url, "period": 10, "deadline": 60}]})
        trial.is_reached = False
        for _ in range(3):
            trial.tick()
            block_until(lambda: trial.guardian.contact_sources.background.is_idle)
        assert health(trial).contact == Reach.FAIL
        assert len([line for line in trial.lines if "certificate verify failed" in line]) == 1
        http_server.shutdown()


def test_an_image_is_committed_on_the_word_of_a_server_or_a_topic(tmp_path: Path, server: str) -> None:
    topic = {"topic": "modem/LinkStatus/modem", "field": "State", "good": ["up"], "temporary": ["busy"]}
    for name, contact in {
        "url": {"urls": [{"url": f"http://{server}/200", "period": 10, "deadline": 60}]},
        "topic": {"topics": [topic]},
    }.items():
        trial = Trial(tmp_path / name, SHORT, contact=contact)
        trial.is_reached = False
        trial.order("install", "IMGB")
        trial.until_reboot()
        for _ in range(12):
            trial.publish("modem", "LinkStatus", "modem", State="up")
            trial.tick()
            block_until(lambda: trial.guardian.contact_sources.background.is_idle)  # noqa: B023 - called here
        assert trial.states == ("unused", "active", "IMGB"), name


def test_a_silent_or_bad_topic_counts_as_unreached_after_its_limit(tmp_path: Path) -> None:
    topic = {"topic": "modem/LinkStatus/modem", "field": "State", "good": ["up"], "temporary": ["busy"]}
    trial = Trial(tmp_path, SHORT, contact={"topics": [topic, {"topic": "modem"}], "leds": 1})
    trial.is_reached = False
    assert [line for line in trial.lines if line.startswith("BadContact")] == [
        "BadContact: contact.leds: unknown; urls and topics can be set",
        "BadContact: contact.topics[1]: Object missing required field `field`; this source is left out",
    ]

    def contact(seconds: int) -> tuple[int, str]:
        trial.tick(seconds)
        return health(trial).contact, health(trial).contact_source

    trial.publish("modem", "LinkStatus", "modem", State="up")
    assert contact(10) == (Reach.UNKNOWN, ""), "a word of the boot before is none"
    for state, reach in (("up", Reach.SUCCESS), ("busy", Reach.TEMPORARY_FAIL), ("down", Reach.FAIL)):
        trial.publish("modem", "LinkStatus", "modem", State=state)
        assert contact(10) == (reach, "modem/LinkStatus/modem")
    trial.publish("modem", "LinkStatus", "modem", State="up")
    assert contact(180)[0] == Reach.SUCCESS
    trial.publish("modem", "LinkStatus", "modem", Other=1)
    assert contact(30)[0] == Reach.FAIL
    assert len([line for line in trial.lines if "there is no field State" in line]) == 1
