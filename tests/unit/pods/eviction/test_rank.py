"""Pods that an eviction takes first, pods that it spares, and what it reports."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import PodUid
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from kubeletx.node.thresholds import MEMORY, NODE, PIDS, MetThreshold, Observation, Threshold
from kubeletx.pods.eviction.rank import low_on, rank, usage
from kubeletx.pods.eviction.use import ContainerUse, PodUse
from kubeletx.pods.model.priority import CRITICAL_PRIORITY
from kubeletx.pods.model.sources import BUILT_IN
from kubeletx.volumes.disk_usage import DiskUse

MI = 1 << 20


def met(signal: str = MEMORY, place: str = NODE, amount: str = "100Mi") -> MetThreshold:
    seen = Observation(signal=signal, place=place, available=50 * MI, capacity=1000 * MI)
    return MetThreshold(threshold=Threshold(signal=signal, amount=amount), observation=seen)


def use(
    name: str,
    *,
    memory: int | None = None,
    request: str = "",
    priority: int | None = None,
    source: str = "api",
    rootfs: int | None = None,
    logs: int | None = None,
    volume: int | None = None,
    pids: int | None = None,
    image_place: str | None = NODE,
    resource: str = "memory",
) -> PodUse:
    requests = ResourceRequirements(requests={resource: request} if request else {})
    pod = Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=PodUid(name)),
        spec=PodSpec(containers=(Container(name="main", image="i", resources=requests),), priority=priority),
    )
    disk = {
        part: DiskUse(bytes=size, inodes=size // 100)
        for part, size in (("rootfs", rootfs), ("logs", logs))
        if size is not None
    }
    container = ContainerUse(name="main", memory_bytes=memory, **disk)
    return PodUse(
        uid=PodUid(name),
        pod=pod,
        source=BUILT_IN.of(source),
        containers=(container,),
        volumes={"data": DiskUse(bytes=volume, inodes=volume // 100)} if volume is not None else {},
        pids=pids,
        image_place=image_place,
    )


def order(uses: list[PodUse], what: MetThreshold) -> list[str]:
    return [one.pod.name for one in rank(uses, what)]


def test_over_the_request_comes_before_priority_and_priority_before_excess() -> None:
    pods = [
        use("modest", memory=90 * MI, request="100Mi", priority=-5),
        use("important", memory=900 * MI, request="1Mi", priority=1000),
        use("greedy", memory=80 * MI, request="10Mi"),
        use("greedier", memory=70 * MI),
        use("unmeasured"),
    ]
    # 80 - 10 and 70 - 0 are equal: the name decides
    assert order(pods, met()) == ["greedier", "greedy", "important", "modest", "unmeasured"]


def test_critical_pods_are_never_evicted() -> None:
    pods = [
        use("of a file", memory=MI, source="file"),
        use("of a url", memory=MI, source="http"),
        use("system", memory=MI, priority=CRITICAL_PRIORITY),
        use("user", memory=MI, priority=CRITICAL_PRIORITY - 1),
        use("applied", memory=MI, source="applied"),
    ]
    assert order(pods, met()) == ["applied", "user"]


def test_a_store_that_is_short_costs_pods_of_its_own_runtimes_only() -> None:
    pods = [
        use("here", rootfs=MI, image_place="disk 8:1"),
        use("there", rootfs=900 * MI, image_place="disk 8:2"),
        use("nowhere", volume=900 * MI, image_place=None),
    ]
    assert order(pods, met("imagefs.available", "disk 8:1")) == ["here"]
    assert order(pods, met("nodefs.available")) == ["nowhere", "here", "there"]


def test_what_counts_is_what_lies_on_the_disk_that_is_short() -> None:
    apart = use("apart", rootfs=1000, logs=200, volume=30, image_place="disk 8:1")
    beside = use("beside", rootfs=1000, logs=200, volume=30)
    assert usage(apart, met("nodefs.available")) == 230
    assert usage(beside, met("nodefs.available")) == 1230
    assert usage(apart, met("imagefs.available", "disk 8:1")) == 1000
    assert usage(beside, met("nodefs.inodesFree")) == 12


def test_processes_are_ranked_by_priority_and_number() -> None:
    pods = [use("few", pids=3), use("many", pids=9), use("low", pids=1, priority=-1)]
    assert order(pods, met(PIDS, amount="10")) == ["low", "many", "few"]


def test_the_message_is_the_kubelets() -> None:
    assert low_on(met(), use("web", memory=30 * MI, request="10Mi")) == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
        "Container main was using 30Mi, request is 10Mi, has larger consumption of memory. "
    )
    assert low_on(met(), use("web", memory=5 * MI, request="10Mi")) == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
    )
    assert low_on(met("nodefs.available", amount="10%"), use("web", rootfs=MI, logs=MI)) == (
        "The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: 50Mi. "
        "Container main was using 2Mi, request is 0, has larger consumption of ephemeral-storage. "
    )


uses = st.builds(
    use,
    st.uuids().map(str),
    memory=st.none() | st.integers(0, 200 * MI),
    request=st.sampled_from(["", "50Mi", "100Mi"]),
    priority=st.none() | st.sampled_from([-1, 0, 7, CRITICAL_PRIORITY]),
    source=st.sampled_from(["api", "file", "applied"]),
    rootfs=st.none() | st.integers(0, 200 * MI),
    image_place=st.sampled_from([None, NODE, "disk 8:1"]),
)


@given(st.lists(uses, max_size=8), st.sampled_from([met(), met("imagefs.available", "disk 8:1"), met(PIDS)]))
def test_the_order_is_total_and_spares_the_pods_that_it_must(pods: list[PodUse], what: MetThreshold) -> None:
    ranked = rank(pods, what)
    assert ranked == rank(list(reversed(pods)), what)
    assert not any(one.is_critical for one in ranked)
    assert {one.uid for one in ranked} <= {one.uid for one in pods}
    if what.threshold.signal.startswith("imagefs"):
        assert all(one.image_place == "disk 8:1" for one in ranked)
    if what.threshold.signal == MEMORY:
        above = [(one.memory_bytes or 0) > _request(one) for one in ranked if one.memory_bytes is not None]
        assert above == sorted(above, reverse=True)


def _request(one: PodUse) -> int:
    text = one.pod.spec.containers[0].resources.requests.get("memory", "0Mi")
    return int(text.removesuffix("Mi")) * MI
