"""What the request of a pull contains about the pod that needs the image, and the pod's warnings."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from kubeletx.api import (
    ClusterObjects,
    ImageAuth,
    ImageSpec,
    ImageStatus,
    ObjectData,
    PodUid,
    SandboxSpec,
    Unavailable,
)
from kubeletx.api.names import POD_SOURCE
from kubeletx.kube.types.core import (
    Container,
    ImageVolumeSource,
    LocalObjectReference,
    ObjectMeta,
    Pod,
    PodSpec,
    VirtualMachine,
    Volume,
    VolumeMount,
)
from kubeletx.pods.counters import Counters
from kubeletx.pods.pod_events import PodEvents
from kubeletx.pods.unit_images import ImageUser, UnitImages
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.images.store import PullFailed
from kubeletx.runtimes.images.stores import ImageStores
from kubeletx.runtimes.images.verification import Puller
from kubeletx.testing import FakeClock, FakeEventSink

IMAGE = "registry.example/disks/debian:12"


class Pulls:
    """Stores with nothing in them, which write down how they are asked."""

    def __init__(self) -> None:
        self.auths: tuple[ImageAuth, ...] = ()
        self.sandbox: SandboxSpec | None = None
        self.puller: Puller | None = None
        self.present: ImageStatus | None = None
        self.is_open = False
        self.problem: Exception | None = None
        self.is_pulled = False

    async def of(self, _handle: object) -> Pulls:
        return self

    async def find_shared(self, _image: ImageSpec, via: object) -> ImageStatus | None:
        return self.present

    async def may_use(self, _image: ImageSpec, _present: ImageStatus, **how: Any) -> bool:
        self.auths, self.puller = tuple(one.auth for one in how["credentials"]), how["puller"]
        return self.is_open

    async def pull(self, image: ImageSpec, **how: Any) -> ImageStatus:
        self.auths = tuple(one.auth for one in how["credentials"])
        self.sandbox, self.puller = how["sandbox"], how["puller"]
        self.is_pulled = True
        if self.problem is not None:
            raise self.problem
        return ImageStatus(id=image.requested, ref=image.requested)


class Cluster:
    """Secrets of a cluster; a read of "silent" gets no answer."""

    def __init__(self, **secrets: dict[str, bytes]) -> None:
        self._secrets = secrets

    async def find_secret(self, _namespace: str, name: str) -> ObjectData | None:
        if name == "silent":
            raise Unavailable("the API server does not answer")
        return ObjectData(binary=self._secrets[name]) if name in self._secrets else None

    async def find_config_map(self, _namespace: str, _name: str) -> ObjectData | None:
        raise AssertionError("no pull needs a config map")


def docker_config(server: str, username: str) -> bytes:
    return json.dumps({"auths": {server: {"username": username, "password": "p"}}}).encode()


async def pull(
    *secrets: str,
    cluster: Cluster | None,
    machine: bool = True,
    source: str = "api",
    image: str = IMAGE,
    policy: str | None = None,
    pulls: Pulls | None = None,
    volume: str | None = None,
) -> tuple[Pulls, list[tuple[str, str]]]:
    """The requests of the pod's image to the store, and the pod's warnings."""
    parts: dict[str, Any] = {"containers": (Container(name="main", image=image, image_pull_policy=policy),)}
    if volume is not None:
        main = Container(name="main", image=image, volume_mounts=(VolumeMount(name="v", mount_path="/v"),))
        parts = {
            "containers": (main,),
            "volumes": (Volume(name="v", image=ImageVolumeSource(reference=volume)),),
        }
    if machine:
        parts = {"virtual_machine": VirtualMachine(name="main", image=image, image_pull_policy=policy)}
    pod = Pod(
        metadata=ObjectMeta(name="p", namespace="team", uid=PodUid("u")),
        spec=PodSpec(
            service_account_name="builder",
            image_pull_secrets=tuple(LocalObjectReference(name=one) for one in secrets),
            **parts,
        ),
    )
    user = ImageUser(
        container=pod.spec.virtual_machine or pod.spec.containers[0],
        pod=pod,
        source=source,
        has_own_kernel=machine,
        handle=cast(RuntimeHandle, None),
        events=PodEvents(sink := FakeEventSink(), pod),
    )
    pulls = pulls or Pulls()
    objects = {} if cluster is None else {source: cast(ClusterObjects, cluster)}
    images = UnitImages(cast(ImageStores, pulls), FakeClock(), Counters(), objects)
    await images.ensure(user)
    warnings = [(one.reason, one.message) for one in sink.recorded if one.type == "Warning"]
    return pulls, warnings


@pytest.mark.parametrize("machine", [True, False])
async def test_the_pods_secrets_that_fit_the_image_reach_the_pull_in_their_order(machine: bool) -> None:
    cluster = Cluster(
        new={".dockerconfigjson": docker_config("https://registry.example/v2/", "new")},
        other={".dockerconfigjson": docker_config("elsewhere.example", "other")},
        old={".dockercfg": json.dumps({"registry.example": {"username": "old", "password": "p"}}).encode()},
    )
    pulls, warnings = await pull("old", "other", "new", "old", cluster=cluster, machine=machine)
    assert [one.username for one in pulls.auths] == ["old", "new"]
    assert warnings == []


async def test_a_secret_for_the_server_of_a_machines_image_file_says_which_server_it_is_for() -> None:
    cluster = Cluster(secret={".dockerconfigjson": docker_config("files.example:8443", "me")})
    for image in ("https://files.example:8443/Disk.qcow2?a=b", "files.example:8443/disk.img.xz"):
        pulls, _ = await pull("secret", cluster=cluster, image=image)
        assert [one.server_address for one in pulls.auths] == ["https://files.example:8443"]


async def test_secrets_that_cannot_be_read_are_reported_and_do_not_stop_the_pull() -> None:
    cluster = Cluster(broken={".dockerconfigjson": b"{"}, empty={})
    pulls, warnings = await pull("gone", "silent", "broken", "empty", cluster=cluster)
    assert pulls.auths == ()
    ((reason, text),) = warnings
    assert reason == "FailedToRetrieveImagePullSecret"
    assert "(gone, silent, broken)" in text


async def test_a_machines_pull_says_whose_pod_asks_and_a_containers_need_not() -> None:
    pulls, _ = await pull(cluster=None, source="api")
    assert pulls.sandbox is not None
    assert (pulls.sandbox.uid, pulls.sandbox.annotations) == ("u", {POD_SOURCE: "api"})
    pulls, _ = await pull(cluster=None, machine=False)
    assert pulls.sandbox is None


async def test_every_pull_names_the_pod_and_its_service_account() -> None:
    pulls, _ = await pull(cluster=None, machine=False)
    assert pulls.puller == Puller(
        uid=PodUid("u"), namespace="team", name="p", service_account="builder", source="api"
    )


def with_image(*, is_open: bool, problem: Exception | None = None) -> Pulls:
    pulls = Pulls()
    pulls.present, pulls.is_open, pulls.problem = ImageStatus(id="i", ref=IMAGE), is_open, problem
    return pulls


@pytest.mark.parametrize("policy", ["IfNotPresent", "Never"])
@pytest.mark.parametrize("machine", [True, False])
async def test_an_image_that_is_present_is_used_only_if_the_pods_secrets_open_it(
    machine: bool, policy: str
) -> None:
    cluster = Cluster(mine={".dockerconfigjson": docker_config("registry.example", "me")})
    opened = with_image(is_open=True)
    _, warnings = await pull("mine", cluster=cluster, machine=machine, policy=policy, pulls=opened)
    assert (opened.is_pulled, warnings) == (False, [])
    assert [one.username for one in opened.auths] == ["me"]
    closed = with_image(is_open=False)
    _, warnings = await pull("mine", cluster=cluster, machine=machine, policy=policy, pulls=closed)
    assert closed.is_pulled is (policy == "IfNotPresent")
    if policy == "Never":
        reason, text = warnings[0]
        assert reason == "ErrImageNeverPull"
        assert "is present with pull policy of Never, but image pull credentials verification failed" in text


async def test_a_failed_pull_of_an_image_that_is_present_says_that_it_was_a_verification() -> None:
    failed = with_image(is_open=False, problem=PullFailed("401 Unauthorized", retry_at=1.0))
    _, warnings = await pull(cluster=None, pulls=failed, machine=False)
    text = (
        f'Failed to pull image "{IMAGE}": image pull credentials verification of the present image failed: '
    )
    assert warnings[0] == ("Failed", f"{text}401 Unauthorized")


async def test_a_missing_pull_secret_is_reported_for_an_image_that_is_present_too() -> None:
    _, warnings = await pull("gone", cluster=Cluster(), pulls=with_image(is_open=True))
    assert [reason for reason, _ in warnings] == ["FailedToRetrieveImagePullSecret"]


async def test_the_image_of_a_volume_is_used_only_if_the_pods_secrets_open_it() -> None:
    class Stores(Pulls):
        async def may_use(self, image: ImageSpec, _present: ImageStatus, **_how: Any) -> bool:
            return image.requested == IMAGE

    stores = Stores()
    stores.present, stores.problem = ImageStatus(id="i", ref=IMAGE), PullFailed("401", retry_at=1.0)
    secret = "registry.example/secret/data:1"
    _, warnings = await pull(cluster=None, machine=False, pulls=stores, volume=secret)
    assert warnings[0][1].startswith(f'Failed to pull image "{secret}": image pull credentials verification')
    stores = Stores()
    stores.present = ImageStatus(id="i", ref=IMAGE)
    _, warnings = await pull(cluster=None, machine=False, pulls=stores, volume=IMAGE)
    assert (stores.is_pulled, warnings) == (False, [])
