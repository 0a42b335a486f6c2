"""``get`` against a fake agent: tables as they are printed, formats, selections, watches."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import Result
from msgspec.structs import replace

from kubeletx.api import names
from kubeletx.kube.types.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    ObjectMeta,
    ObjectReference,
    Pod,
    PodCondition,
    PodIP,
    PodSpec,
    PodStatus,
)
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.node import Node, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo
from kubeletx.server.views import ImageListing, ImageView, RuntimeView, VolumeView

Run = Callable[..., Result]
T0 = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
RUNTIME_ONE = RuntimeView(
    name="one", workload_type="container", kind="k", url="unix:///a", status="Ready", since=T0
)


def running(name: str, restarts: int = 0, ready: bool = True) -> ContainerStatus:
    last = ContainerState()
    if restarts:
        last = ContainerState(
            terminated=ContainerStateTerminated(exit_code=1, finished_at=T0 + timedelta(minutes=5))
        )
    return ContainerStatus(
        name=name,
        ready=ready,
        restart_count=restarts,
        image="busybox",
        image_id="sha256:1",
        state=ContainerState(running=ContainerStateRunning(started_at=T0)),
        last_state=last,
    )


def pod(name: str = "web", namespace: str = "default", runtime: str = "one", **changes: Any) -> Pod:
    made = Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{name}",
            creation_timestamp=T0,
            labels={"app": name},
            annotations={names.BOUND_RUNTIME: runtime},
        ),
        spec=PodSpec(containers=(Container(name="web", image="busybox"),), node_name="node-1"),
        status=PodStatus(
            phase="Running",
            pod_ips=(PodIP(ip="10.0.0.2"),),
            start_time=T0,
            container_statuses=(running("web"),),
            conditions=(PodCondition(type="Ready", status="True"),),
        ),
    )
    return msgspec.structs.replace(made, **changes)


def waiting_pod() -> Pod:
    status = ContainerStatus(
        name="web",
        ready=False,
        restart_count=3,
        image="busybox",
        image_id="",
        state=ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff")),
        last_state=ContainerState(
            terminated=ContainerStateTerminated(exit_code=1, finished_at=T0 + timedelta(minutes=9))
        ),
    )
    return pod("bad", runtime="two", status=PodStatus(phase="Running", container_statuses=(status,)))


@pytest.fixture
def pods(agent: Any) -> Any:
    agent.backend.put(pod())
    agent.backend.put(waiting_pod())
    agent.backend.put(pod("other", "kube-system"))
    return agent


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_pods_are_a_table_with_their_runtime(pods: Any, kubeletx: Run) -> None:
    assert lines(kubeletx("get", "pods")) == [
        "NAME   READY   STATUS             RESTARTS      AGE   RUNTIME",
        "bad    0/1     CrashLoopBackOff   3 (60s ago)   10m   two",
        "web    1/1     Running            0             10m   one",
    ]


def test_wide_adds_address_and_node(pods: Any, kubeletx: Run) -> None:
    assert lines(kubeletx("get", "po", "web", "-o", "wide")) == [
        "NAME   READY   STATUS    RESTARTS   AGE   RUNTIME   IP         NODE",
        "web    1/1     Running   0          10m   one       10.0.0.2   node-1",
    ]


def test_all_namespaces_and_no_headers(pods: Any, kubeletx: Run) -> None:
    found = lines(kubeletx("get", "pods", "-A", "--no-headers"))
    assert [line.split()[0] for line in found] == ["default", "default", "kube-system"]
    assert lines(kubeletx("get", "pods", "-n", "kube-system", "-o", "name")) == ["pod/other"]


def test_json_is_a_v1_pod_list_and_one_name_is_a_v1_pod(pods: Any, kubeletx: Run) -> None:
    found = json.loads(kubeletx("get", "pods", "-o", "json").stdout)
    assert (found["apiVersion"], found["kind"], len(found["items"])) == ("v1", "PodList", 2)
    one = json.loads(kubeletx("get", "pod/web", "-o", "json").stdout)
    assert (one["apiVersion"], one["kind"], one["metadata"]["annotations"][names.BOUND_RUNTIME]) == (
        "v1",
        "Pod",
        "one",
    )
    assert yaml.safe_load(kubeletx("get", "pod", "web", "-o", "yaml").stdout) == one


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=web", ["pod/web"]),
        ("app!=web", ["pod/bad"]),
        ("app in (web,bad)", ["pod/bad", "pod/web"]),
        ("!app", []),
    ],
)
def test_labels_select(pods: Any, kubeletx: Run, selector: str, expected: list[str]) -> None:
    assert kubeletx("get", "pods", "-l", selector, "-o", "name").stdout.splitlines() == expected


def test_a_bad_selector_is_explained(pods: Any, kubeletx: Run) -> None:
    result = kubeletx("get", "pods", "-l", "a in b")
    assert result.exit_code == 2
    assert "'in b'" in result.stderr or "is not understood" in result.stderr


def test_names_that_are_not_there_are_errors_with_a_suggestion(pods: Any, kubeletx: Run) -> None:
    result = kubeletx("get", "pods", "wbe", "web")
    assert result.exit_code == 1
    assert "Error: pod 'wbe' not found; did you mean 'web'?" in result.stderr
    assert "web" in result.stdout
    assert "it is in namespace kube-system" in kubeletx("get", "pod", "other").stderr


def test_nothing_found_is_reported_on_standard_error(agent: Any, kubeletx: Run) -> None:
    result = kubeletx("get", "pods")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "No resources found in default namespace.\n"


def test_an_unknown_kind_gets_a_suggestion(agent: Any, kubeletx: Run) -> None:
    result = kubeletx("get", "podz")
    assert result.exit_code == 2
    assert "did you mean 'pod" in result.stderr


def test_runtimes_are_a_table(agent: Any, kubeletx: Run) -> None:
    agent.backend.runtimes = {
        "one": RuntimeView(
            name="one", workload_type="container", kind="containerd", url="unix:///a.sock", status="Ready",
            since=T0, version="containerd 1.6.20", pods=2, default=True,
        ),
        "two": RuntimeView(
            name="two", workload_type="container", kind="containerd", url="unix:///b.sock", status="NotReady",
            since=T0 + timedelta(minutes=9), cordoned=True,
        ),
    }  # fmt: skip
    assert lines(kubeletx("get", "runtimes")) == [
        "NAME   TYPE        KIND         STATUS                        VERSION             PODS   DEFAULT   SINCE   ENDPOINT",
        "one    container   containerd   Ready                         containerd 1.6.20   2      *         10m     unix:///a.sock",
        "two    container   containerd   NotReady,SchedulingDisabled   <none>              0      <none>    60s     unix:///b.sock",
    ]


def test_the_node_is_a_table(agent: Any, kubeletx: Run) -> None:
    agent.backend.node = Node(
        metadata=ObjectMeta(name="node-1", creation_timestamp=T0),
        status=NodeStatus(
            conditions=(
                NodeCondition(type="kubeletx.io/RuntimeReady-one", status="True"),
                NodeCondition(type="kubeletx.io/RuntimeReady-two", status="False", message="gone"),
                NodeCondition(type="Ready", status="True"),
            ),
            node_info=NodeSystemInfo(
                machine_id="",
                system_uuid="",
                boot_id="",
                kernel_version="",
                os_image="",
                container_runtime_version="",
                kubelet_version="kubeletx 0.1.0",
                kube_proxy_version="",
                operating_system="linux",
                architecture="amd64",
            ),
        ),
    )
    assert lines(kubeletx("get", "node")) == [
        "NAME     STATUS   AGE   VERSION          RUNTIMES",
        "node-1   Ready    10m   kubeletx 0.1.0   1/2",
    ]
    agent.backend.node = replace(agent.backend.node, spec=NodeSpec(unschedulable=True))
    assert "Ready,SchedulingDisabled" in kubeletx("get", "node").stdout


def test_images_are_listed_once_for_each_store_and_silence_is_named(agent: Any, kubeletx: Run) -> None:
    agent.backend.images = (
        ImageView(
            store="s1", runtimes=("one", "crun"), id="sha256:" + "a" * 64, ref="sha256:" + "a" * 64,
            tags=("localhost:5000/busybox:1.36",), size_bytes=2_400_000, used_by=("default/web",), pulled_by_us=True,
        ),
    )  # fmt: skip
    agent.backend.missing = ("two",)
    result = kubeletx("get", "images")
    assert lines(result) == [
        "IMAGE                    TAG    IMAGE ID        SIZE    RUNTIMES   PODS",
        "localhost:5000/busybox   1.36   aaaaaaaaaaaaa   2.4MB   one,crun   1",
    ]
    assert result.stderr == "Warning: no answer from two; their images are not shown\n"


def test_images_say_for_which_workload_types_their_store_is_the_default(agent: Any, kubeletx: Run) -> None:
    default = msgspec.structs.replace(an_image("one"), default_for=("container", "vm"))
    agent.backend.images = (default, an_image("two"))
    shown = lines(kubeletx("image", "list", "-o", "wide"))
    column = shown[0].index("DEFAULT FOR")
    assert [line[column:].split("  ")[0] for line in shown[1:]] == ["container,vm", "<none>"]
    items = json.loads(kubeletx("get", "images", "-o", "json").stdout)["items"]
    assert [item["defaultFor"] for item in items] == [["container", "vm"], []]


def test_events_are_a_table(agent: Any, kubeletx: Run) -> None:
    agent.backend.events = [
        Event(
            involved_object=ObjectReference(kind="Pod", namespace="default", name="web"),
            type="Warning",
            reason="BackOff",
            message="Back-off restarting failed container",
            count=3,
            first_timestamp=T0,
            last_timestamp=T0 + timedelta(minutes=9),
        ),
        Event(
            involved_object=ObjectReference(kind="Runtime", name="two"),
            type="Normal",
            reason="RuntimeReady",
            message="ready",
            last_timestamp=T0,
        ),
    ]
    assert lines(kubeletx("get", "events")) == [
        "LAST SEEN           TYPE      REASON         OBJECT        MESSAGE",
        "60s (x3 over 10m)   Warning   BackOff        pod/web       Back-off restarting failed container",
        "10m                 Normal    RuntimeReady   runtime/two   ready",
    ]
    assert len(lines(kubeletx("get", "events", "--for", "pod/web"))) == 2


def test_a_watch_of_images_shows_what_came_changed_and_went(agent: Any, kubeletx: Run) -> None:
    one, two = an_image("one"), an_image("two", runtimes=("other",))
    used = msgspec.structs.replace(one, used_by=("default/web",))
    agent.backend.images = (one, two)
    agent.backend.image_listings = (
        ImageListing(items=(one,), missing=("other",)),  # its images stay as they were
        ImageListing(items=(used, two)),
        ImageListing(items=(two,)),
    )
    result = kubeletx("get", "images", "-w", "--output-watch-events")
    shown = [line.split()[:2] for line in result.stdout.splitlines()]
    assert shown == [
        ["EVENT", "IMAGE"],
        ["ADDED", "docker.io/one"],
        ["ADDED", "docker.io/two"],
        ["MODIFIED", "docker.io/one"],
        ["DELETED", "docker.io/one"],
    ]
    documents = kubeletx("get", "images", "-w", "-ojson", "--output-watch-events").stdout
    assert documents.count('"type": "DELETED"') == 1
    assert kubeletx("get", "images", "-w", "-oname").stdout.split() == [
        "image/docker.io/one:1",
        "image/docker.io/two:1",
        "image/docker.io/one:1",
        "image/docker.io/one:1",
    ]


def test_types_of_changes_need_a_watch_and_a_table(agent: Any, kubeletx: Run) -> None:
    assert "needs --watch" in kubeletx("get", "pods", "--output-watch-events").stderr
    assert "not with -o name" in kubeletx("get", "pods", "-w", "-oname", "--output-watch-events").stderr


def an_image(name: str, runtimes: tuple[str, ...] = ("one",)) -> ImageView:
    return ImageView(
        store=f"store-{runtimes[0]}",
        runtimes=runtimes,
        id=f"sha256:{name}",
        ref=f"sha256:{name}",
        tags=(f"docker.io/{name}:1",),
        size_bytes=1,
    )


def test_a_watch_prints_changes_below_one_heading_until_the_agent_goes(agent: Any, kubeletx: Run) -> None:
    agent.backend.runtimes = {
        "one": RuntimeView(
            name="one", workload_type="container", kind="k", url="unix:///a", status="Ready", since=T0
        )
    }
    result = kubeletx("get", "runtimes", "-w")
    assert result.exit_code == 1
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["NAME", "one"]
    assert "ended the watch" in result.stderr


def test_a_watch_aligns_its_first_rows_with_those_that_follow(agent: Any, kubeletx: Run) -> None:
    agent.backend.runtimes = {
        name: RuntimeView(
            name=name, workload_type="container", kind="k", url="unix:///a", status="Ready", since=T0
        )
        for name in ("a", "a-much-longer-name")
    }
    heading, *rows = kubeletx("get", "runtimes", "-w").stdout.splitlines()
    assert [row.index("container") for row in rows] == [heading.index("TYPE")] * 2


@pytest.mark.parametrize(
    "args",
    [
        ("pods", "-oname"),
        ("pods", "-o=name"),
        ("po", "--output=name", "--all-namespaces=false"),
        ("pods/web", "pod/bad", "-o", "name"),
        ("pod", "web", "bad", "-n=default", "-oname", "--watch=false"),
    ],
)
def test_forms_of_kubectl_are_understood(pods: Any, kubeletx: Run, args: tuple[str, ...]) -> None:
    result = kubeletx("get", *args)
    assert result.exit_code == 0
    assert sorted(result.stdout.split()) == ["pod/bad", "pod/web"]


def test_several_kinds_are_tables_of_their_own_with_the_kind_in_the_name(pods: Any, kubeletx: Run) -> None:
    pods.backend.runtimes = {"one": RUNTIME_ONE}
    for args in (("po,rt",), ("pods,runtimes", "-A=false")):
        text = kubeletx("get", *args).stdout
        first, second = text.split("\n\n")
        assert "pod/web" in first
        assert "runtime/one" in second
    both = json.loads(kubeletx("get", "pod/web", "runtime/one", "-ojson").stdout)
    assert (both["kind"], len(both["items"])) == ("List", 2)
    assert "only one kind" in kubeletx("get", "pods,runtimes", "-w").stderr


def test_a_kind_twice_is_explained(pods: Any, kubeletx: Run) -> None:
    result = kubeletx("get", "pod", "pod/web")
    assert result.exit_code == 2
    assert "'pod/web' has a kind of its own; leave out 'pod'" in result.stderr
    assert "'bad' is not KIND/NAME" in kubeletx("get", "pod/web", "bad").stderr


def test_the_namespace_may_stand_before_the_command(pods: Any, kubeletx: Run) -> None:
    before = kubeletx("-n", "kube-system", "get", "pods", "-oname")
    assert before.stdout == kubeletx("get", "pods", "-nkube-system", "-oname").stdout != ""
    assert kubeletx("-n=kube-system", "get", "pods", "-n", "default", "-oname").stdout.split() == [
        "pod/bad",
        "pod/web",
    ]


def a_volume(name: str, **fields: Any) -> VolumeView:
    given = {
        "namespace": "default",
        "pod": "web",
        "kind": "kubernetes.io/empty-dir",
        "state": "ready",
        **fields,
    }
    return VolumeView(name=name, pod_uid="u1", **given)


DATA = {
    "kind": "example.com/disk", "driver": "flexvolume", "persistent_volume": "pv-1", "claim": "data",
    "since": T0, "capacity_bytes": 1_000_000_000, "used_bytes": 2_000_000, "access_modes": ("ReadWriteOnce",),
    "path": "/var/lib/kubelet/pods/u1/volumes/example.com~disk/pv-1", "options": {"image": "a"},
}  # fmt: skip


def test_volumes_are_a_table_and_are_named_by_pod_or_persistent_volume(agent: Any, kubeletx: Run) -> None:
    agent.backend.volume_views = (
        a_volume("scratch"),
        a_volume("data", **DATA),
        a_volume("late", pod="db", namespace="other", state="preparing", message="the backend is away"),
    )
    assert lines(kubeletx("get", "volumes")) == [
        "NAME          KIND                      STATE   PERSISTENT VOLUME   CAPACITY   USED     SINCE",
        "web/scratch   kubernetes.io/empty-dir   ready   <none>              <none>     <none>   <none>",
        "web/data      example.com/disk          ready   pv-1                1GB        2MB      10m",
    ]
    assert lines(kubeletx("get", "vol", "pv-1", "-o", "name")) == ["volume/web/data"]
    assert lines(kubeletx("get", "volume/web/data", "-o", "name")) == ["volume/web/data"]
    assert "preparing,Failed" in kubeletx("get", "volumes", "-A").stdout
    assert "it is in namespace other" in kubeletx("get", "volume", "db/late").stderr


def test_a_volume_is_described_with_the_events_about_it(agent: Any, kubeletx: Run) -> None:
    agent.backend.volume_views = (a_volume("data", **DATA),)
    ref = ObjectReference(kind="Pod", namespace="default", name="web", uid="u1")
    agent.backend.events = [
        Event(involved_object=ref, type="Warning", reason="FailedMount", message=text, last_timestamp=T0)
        for text in ('MountVolume.SetUp failed for volume "data" : away', 'failed for volume "other" : x')
    ]
    shown = lines(kubeletx("describe", "volume", "web/data"))
    for line in ("Pod:                default/web", "Persistent Volume:  pv-1", "Capacity:           1GB"):
        assert line in shown
    assert sum("FailedMount" in line for line in shown) == 1
    assert shown == lines(kubeletx("describe", "volume", "pv-1"))
    missing = kubeletx("describe", "volume", "web/none")
    assert missing.exit_code == 1
    assert "volume 'web/none' not found; 'kubeletx get volumes -A' lists all" in missing.stderr


def test_a_watch_of_volumes_shows_those_that_are_there(agent: Any, kubeletx: Run) -> None:
    agent.backend.volume_views = (a_volume("scratch"),)
    shown = kubeletx("get", "volumes", "-w").stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["NAME", "web/scratch"]
