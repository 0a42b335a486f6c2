"""The contract suite of kubeletx on this plugin."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kubeletx_directory_pods.source import DirectoryPods, Settings

from kubeletx.api import PodSource
from kubeletx.testing import FakeClock, FakePluginHost
from kubeletx.testing.contract import PodSourceContract


class TestDirectoryPods(PodSourceContract):
    @pytest.fixture
    def make_source(self, tmp_path: Path) -> Callable[[], PodSource]:
        settings = Settings(path=str(tmp_path))
        return lambda: DirectoryPods(settings, FakePluginHost(tmp_path, clock=FakeClock(auto_advance=True)))

    @pytest.fixture
    def add(self, tmp_path: Path) -> Callable[[str], None]:
        def write(name: str) -> None:
            spec = {"containers": [{"name": "main", "image": "busybox"}]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            new = tmp_path / "new"
            new.write_text(json.dumps(pod))
            new.rename(tmp_path / f"{name}.json")

        return write

    @pytest.fixture
    def remove(self, tmp_path: Path) -> Callable[[str], None]:
        return lambda name: (tmp_path / f"{name}.json").unlink()
