"""Sources of the configuration: several documents, files that change, ConfigMaps of a cluster, the last good version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeletx.api import SystemClock
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.remedy.sources import ConfigSources, LoadedConfig, load_config
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.waiting import until

from .config_values import FENCED, fence, loaded, node, problems, properties

MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: fence-config-one}
data:
  config.properties: isolation=mark-unschedulable
"""


# --- documents ---


def test_a_file_has_several_documents_and_lists() -> None:
    other = MAP.replace("-one", "-two").replace("\n", "\n  ").replace("  apiVersion", "- apiVersion", 1)
    found = loaded(f"{FENCED}---\n{MAP}---\nkind: List\nitems:\n{other}")
    assert problems(found) == []
    for name in ("one", "two"):
        assert [one.name for one in fence(found, node(name)).isolation] == ["mark-unschedulable"]


def test_configurations_in_config_maps_are_named_by_map_and_key() -> None:
    maps = {
        "remedy-config-a": {"one.yaml": FENCED, "two.yaml": f"{FENCED}---\n{FENCED}"},
        "other": {"x": FENCED},
    }
    found = load_config({}, maps, LoadedConfig())
    assert [one.configuration for one in found.configurations.courses(node())] == [
        "remedy-config-a/one.yaml",
        "remedy-config-a/two.yaml",
        "remedy-config-a/two.yaml-2",
    ]


def test_a_config_map_of_a_file_wins_over_the_clusters() -> None:
    maps = {"fence-config-one": properties("isolation=out-of-service")}
    assert fence(loaded(f"{FENCED}---\n{MAP}", maps)).isolation[0].name == "mark-unschedulable"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "c.yaml: line 2: is not YAML"),
        ("a: 1\na: 2", "c.yaml: line 2: has the key 'a' twice; remove one of them"),
        ("text", "c.yaml: 'text' is not a mapping"),
        ("kind: Secret", "c.yaml: apiVersion None, kind 'Secret' is not read; write node-remedy/v1alpha"),
        (MAP.replace("fence-config-one", "fence-confg"), "c.yaml: metadata.name: 'fence-confg' is not read"),
        (MAP.replace("isolation=mark-unschedulable", "5"), "c.yaml: data.config.properties: 5 is not a text"),
        (f"{MAP}---\n{MAP}", "c.yaml document 2: ConfigMap fence-config-one is there twice; keep one"),
        (
            "\n---\n".join([f"{FENCED}metadata: {{name: one}}"] * 2),
            "c.yaml document 2: metadata.name: 'one' is also the name of c.yaml document 1",
        ),
    ],
)
def test_a_document_that_is_not_read_is_named(text: str, expected: str) -> None:
    (problem,) = problems(loaded(text))
    assert problem.startswith(expected)


@pytest.mark.parametrize("broken", ["a: [", FENCED.replace("5s", "-5s"), FENCED.replace("fence", "repair")])
def test_the_last_good_configuration_stays_until_it_is_removed(broken: str) -> None:
    before = loaded(FENCED)
    during = loaded(broken, last=loaded(broken, last=before))
    assert len(problems(during)) == 1
    assert [one.threshold.period for one in during.configurations.courses(node())] == [5.0]
    assert load_config({}, {}, during).configurations.courses(node()) == []


# --- files and the cluster ---


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServerDouble]:
    with ApiServerDouble(tmp_path / "api") as double:
        yield double


@asynccontextmanager
async def running(sources: ConfigSources) -> AsyncIterator[None]:
    task = asyncio.create_task(sources.run(), name="sources")
    try:
        await until(lambda: sources.ready.is_set() or task.done())
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def periods(sources: ConfigSources) -> list[float]:
    return [one.threshold.period for one in sources.configurations.courses(node())]


async def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    file, target = tmp_path / "c.yaml", tmp_path / "target.yaml"
    target.write_text(FENCED)
    file.symlink_to(target)
    missing = tmp_path / "missing.yaml"
    sources = ConfigSources(
        [file, missing], client=None, namespace="kube-system", clock=SystemClock(), poll_seconds=0.01
    )
    sources.read_files()
    assert periods(sources) == [5.0]
    (problem,) = sources.problems
    assert (problem.obj, problem.problem) == (str(missing), "No such file or directory")
    async with running(sources):
        target.write_text(FENCED.replace("5s", "7s"))
        await until(lambda: periods(sources) == [7.0])
        target.write_text("a: [")
        await until(lambda: len(sources.problems) == 2)
        target.unlink()
        await until(lambda: [one.obj for one in sources.problems] == [str(file), str(missing), str(file)])
        assert periods(sources) == [7.0]
        target.write_text(FENCED.replace("5s", "9s"))
        missing.write_text("")
        await until(lambda: periods(sources) == [9.0] and not sources.problems)


async def test_config_maps_are_followed(api: ApiServerDouble) -> None:
    clock, changes = SystemClock(), []
    client = KubeClient(load_kubeconfig(api.admin_kubeconfig()), clock=clock)
    sources = ConfigSources(
        [],
        client=client,
        namespace="kube-system",
        clock=clock,
        changed=lambda: changes.append(periods(sources)),
        settle_seconds=0.01,
    )

    def apply(name: str, data: dict[str, str], namespace: str = "kube-system") -> None:
        api.admin.create("configmaps", {"metadata": {"name": name}, "data": data}, namespace)

    apply("remedy-config", {"c.yaml": FENCED})
    apply("remedy-config-other", {"c.yaml": FENCED.replace("5s", "1s")}, "default")
    async with running(sources):
        assert periods(sources) == [5.0]
        assert changes == [[5.0]]
        apply("fence-config-one", properties("isolation=mark-unschedulable"))
        apply("remedy-settings", {"settings.properties": "retries=7"})
        await until(lambda: sources.configurations.settings.retries == 7)
        await until(lambda: [*sources.configurations.courses(node())[0].courses[0].isolation] != [])
        api.admin.delete("configmaps", "remedy-config", "kube-system")
        await until(lambda: periods(sources) == [])
    await client.close()
