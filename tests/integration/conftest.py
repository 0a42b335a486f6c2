"""Fixtures of the integration tests: one lab of real daemons for the whole run, or for each of its processes.

The lab lives below /tmp/kubeletx-tests/PID. What an aborted earlier run left there is swept first. At the end
everything is stopped, and the run fails when anything is left: processes, mounts, network namespaces,
cgroups, bridges, iptables chains. When a test fails, its report shows what the daemons logged meanwhile.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api.names import AGENT_ID
from kubeletx_testing.lab import Lab, PrivateAgent, PrivateContainerd, clean_stale
from tests.integration.support.bench import Bench

PARENT = Path("/tmp/kubeletx-tests")
LONGEST = (
    "guest_v2/test_cgroup_v2.py",
    "vm/test_contract.py",
    "scripts/test_demo.py",
    "runtimes/test_quark_contract.py",
    "pods/test_standby_kills.py",
    "vm/test_verbs.py",
    "cluster/test_identity.py",
    "vm/test_ends.py",
    "survive/test_outage.py",
    "vm/test_streams.py",
    "cluster/test_objects.py",
    "survive/test_processes.py",
    "cluster/test_faults.py",
    "pods/test_standby.py",
    "scripts/test_package.py",
    "runtimes/test_containerd_contract.py",
    "scripts/test_attack.py",
    "vm/test_user_volumes.py",
    "vm/test_power.py",
    "vm/test_disks.py",
    "storage/test_storage_agent_killed.py",
    "kubelet_api/test_bad_requests.py",
    "scripts/test_bench.py",
    "survive/test_database.py",
    "survive/test_crash.py",
)
"""Files that take longest, the longest first: whichever process takes one last decides when the run ends."""
_LAB = pytest.StashKey[Lab]()
_AGENTS = pytest.StashKey[list[PrivateAgent]]()
_NUMBERS = itertools.count(1)
_MARKS = pytest.StashKey[dict[str, int]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this directory is an integration test. Files that take longest come first."""
    here = Path(__file__).parent
    ranks = {here / name: rank for rank, name in enumerate(LONGEST)}
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.fixture(scope="session")
def lab(pytestconfig: pytest.Config) -> Iterator[Lab]:
    """Registry with images, pod network, containerds ``containerd-a`` and ``containerd-b``."""
    PARENT.mkdir(exist_ok=True)
    clean_stale(PARENT)
    names = os.environ.get("KUBELETX_TEST_CONTAINERDS", "containerd-a containerd-b").split()
    one = Lab(PARENT / str(os.getpid()), containerds=names, logs_dir=PARENT / "logs" / _worker())
    with one:
        pytestconfig.stash[_LAB] = one
        yield one
        del pytestconfig.stash[_LAB]
    assert one.leftovers() == []


@pytest.fixture
def containerd_a(lab: Lab) -> PrivateContainerd:
    """The first containerd, running and not paused."""
    return lab["containerd-a"]


@pytest.fixture
def containerd_b(lab: Lab) -> PrivateContainerd:
    """The second containerd."""
    return lab["containerd-b"]


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """An empty directory for the manifests of `agent` and `make_agent`."""
    directory = tmp_path / "manifests"
    directory.mkdir()
    return directory


@pytest.fixture
def make_agent(
    lab: Lab, manifests: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., PrivateAgent]]:
    """Makes agents on the lab, not started, with keyword arguments of `PrivateAgent`. `kind`: its subclass.

    Afterwards agents are stopped, all pods but those of the file's own agents (`make_bench`) are removed from
    both containerds, and what the agents left in mounts, cgroups and files goes too.
    """
    made: list[PrivateAgent] = []

    def make(*, kind: type[PrivateAgent] = PrivateAgent, **arguments: Any) -> PrivateAgent:
        arguments.setdefault("name", f"agent-{next(_NUMBERS)}")
        arguments.setdefault("manifest_dir", manifests)
        made.append(kind(lab, **arguments))
        request.node.stash.setdefault(_AGENTS, made)
        return made[-1]

    yield make
    module = request.node.getparent(pytest.Module)
    _end_agents(lab, made, others=module.stash.get(_AGENTS, []) if module is not None else [])


@pytest.fixture
def agent(make_agent: Callable[..., PrivateAgent]) -> PrivateAgent:
    """One agent on both containerds, started, with an empty manifest directory."""
    one = make_agent()
    one.start()
    return one


@pytest.fixture(scope="module")
def make_bench(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Bench]]:
    """Makes started agents that serve all tests of one file, each with a manifest directory of its own."""
    made: list[PrivateAgent] = []

    def make(**arguments: Any) -> Bench:
        manifests = tmp_path_factory.mktemp("bench") / "manifests"
        manifests.mkdir()
        arguments.setdefault("name", f"agent-{next(_NUMBERS)}")
        made.append(PrivateAgent(lab, manifest_dir=manifests, **arguments))
        request.node.stash.setdefault(_AGENTS, made)
        made[-1].start()
        return Bench(made[-1], manifests)

    yield make
    _end_agents(lab, made)


@pytest.fixture(scope="module")
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """One agent with the usual flags for all tests of a file."""
    return make_bench()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Remember how long the daemons' logs are before the test."""
    running = item.config.stash.get(_LAB, None)
    item.stash[_MARKS] = _sizes(running)
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the daemons' logs to the report of a failed test."""
    report = yield
    running = item.config.stash.get(_LAB, None)
    if report.failed:
        for agent in _agents_of(item):
            report.sections.append((f"log of {agent.root_dir.name}", agent.log_tail(120)))
    if report.failed and running is not None:
        marks = item.stash.get(_MARKS, {})
        for name, one in running.containerds.items():
            if one.log_path.is_file():
                text = one.log_path.read_bytes()[marks.get(name, 0) :].decode(errors="replace")
                report.sections.append((f"log of {name}", "\n".join(text.splitlines()[-60:])))
    return report


def _worker() -> str:
    """This process among those that share the tests (pytest-xdist)."""
    return os.environ.get("PYTEST_XDIST_WORKER", "alone")


def _end_agents(lab: Lab, made: list[PrivateAgent], others: Sequence[PrivateAgent] = ()) -> None:
    for agent in made:
        agent.stop()
    ids = [one.root_dir / "agent-id" for one in others]
    kept = {path.read_text().strip() for path in ids if path.exists()}
    for containerd in lab.containerds.values():
        if not containerd.daemon.is_running:
            containerd.start_daemon()
        containerd.resume()
        containerd.wait_until_ready()
        with containerd.cri() as cri:
            cri.remove_all(keep=lambda box: box.labels.get(AGENT_ID) in kept)
            cri.remove_foreign_images()
    for agent in made:
        agent.remove_files()


def _agents_of(item: pytest.Item) -> list[PrivateAgent]:
    module = item.getparent(pytest.Module)
    shared = module.stash.get(_AGENTS, []) if module is not None else []
    return [*shared, *item.stash.get(_AGENTS, [])]


def _sizes(running: Lab | None) -> dict[str, int]:
    if running is None:
        return {}
    return {
        name: one.log_path.stat().st_size
        for name, one in running.containerds.items()
        if one.log_path.is_file()
    }
