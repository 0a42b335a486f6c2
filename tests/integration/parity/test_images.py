"""Images, their credentials, dead containers and logs (I1, I3, I7, I8, I9) with real pulls."""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx.cri.stubs import runtime_v1_pb2 as cri
from kubeletx.runtimes.handles.limits import Limits
from kubeletx_testing.lab import Lab, bound_runtime, image_ref
from kubeletx_testing.lab.images import load_images
from kubeletx_testing.lab.registry import PASSWORD, USERNAME, PrivateRegistry
from tests.integration.support.bench import Bench, container_id, is_running, restarts, until

RELIST_SECONDS = Limits().safety_relist_seconds[0]
CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
containerLogMaxSize: 20Ki
containerLogMaxFiles: 3
containerLogMonitorInterval: 3s
"""


@pytest.fixture(scope="module")
def bench(make_bench: Callable[..., Bench], tmp_path_factory: pytest.TempPathFactory) -> Bench:
    config = tmp_path_factory.mktemp("config") / "kubelet.yaml"
    config.write_text(CONFIG)
    return make_bench(flags=(f"--config={config}",))


def asked(lab: Lab, image: str) -> int:
    """How often the registry was asked for the image's manifest."""
    return sum(f"/v2/{image}/manifests/" in line for line in lab.registry.list_requests())


def test_if_not_present_asks_the_registry_once_and_always_each_time(bench: Bench, lab: Lab) -> None:
    bench.put("first-pull", image="web", command=None, runtime="containerd-b")
    bench.ready("first-pull")
    once = asked(lab, "web")
    bench.put("second-pull", image="web", command=None, runtime="containerd-b")
    bench.ready("second-pull")
    assert asked(lab, "web") == once
    assert bench.event("second-pull", "Pulled", "already present on machine")
    always = {"imagePullPolicy": "Always"}
    bench.put("third-pull", image="web", command=None, container=always, runtime="containerd-b")
    bench.ready("third-pull")
    until(lambda: asked(lab, "web") > once, "a request of the third pod")
    assert bench.event("third-pull", "Pulling")
    assert bench.event("third-pull", "Pulled", "Successfully pulled image")


def test_never_takes_what_is_there(bench: Bench, lab: Lab) -> None:
    with lab["containerd-b"].cri() as calls:
        calls.call("PullImage", image=cri.ImageSpec(image=image_ref("web")))
    never = {"imagePullPolicy": "Never"}
    bench.put("present", image="web", command=None, container=never, runtime="containerd-b")
    bench.ready("present")


def test_the_default_policy_follows_the_tag(bench: Bench) -> None:
    bench.put("tagged")
    assert bench.pod("tagged").spec.containers[0].image_pull_policy == "IfNotPresent"
    bench.put("latest", container={"image": "registry.local/busybox"})
    bench.waiting("latest", "ImagePullBackOff")
    pod = bench.pod("latest")
    assert pod.spec.containers[0].image_pull_policy == "Always"
    bench.remove("tagged", "latest")


@pytest.fixture
def private(lab: Lab, tmp_path: Path) -> Iterator[PrivateRegistry]:
    """A registry that asks for a password, with one image."""
    registry = PrivateRegistry(tmp_path / "private", protected=True)
    registry.start()
    registry.push(image for image in load_images() if image.name == "busybox")
    yield registry
    registry.stop()


def test_credentials_of_the_nodes_docker_config_are_used(bench: Bench, private: PrivateRegistry) -> None:
    image = f"{private.address}/busybox:1"
    bench.put("private", container={"image": image})
    refused = bench.waiting("private", "ImagePullBackOff")
    assert re.search("401|authorization|unauthorized|no basic auth", refused.message or "")
    word = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
    config = bench.agent.root_dir / "config.json"
    config.write_text(json.dumps({"auths": {private.address: {"auth": word}}}))
    bench.remove("private")
    bench.put("allowed", container={"image": image})
    bench.ready("allowed")
    config.unlink()
    assert PASSWORD not in bench.agent.log_path.read_text()
    assert word not in bench.agent.log_path.read_text()


def test_one_dead_container_is_kept_and_older_ones_go_with_their_logs(bench: Bench) -> None:
    bench.put("dying", "echo run; exit 1")
    bench.until("dying", lambda pod: restarts(pod) >= 4)
    pod = bench.pod("dying")
    directory = bench.agent.logs_dir / f"default_dying-lab_{pod.metadata.uid}" / "main"

    def is_tidy() -> bool:
        numbers = sorted(int(path.name.split(".")[0]) for path in directory.iterdir())
        return len(bench.units("dying")) <= 2 and len(numbers) <= 2 and max(numbers, default=0) >= 4

    until(is_tidy, "two containers and two logs at most")
    bench.remove("dying")


def test_logs_are_rotated_by_size_and_older_ones_zipped(bench: Bench) -> None:
    script = "i=0; while :; do i=$((i+1)); echo line $i; [ $((i % 50)) -eq 0 ] && sleep 0.1; done"
    bench.put("talker", script)
    pod = bench.ready("talker")
    directory = bench.agent.logs_dir / f"default_talker-lab_{pod.metadata.uid}" / "main"

    def names() -> list[str]:
        """Finished files; between two steps of a rotation there may be one more, or none to write to."""
        return sorted(path.name for path in directory.iterdir() if not path.name.endswith(".tmp"))

    def unpacked() -> str:
        try:
            return gzip.decompress(next(directory.glob("*.gz")).read_bytes()).decode()
        except (StopIteration, FileNotFoundError):  # none yet; or a rotation has just removed it
            return ""

    lines = until(unpacked, "a zipped file").splitlines()
    assert all(re.fullmatch(r"\S+ stdout F line \d+", line) for line in lines)
    seen: set[str] = set()

    def rotated_twice_more() -> bool:
        seen.update(name.removesuffix(".gz") for name in names())
        return len(seen) >= 5

    until(rotated_twice_more, "two more rotations")
    assert all(re.fullmatch(r"0\.log(\.\d{8}-\d{6})?", name) for name in seen)
    until(lambda: "0.log" in names() and len(names()) <= 3, "three files at most")
    until(  # right after a rotation the present file is empty
        lambda: bench.logs("talker", tailLines=3).count("\n") == 3, "three lines"
    )
    bench.remove("talker")
    assert not directory.parent.exists()


def test_logs_know_tails_times_limits_and_the_run_before(bench: Bench) -> None:
    bench.put("lines", "for i in 1 2 3 4 5; do echo line $i; done; printf unfinished; sleep 1000")
    bench.ready("lines")
    until(lambda: "line 5" in bench.logs("lines"), "all lines")
    assert bench.logs("lines", tailLines=2).startswith("line 5\n") or "line 4" in bench.logs(
        "lines", tailLines=2
    )
    assert len(bench.logs("lines", limitBytes=8)) == 8
    stamped = bench.logs("lines", timestamps="true", tailLines=100).splitlines()[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z line 1", stamped)
    assert bench.logs("lines", sinceSeconds=3600).startswith("line 1\n")
    assert bench.logs("lines", sinceTime="2999-01-01T00:00:00Z") == ""
    with pytest.raises(Exception, match="previous terminated container"):
        bench.logs("lines", previous="true")


def test_a_long_line_is_one_line_again(bench: Bench) -> None:
    bench.put("long", "head -c 40000 /dev/zero | tr '\\0' x; echo; echo end; sleep 1000")
    bench.ready("long")
    until(lambda: "end" in bench.logs("long"), "the last line")
    assert [len(line) for line in bench.logs("long").splitlines()] == [40000, 3]


def test_a_death_is_seen_at_once(bench: Bench) -> None:
    bench.put("seen")
    before = bench.ready("seen")
    with bench.agent.lab[bound_runtime(before)].cri() as calls:
        calls.call("StopContainer", container_id=container_id(before), timeout=0)
    began = time.monotonic()
    bench.until("seen", lambda pod: restarts(pod) == 1 and is_running(pod))
    assert time.monotonic() - began < RELIST_SECONDS / 2
