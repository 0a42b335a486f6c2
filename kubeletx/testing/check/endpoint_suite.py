"""The contract suite on a runtime at an endpoint, for ``kubeletx plugin check --endpoint``."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import msgspec
import pytest

from kubeletx.api import ENTRY_POINT_GROUP, Runtime
from kubeletx.plugins.loading import load_plugins
from kubeletx.testing import FakeHost, endpoint
from kubeletx.testing.check.results import ENDPOINT, TestedEndpoint
from kubeletx.testing.contract import RuntimeContract


class TestEndpoint(RuntimeContract):
    """The suite on the runtime that environment variable `ENDPOINT` describes."""

    @pytest.fixture
    def make_runtime(self, tmp_path: Path) -> Callable[[], Runtime]:
        """Function that calls the factory of the runtime's kind, as the agent does."""
        tested = msgspec.json.decode(os.environ[ENDPOINT], type=TestedEndpoint)
        points = distribution(tested.distribution).entry_points
        plugins = load_plugins([point for point in points if point.group == ENTRY_POINT_GROUP])
        kind = plugins.kinds.get(tested.kind)
        host = FakeHost(tmp_path)

        def make() -> Runtime:
            # Wrong settings are an error of the runtime's making: one failure, and the other tests are not run.
            given = {kind.name: tested.settings} if tested.settings else {}
            settings = plugins.decode_settings(given, "--settings")
            place = endpoint(tested.url, workload_type=kind.workload_types[0], kind=kind.name)
            return kind.factory(place, settings.get(kind.name), host)

        return make
