"""The contract suite of kubeletx on this plugin, and what only this plugin promises."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from kubeletx_image_registry.check import ImageRegistry, Settings

from kubeletx.api import AdmissionCheck, Allow, Refuse
from kubeletx.testing import FakePluginHost
from kubeletx.testing.contract import AdmissionCheckContract

OURS = "registry.example/team/"


class TestImageRegistry(AdmissionCheckContract):
    @pytest.fixture
    def make_check(self, tmp_path: Path) -> Callable[[], AdmissionCheck]:
        return lambda: ImageRegistry(Settings(allowed=(OURS,)), FakePluginHost(tmp_path))

    @pytest.fixture
    def allowed_pod(self) -> Mapping[str, Any]:
        return {"spec": {"containers": [{"name": "main", "image": OURS + "web:1"}]}}

    @pytest.fixture
    def refused_pod(self) -> Mapping[str, Any]:
        return {"spec": {"containers": [{"name": "main", "image": "elsewhere.example/web:1"}]}}


async def test_init_containers_count_and_the_field_is_named(tmp_path: Path) -> None:
    check = ImageRegistry(Settings(allowed=(OURS,)), FakePluginHost(tmp_path))
    containers = [{"name": "main", "image": OURS + "web:1"}]
    spec = {"containers": containers, "initContainers": [{"name": "setup", "image": "busybox"}]}
    answer = await check.review({"spec": spec})
    assert isinstance(answer, Refuse)
    assert answer.message.startswith("spec.initContainers[0].image: 'busybox'")


async def test_without_settings_every_image_is_allowed(tmp_path: Path) -> None:
    check = ImageRegistry(Settings(), FakePluginHost(tmp_path))
    assert await check.review({"spec": {"containers": [{"image": "busybox"}]}}) == Allow()
