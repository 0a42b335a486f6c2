"""Where `Fleet` runs the plugin of each runtime: in the agent's process, or in a process of its own."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kubeletx.api import CONTAINER, Endpoint, RuntimeName
from kubeletx.runtimes.endpoints.kinds import KindTable, RuntimeKind
from kubeletx.runtimes.fleet import Fleet, FleetConfig
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.host.host import HostParts
from kubeletx.testing import FakeClock, FakeEventSink
from tests.unit.runtimes.conftest import Listener
from tests.unit.runtimes.isolation import isolated_fake

KIND = RuntimeKind(
    name="fake",
    factory=isolated_fake.make,
    workload_types=(CONTAINER,),
    schemes=("fake",),
    distribution="stranger",
)


def fleet(root: Path, kind: RuntimeKind, plan: FleetConfig) -> Fleet:
    async def beside(_handle: RuntimeHandle) -> None:
        return None

    parts = HostParts(agent_id="a", node_name="n", root=root, clock=FakeClock(), events=FakeEventSink())
    return Fleet(
        kinds=KindTable([kind]),
        plan=plan,
        parts=parts,
        listener=Listener(),
        is_used=lambda _: False,
        bound_kinds=lambda _: (),
        beside=beside,
    )


def at(name: str, isolation: str = "") -> Endpoint:
    return Endpoint(
        name=RuntimeName(name), workload_type=CONTAINER, url="fake://", kind="fake", isolation=isolation
    )


@pytest.mark.parametrize(
    ("distribution", "configured", "isolated"),
    [
        ("stranger", {}, ["plain", "process"]),
        ("stranger", {"fake": "none"}, ["process"]),
        ("kubeletx-containerd", {}, ["process"]),
        ("kubeletx-containerd", {"fake": "process"}, ["plain", "process"]),
    ],
)
def test_endpoint_configuration_and_distribution_decide(
    tmp_path: Path, distribution: str, configured: dict[str, str], isolated: list[str]
) -> None:
    endpoints = (at("plain"), at("process", "process"), at("none", "none"))
    kind = msgspec.structs.replace(KIND, distribution=distribution)
    made = fleet(tmp_path, kind, FleetConfig(endpoints=endpoints, isolation=configured))
    assert made.configure() == ()
    assert list(made.isolated) == isolated
    assert [made.isolated[RuntimeName(name)].usage() for name in isolated] == [None] * len(isolated)
    assert list(made.handles) == ["plain", "process", "none"]
    made.end()


def test_a_strangers_factory_without_a_name_runs_only_where_that_is_configured(tmp_path: Path) -> None:
    kind = msgspec.structs.replace(
        KIND, factory=lambda at, _settings, host: isolated_fake.make(at, None, host)
    )
    refused = fleet(tmp_path, kind, FleetConfig(endpoints=(at("plain"),)))
    assert refused.configure() == ()
    why = refused.broken[RuntimeName("plain")]
    assert "it cannot run in a process of its own" in why
    assert "isolation=none" in why
    refused.end()
    made = fleet(tmp_path, kind, FleetConfig(endpoints=(at("none", "none"),)))
    assert made.configure() == ()
    made.end()
