"""Endpoint, then configuration, then the plugin's distribution decide where a runtime's plugin runs."""

from __future__ import annotations

import pytest

from kubeletx.api import CONTAINER, InvalidConfig
from kubeletx.runtimes.endpoints.isolation_rule import check_isolation, default_isolation, isolation_of
from kubeletx.runtimes.endpoints.kinds import KindTable, RuntimeKind
from kubeletx.testing import FakeRuntime


def kind(distribution: str) -> RuntimeKind:
    return RuntimeKind(
        name="fake",
        factory=lambda endpoint, settings, host: FakeRuntime(),
        workload_types=(CONTAINER,),
        schemes=("fake",),
        distribution=distribution,
    )


@pytest.mark.parametrize(
    ("distribution", "expected"),
    [
        ("kubeletx", "none"),
        ("kubeletx-containerd", "none"),
        ("Kubeletx_LibVirt", "none"),
        ("kubeletx-quark", "none"),
        ("kubeletx-flexvolume", "none"),
        ("", "none"),
        ("kubeletx-local-process", "process"),
        ("kubeletx-containerd-extra", "process"),
        ("stranger", "process"),
    ],
)
def test_plugins_of_other_distributions_run_in_a_process_of_their_own(
    distribution: str, expected: str
) -> None:
    assert default_isolation(distribution) == expected


@pytest.mark.parametrize(
    ("given", "configured", "expected"),
    [
        ("", {}, "process"),
        ("", {"fake": "none"}, "none"),
        ("process", {"fake": "none"}, "process"),
        ("none", {"fake": "process"}, "none"),
        ("none", {}, "none"),
        ("", {"other": "none"}, "process"),
    ],
)
def test_the_endpoint_decides_before_the_configuration_and_that_before_the_distribution(
    given: str, configured: dict[str, str], expected: str
) -> None:
    assert isolation_of(given, kind("stranger"), configured) == expected


def test_wrong_entries_of_the_configuration_are_refused() -> None:
    kinds = KindTable([kind("stranger")])
    check_isolation({"fake": "none"}, kinds)
    with pytest.raises(
        InvalidConfig, match=r"a\.yaml: kubeletx\.pluginIsolation\.fake: 'vm' is unknown; use one of: none"
    ):
        check_isolation({"fake": "vm"}, kinds, "a.yaml")
    with pytest.raises(InvalidConfig, match=r"no plugin registers 'fkae'; .* use one of: fake"):
        check_isolation({"fkae": "none"}, kinds)
