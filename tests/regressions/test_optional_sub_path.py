"""A subPath of an optional config map or secret that is not there is an empty directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import InvalidPod, ObjectData
from kubeletx.volumes import VolumePreparer
from tests.unit.volumes.volume_doubles import FakeCluster, FakeMounter, make_pod, make_preparer

SOURCES = [
    {"configMap": {"name": "conf", "optional": True}},
    {"secret": {"secretName": "conf", "optional": True}},
    {"projected": {"sources": [{"configMap": {"name": "conf", "optional": True}}]}},
]


def pod_with(source: dict[str, Any]) -> Any:
    mount = {"name": "v", "mountPath": "/etc/app.conf", "subPath": "app.conf"}
    return make_pod(
        {"volumes": [{"name": "v", **source}], "containers": [{"name": "c", "volumeMounts": [mount]}]}
    )


async def source_of(preparer: VolumePreparer, pod: Any, cluster: FakeCluster, attempt: int = 0) -> Path:
    prepared = await preparer.prepare(pod, cluster)
    found = await preparer.mounts_for(pod, pod.spec.containers[0], prepared, attempt=attempt)
    return Path(found.mounts[0].source)


@pytest.mark.parametrize("source", SOURCES, ids=["configMap", "secret", "projected"])
async def test_a_missing_file_of_an_optional_volume_is_an_empty_directory(
    tmp_path: Path, source: dict[str, Any]
) -> None:
    preparer = make_preparer(tmp_path, mounter=FakeMounter())
    found = await source_of(preparer, pod_with(source), FakeCluster())
    assert list(found.iterdir()) == []
    assert found.stat().st_mode & 0o777 == 0o777
    assert "volume-subpaths" in found.parts


async def test_the_file_is_there_for_the_run_after_its_config_map_came(tmp_path: Path) -> None:
    preparer, cluster, pod = (
        make_preparer(tmp_path, mounter=FakeMounter()),
        FakeCluster(),
        pod_with(SOURCES[0]),
    )
    assert (await source_of(preparer, pod, cluster)).is_dir()
    cluster.config_maps["conf"] = ObjectData(text={"app.conf": "x"})
    assert (await source_of(preparer, pod, cluster, attempt=1)).is_file()


async def test_a_file_that_must_be_there_is_an_error_as_before(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.config_maps["conf"] = ObjectData(text={"other": "x"})
    preparer = make_preparer(tmp_path, mounter=FakeMounter())
    with pytest.raises(InvalidPod, match=r"'app\.conf' is not in volume 'v'"):
        await source_of(preparer, pod_with({"configMap": {"name": "conf"}}), cluster)
