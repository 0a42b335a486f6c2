"""The web page in Chromium, of a whole agent with containerd and runc: what an operator sees and does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from selenium.webdriver.common.keys import Keys

from kubeletx_testing.lab import Lab, PrivateContainerd
from kubeletx_testing.lab.browser import Browser, PrivatePage, chromium
from plugins.web.tests.fake_agent import FakeAgent, pod
from tests.integration.storage.pod_storage import StorageOfNode, parts, storage
from tests.integration.support.bench import Bench

HOSTILE = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>\"'{{7*7}}"


@pytest.fixture(scope="module")
def node(lab: Lab, make_bench: Callable[..., Bench]) -> Iterator[Bench]:
    """An agent with storage and with pods that run, are frozen, and fail in several ways, on two runtimes."""
    first, second = lab["containerd-a"], lab["containerd-b"]
    bench = make_bench(
        endpoints=f"container:quark:{first.endpoint}?handler=runc;container:plain:{second.endpoint}?plugin=containerd",
        flags=("--runtime-request-timeout=5s",),
    )
    bench.put("web", runtime="plain", metadata={"labels": {"app": "shop"}})
    bench.put("rest", runtime="quark")
    bench.put("no-image", runtime="plain", image="registry.local/none:1")
    bench.put("crash", "echo failed; exit 3", runtime="plain")
    drives = StorageOfNode(bench.agent, lab.base_dir / "web-storage")
    try:
        drives.start()
        bench.put("data", runtime="plain", **parts(storage("orders")))
        for name in ("web", "rest", "data"):
            bench.ready(name)
        assert bench.agent.cli("pod", "standby", "rest-lab").returncode == 0
        yield bench
    finally:
        drives.end()


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture(scope="module")
def page(node: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivatePage]:
    with PrivatePage(node.agent.socket_path, tmp_path_factory.mktemp("web")) as running:
        yield running


@pytest.fixture(scope="module")
def session(page: PrivatePage, chrome: Browser) -> Browser:
    """The browser after the link was used."""
    chrome.driver.get(page.link)
    return chrome


@pytest.fixture
def browser(session: Browser) -> Iterator[Browser]:
    """The browser in its usual state; the test has left no problem in its console."""
    session.emulate()
    session.problems()
    yield session
    session.emulate()
    assert session.problems() == []


def opened(browser: Browser, page: PrivatePage, path: str = "") -> None:
    """Open a path and wait until the page is live. `loaded` in the page is lost when it is loaded again."""
    browser.driver.get(page.url + path)
    browser.until(lambda: browser.texts("#connection") == ["Live."], "connection")
    browser.script("window.loaded = 1")


def names(browser: Browser) -> list[str]:
    """Names of the pods in the table, from top to bottom."""
    return [text.partition("/")[2] for text in browser.texts("#rows th a")]


def row(browser: Browser, pod: str) -> str:
    """Text of a pod's row; empty without one."""
    return next((text for text in browser.texts("#rows tr") if text.startswith(f"default/{pod}-lab")), "")


def state(browser: Browser, pod: str) -> str:
    found: str = browser.script(
        "return [...document.querySelectorAll('#rows tr')].find((one) => one.textContent.includes(arguments[0]))"
        "?.querySelector('.state')?.textContent ?? ''",
        f"default/{pod}-lab",
    )
    return found


def serious(browser: Browser) -> list[str]:
    """What the accessibility engine calls serious or critical."""
    engine = Path(str(distribution("axe-core-python").locate_file("axe_core_python/axe.min.js")))
    browser.script(engine.read_text())
    result = browser.driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    return [
        f"{found['id']}: {found['help']}: {[one['html'] for one in found['nodes'][:3]]}"
        for found in result["violations"]
        if found["impact"] in ("serious", "critical")
    ]


def test_the_node_page_shows_the_pods_and_the_runtimes(
    browser: Browser, page: PrivatePage, node: Bench
) -> None:
    opened(browser, page)
    assert names(browser) == [f"{pod}-lab" for pod in ("crash", "data", "no-image", "rest", "web")]
    browser.until(lambda: "Image" in state(browser, "no-image"), "image that is not found")
    browser.until(lambda: state(browser, "crash") == "CrashLoopBackOff", "crash loop")
    assert state(browser, "web") == "Running"
    assert state(browser, "rest") == "Standby"
    assert {text.split()[0] for text in browser.texts(".card h3")} == {"quark", "plain"}
    assert browser.texts("h1") == ["lab"]
    browser.until(lambda: "orders" in "".join(browser.texts("#room-attachments")), "volume with its holder")
    assert "default/data-lab" in browser.texts("#room-attachments")[0]


def test_a_change_is_shown_without_loading_the_page_again(
    browser: Browser, page: PrivatePage, node: Bench
) -> None:
    opened(browser, page)
    node.put("added", runtime="plain")
    browser.until(lambda: state(browser, "added") == "Running", "new pod")
    assert names(browser)[0] == "added-lab"
    node.remove("added")
    browser.until(lambda: not row(browser, "added"), "end of the pod")
    node.agent.cli("pod", "activate", "rest-lab")
    browser.until(lambda: state(browser, "rest") == "Running", "awake pod")
    node.agent.cli("pod", "standby", "rest-lab")
    browser.until(lambda: state(browser, "rest") == "Standby", "frozen pod")
    assert browser.script("return window.loaded") == 1


@pytest.mark.parametrize("scripts", [True, False])
def test_pods_are_filtered_and_sorted(
    browser: Browser, page: PrivatePage, node: Bench, scripts: bool
) -> None:
    browser.emulate(scripts=scripts)
    browser.driver.get(page.url)
    browser.click("//th/a[text()='Name']")
    browser.click("//th[@aria-sort='ascending']/a")
    browser.until(lambda: names(browser)[:2] == ["web-lab", "rest-lab"], "descending order")
    browser.find("//input[@id='q']").send_keys("app=shop", Keys.ENTER)
    browser.until(lambda: names(browser) == ["web-lab"], "filtered pods")
    assert "down=1" in browser.driver.current_url
    browser.click("//a[contains(., 'web-lab')]")
    browser.until(lambda: "default/web-lab" in browser.texts("h1")[0], "page of the pod")


def test_a_filtered_and_sorted_table_stays_so_while_pods_change(
    browser: Browser, page: PrivatePage, node: Bench
) -> None:
    opened(browser, page, "?q=app&sort=name&down=1")
    for name in ("shop-a", "shop-z"):
        node.put(name, runtime="plain", metadata={"labels": {"app": "shop"}})
    node.put("other", runtime="plain")
    node.ready("other")
    browser.until(lambda: names(browser) == ["web-lab", "shop-z-lab", "shop-a-lab"], "rows in order")
    node.remove("shop-a", "shop-z", "other")
    browser.until(lambda: names(browser) == ["web-lab"], "the other rows gone")
    assert browser.script("return window.loaded") == 1


def test_the_page_can_be_used_with_the_keyboard(browser: Browser, page: PrivatePage, node: Bench) -> None:
    opened(browser, page)
    reached = []
    for _ in range(40):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(
            browser.script(
                "const e = document.activeElement; return e.id || e.textContent.trim() || e.ariaLabel"
            )
        )
        if reached[-1] == "default/rest-lab":
            break
    assert reached[0] == "Skip to the content"
    assert [text for text in reached if text in ("q", "Filter", "Name", "Memory MiB")] == [
        "q",
        "Filter",
        "Name",
        "Memory MiB",
    ]
    assert reached[-1] == "default/rest-lab"
    node.agent.cli("pod", "activate", "rest-lab")
    browser.until(lambda: state(browser, "rest") == "Running", "awake pod")
    assert browser.driver.switch_to.active_element.text == "default/rest-lab"
    node.agent.cli("pod", "standby", "rest-lab")
    browser.until(lambda: state(browser, "rest") == "Standby", "frozen pod")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    browser.until(lambda: "rest-lab" in browser.texts("h1")[0], "page of the pod")


@pytest.mark.parametrize(
    "path", ["", "pods/default/web-lab", "pods/default/crash-lab", "pods/default/rest-lab"]
)
def test_pages_are_accessible_in_both_colours_and_fit_a_phone(
    browser: Browser, page: PrivatePage, path: str
) -> None:
    for scheme in ("light", "dark"):
        browser.emulate(scheme=scheme)
        opened(browser, page, path)
        assert serious(browser) == []
    browser.emulate(width=390)
    opened(browser, page, path)
    assert browser.script("return document.documentElement.scrollWidth") <= 390


def test_a_pods_page_says_why_it_is_so(browser: Browser, page: PrivatePage, node: Bench) -> None:
    opened(browser, page, "pods/default/crash-lab")
    browser.until(lambda: "CrashLoopBackOff" in browser.texts("h1")[0], "crash loop")
    assert "BackOff" in " ".join(browser.texts("table"))
    browser.until(lambda: "failed" in browser.texts("#log-lines")[0], "log")


def test_a_hung_runtime_is_shown(
    browser: Browser, page: PrivatePage, node: Bench, containerd_b: PrivateContainerd
) -> None:
    opened(browser, page)
    containerd_b.pause()
    try:
        browser.until(
            lambda: any("plain NotReady" in text for text in browser.texts(".card h3")), "hung runtime"
        )
        assert row(browser, "web")
    finally:
        containerd_b.resume()
    browser.until(lambda: any("plain Ready" in text for text in browser.texts(".card h3")), "runtime is back")


def test_a_page_outlives_a_restart_of_the_agent(browser: Browser, page: PrivatePage, node: Bench) -> None:
    opened(browser, page)
    node.agent.stop()
    browser.until(
        lambda: any("does not answer" in text for text in browser.texts("#head")), "word of the outage"
    )
    assert row(browser, "web")
    node.agent.start()
    browser.until(
        lambda: not any("does not answer" in text for text in browser.texts("#head")), "agent is back"
    )
    node.put("after", runtime="plain")
    browser.until(lambda: state(browser, "after") == "Running", "new pod")
    node.remove("after")
    browser.until(lambda: not row(browser, "after"), "end of the pod")


@contextmanager
def faked(agent: FakeAgent, directory: Path) -> Iterator[tuple[PrivatePage, Callable[[Any], None]]]:
    """The page of a fake agent, and what runs a coroutine in the agent's thread."""
    socket = directory / "agent.sock"
    with agent.in_thread(socket) as call, PrivatePage(socket, directory) as page:
        yield page, call


def hostile_answers() -> dict[str, Any]:
    """Answers of an agent in which each text that a user, an image or a plugin can set is hostile."""
    words = {"name": HOSTILE, "reason": HOSTILE, "message": HOSTILE, "type": HOSTILE, "status": HOSTILE}
    waiting = {
        "ready": False,
        "restartCount": 1,
        "name": HOSTILE,
        "image": HOSTILE,
        "imageID": HOSTILE,
        "containerID": HOSTILE,
        "state": {"waiting": words},
    }
    pod = {
        "metadata": {
            "name": "victim", "namespace": "default", "uid": "u1\"'<b>", "labels": {HOSTILE: HOSTILE},
            "annotations": {HOSTILE: HOSTILE, "kubeletx.io/bound-runtime": HOSTILE},
        },
        "spec": {
            "nodeName": HOSTILE,
            "containers": [
                {"name": HOSTILE, "image": HOSTILE, "command": [HOSTILE], "env": [{"name": HOSTILE, "value": HOSTILE}]}
            ],
            "volumes": [{"name": HOSTILE, "emptyDir": {}}],
        },
        "status": {
            "phase": "Pending", "reason": HOSTILE, "message": HOSTILE, "podIP": HOSTILE, "conditions": [words],
            "containerStatuses": [{**waiting, "lastState": {"terminated": {**words, "exitCode": 1}}}],
        },
    }  # fmt: skip
    event = {
        "metadata": {"name": "e1", "namespace": "default"}, **words,
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "victim", "uid": "u1\"'<b>"},
    }  # fmt: skip
    runtime = {
        **words,
        "url": HOSTILE,
        "since": "2026-01-01T00:00:00Z",
        "workloadType": HOSTILE,
        "version": HOSTILE,
        "kind": HOSTILE,
    }
    return {
        "/version": {"version": HOSTILE, "nodeName": HOSTILE},
        "/v1/pods": {"items": [pod]},
        "/v1/pods/default/victim": pod,
        "/v1/pods/default/victim/history": {"actions": []},
        "/v1/node": {"metadata": {"name": HOSTILE}, "status": {"conditions": [{**words, "type": "Ready"}]}},
        "/v1/runtimes": {"items": [runtime]},
        "/v1/events": {"items": [event]},
        "/v1/volumes": {
            "items": [{**words, "namespace": HOSTILE, "pod": HOSTILE, "kind": HOSTILE, "state": HOSTILE}]
        },
        "/v1/images": {"items": [{"ref": HOSTILE, "tags": [HOSTILE], "runtimes": [HOSTILE], "sizeBytes": 1}]},
        "/v1/plugins": {"items": [{**words, "state": HOSTILE, "version": HOSTILE}]},
        "/v1/panels": {"items": [{**words, "name": "one", "title": HOSTILE, "plugin": HOSTILE}]},
        "/v1/panels/one": {"type": "table", "columns": [HOSTILE], "rows": [[HOSTILE]]},
    }


def test_hostile_values_run_no_script(browser: Browser, tmp_path: Path) -> None:
    agent = FakeAgent()
    agent.answers.update(hostile_answers())
    with faked(agent, tmp_path) as (hostile, _):
        browser.driver.get(hostile.link)
        for path in ("", f"?q={quote(HOSTILE)}", "pods/default/victim", "pods/default/victim/yaml"):
            browser.driver.get(hostile.url + path)
            browser.until(lambda: "victim" in browser.texts("main")[0], "page")
            assert browser.script("return window.hacked ?? null") is None, path
            assert browser.script("return document.querySelectorAll('[onerror], body script').length") == 0, (
                path
            )
        assert [text for text in browser.problems() if "404" not in text] == []


def test_a_change_of_one_of_500_pods_keeps_the_place_of_the_reader(browser: Browser, tmp_path: Path) -> None:
    agent = FakeAgent()
    agent.answers["/v1/pods"] = {"items": [pod(f"pod-{number:03}") for number in range(500)]}
    with faked(agent, tmp_path) as (page, call):
        browser.driver.get(page.link)
        browser.until(lambda: browser.texts("#connection") == ["Live."], "connection")
        assert len(names(browser)) == 500
        browser.find("//a[contains(., 'pod-400')]").send_keys(Keys.TAB, Keys.TAB)
        focused, place = browser.script("return [document.activeElement.textContent, scrollY]")
        call(agent.send("/v1/pods", "DELETED", pod("pod-002")))
        for name in (f"pod-9{number}" for number in range(5)):
            call(agent.send("/v1/pods", "ADDED", pod(name)))
            browser.find(f"//a[contains(., '{name}')]")
        assert len(names(browser)) == 504
        loads = browser.script("return performance.getEntriesByType('resource').map((load) => load.name)")
        assert loads.count(f"{page.url}?") <= 7  # one for each change
        assert browser.script("return document.activeElement.textContent") == focused
        assert place > 1000
