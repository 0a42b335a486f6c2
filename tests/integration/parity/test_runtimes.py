"""Runtime classes and handlers: two runtimes on one containerd share its lists, pods and images without mixing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletx.server.views import RuntimeView
from kubeletx_testing.lab import Lab, PrivateContainerd, bound_runtime, image_ref
from kubeletx_testing.lab.images import make_image
from tests.integration.support.bench import Bench, container_id, is_running, until

MakeBench = Callable[..., Bench]

CLASSES = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
kubeletx:
  runtimeClasses:
    second: containerd-b
    special: containerd-a--runc-two
    strange: containerd-a--kata
"""


@pytest.fixture(scope="module")
def bench(make_bench: MakeBench, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    config = tmp_path_factory.mktemp("config") / "kubelet.yaml"
    config.write_text(CLASSES)
    return make_bench(flags=(f"--config={config}",))


def handler(bench: Bench, name: str) -> str:
    """The runtime handler of the newest sandbox, as containerd reports it."""
    text: str = bench.sandboxes(name)[-1].runtime_handler
    return text


def test_a_runtime_class_names_a_runtime(bench: Bench) -> None:
    bench.put("by-class", spec={"runtimeClassName": "second"})
    assert bound_runtime(bench.ready("by-class")) == "containerd-b"
    assert handler(bench, "by-class") == ""


def test_a_runtime_class_may_add_a_handler(bench: Bench) -> None:
    bench.put("by-handler", spec={"runtimeClassName": "special"})
    assert bound_runtime(bench.ready("by-handler")) == "containerd-a"
    assert handler(bench, "by-handler") == "runc-two"


def test_a_class_and_a_name_that_agree_are_one_wish_and_others_are_rejected(bench: Bench) -> None:
    bench.put("agreed", runtime="containerd-a", spec={"runtimeClassName": "special"})
    assert bound_runtime(bench.ready("agreed")) == "containerd-a"
    assert handler(bench, "agreed") == "runc-two"
    bench.put("torn", runtime="containerd-a", spec={"runtimeClassName": "second"})
    pod = bench.ended("torn")
    assert (pod.status.phase, pod.status.reason) == ("Failed", "RuntimeMismatch")
    assert "containerd-a" in (pod.status.message or "")
    assert "containerd-b" in (pod.status.message or "")


def test_an_unknown_class_or_handler_waits_with_an_event(bench: Bench) -> None:
    bench.put("unmapped", spec={"runtimeClassName": "nobody"})
    bench.put("no-handler", spec={"runtimeClassName": "strange"})
    assert "'nobody' is not mapped" in bench.event("unmapped", "RuntimeNotFound")["message"]
    assert "no handler 'kata'" in bench.event("no-handler", "RuntimeNotFound")["message"]
    assert bench.pod("unmapped").status.phase == "Pending"
    assert bench.pod("no-handler").status.phase == "Pending"


def test_the_annotation_names_a_runtime_too(bench: Bench) -> None:
    bench.put("annotated", metadata={"annotations": {"kubeletx.io/runtime-service-name": "containerd-b"}})
    assert bound_runtime(bench.ready("annotated")) == "containerd-b"


@pytest.fixture(scope="module")
def pair(make_bench: MakeBench, lab: Lab) -> Bench:
    """An agent with two runtimes on one containerd, told apart by their handler, and one on the other."""
    url = lab["containerd-a"].endpoint
    endpoints = ";".join(
        (
            f"container:runc:{url}?handler=runc",
            f"container:runc-two:{url}?handler=runc-two",
            f"container:other:{lab['containerd-b'].endpoint}",
        )
    )
    return make_bench(endpoints=endpoints, node_name="pair")


def on_a(lab: Lab) -> dict[str, str]:
    """Pod name to handler of all ready sandboxes of containerd-a."""
    with lab["containerd-a"].cri() as calls:
        return {box.metadata.name: box.runtime_handler for box in calls.sandboxes(ready_only=True)}


def three(pair: Bench) -> list[str]:
    """Names of three pods, one for each runtime, that are put unless they are there."""
    for runtime in ("runc", "runc-two", "other"):
        pair.put(f"at-{runtime}", runtime=runtime)
    return [f"at-{runtime}" for runtime in ("runc", "runc-two", "other")]


def test_two_runtimes_on_one_containerd_each_have_their_own_pods(pair: Bench, lab: Lab) -> None:
    three(pair)
    pair.put("by-default")
    for runtime in ("runc", "runc-two", "other"):
        assert bound_runtime(pair.agent.wait_for(f"at-{runtime}")) == runtime
    assert bound_runtime(pair.agent.wait_for("by-default")) == "runc"
    found = on_a(lab)
    assert found["at-runc-pair"] == "runc"
    assert found["at-runc-two-pair"] == "runc-two"
    assert "at-other-pair" not in found
    assert [pod.metadata.name for pod in pair.agent.pods()].count("at-runc-pair") == 1

    def counts() -> dict[str, int]:
        return {one.name: one.pods for one in pair.agent.runtimes()}

    until(lambda: counts() == {"runc": 2, "runc-two": 1, "other": 1}, "each pod counted once")


def test_their_images_are_one_store_that_is_pulled_into_once(pair: Bench, lab: Lab) -> None:
    def pulls() -> int:
        return sum("/v2/shared-store/manifests/" in line for line in lab.registry.list_requests())

    lab.registry.push([make_image("shared-store", tag="1")])
    before = pulls()
    pair.put("store-one", runtime="runc", image="shared-store")
    pair.agent.wait_for("store-one")
    once = until(lambda: pulls() - before, "a pull")
    pair.put("store-two", runtime="runc-two", image="shared-store")
    pair.agent.wait_for("store-two")
    assert pulls() - before == once

    def is_reported() -> bool:
        images = json.loads(pair.agent.get("/v1/images"))["items"]
        rows = [one for one in images if image_ref("shared-store") in one["tags"] and one["pulledByUs"]]
        users = {name.rsplit("/")[-1] for one in rows for name in one["usedBy"]}
        is_one = [sorted(one["runtimes"]) for one in rows] == [["runc", "runc-two"]]
        return is_one and users == {"store-one-pair", "store-two-pair"}

    until(is_reported, "one row for the image, with both of its users")


def test_usage_of_one_store_is_counted_once(pair: Bench) -> None:
    usage = pair.agent.usage()
    assert {one.name for one in usage.runtimes} == {"runc", "runc-two", "other"}


def test_a_restarted_agent_finds_each_pod_on_its_own_runtime(pair: Bench) -> None:
    before = {name: pair.agent.wait_for(name) for name in three(pair)}
    pair.agent.kill()
    pair.agent.start()
    for name, pod in before.items():
        again = pair.until(name, is_running)
        assert bound_runtime(again) == bound_runtime(pod)
        assert container_id(again) == container_id(pod)


def test_pods_of_one_go_without_the_others(pair: Bench, lab: Lab) -> None:
    for name in three(pair):
        pair.ready(name)
    pair.remove("at-runc-two")
    assert "at-runc-two-pair" not in on_a(lab)
    assert on_a(lab)["at-runc-pair"] == "runc"
    assert is_running(pair.pod("at-runc"))


def test_a_runtime_without_a_network_takes_only_pods_on_the_nodes_network(
    make_bench: MakeBench, lab: Lab, tmp_path: Path
) -> None:
    (tmp_path / "conf").mkdir()
    lone = PrivateContainerd(
        "no-network",
        lab.base_dir,
        cni_conf_dir=tmp_path / "conf",
        cni_bin_dir=lab.network.bin_dir,
        registry_address=lab.registry.address,
    )
    with lone:
        lab.containerds["no-network"] = lone
        try:
            one = make_bench(endpoints=f"container:no-network:{lone.endpoint}", node_name="net")
            one.put("on-host", spec={"hostNetwork": True})
            one.put("on-pod")
            one.agent.wait_for("on-host")
            assert one.event("on-pod", "NetworkNotReady")["type"] == "Warning"
            assert one.pod("on-pod").status.phase == "Pending"
            for file in lab.network.conf_dir.iterdir():
                (tmp_path / "conf" / file.name).write_bytes(file.read_bytes())
            one.agent.wait_for("on-pod")
            one.remove("on-host", "on-pod")
            one.agent.stop()
        finally:
            del lab.containerds["no-network"]


def test_an_endpoint_whose_handler_the_server_lacks_is_not_ready(make_bench: MakeBench, lab: Lab) -> None:
    url = lab["containerd-a"].endpoint
    one = make_bench(endpoints=f"container:good:{url};container:bad:{url}?handler=kata", node_name="bad")

    def views() -> dict[str, RuntimeView]:
        return {view.name: view for view in one.agent.runtimes()}

    until(lambda: views()["good"].status == "Ready" and "kata" in views()["bad"].message, "an answer of both")
    assert {name: view.status for name, view in views().items()} == {"good": "Ready", "bad": "NotReady"}
