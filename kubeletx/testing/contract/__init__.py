"""Public: the contract suites that plugins must pass, one for each protocol.

In your plugin's tests::

    from kubeletx.testing.contract import RuntimeContract

    class TestContract(RuntimeContract):
        @pytest.fixture
        def make_runtime(self, tmp_path):
            host = FakeHost(tmp_path)
            return lambda: MyRuntime(endpoint("my:///"), None, host)

`make_runtime` is the only fixture that you must define. A test calls the returned function again to simulate a
restart of the agent, so all runtimes that it returns must use the same backend. Override `sandbox_spec`, `unit_spec`
and the other spec fixtures of `ContractBase` if your runtime needs other images or details, and define `power_cut` if
it stores process ids.

A test is skipped only because of what the runtime declares: its traits, or a capability that it does not
have. If the runtime cannot be opened, one test fails and the others of the class are skipped as not run.

In every suite each call of the plugin has a time limit (`time_factor`), and a call that blocks the event loop is
interrupted. A failure shows the words of the contract, what was found, the last calls of the plugin, and the lines
of the plugin in which an error was raised.

`HealthCheckContract`, `PodSourceContract`, `AdmissionCheckContract`, `PanelContract`, `VolumeDriverContract` and `RemedyContract` are the
suites for the other things that plugins register; their docstrings name their fixtures. `RecordsContract` is the suite for
implementations of `kubeletx.api.Records`; its one fixture is `open_records`.
"""

import pytest

_PARTS = (
    "base",
    "shared",
    "basics",
    "sandboxes",
    "units",
    "processes",
    "ends",
    "logs",
    "streams",
    "images",
    "changes",
    "usage",
    "power",
)
for _part in (
    *_PARTS,
    "admission",
    "health",
    "panels",
    "pod_sources",
    "records",
    "remedies",
    "volume_drivers",
):
    pytest.register_assert_rewrite(f"{__name__}.{_part}")

from .admission import AdmissionCheckContract  # noqa: E402 (asserts are rewritten before the import)
from .health import HealthCheckContract  # noqa: E402
from .panels import PanelContract  # noqa: E402
from .pod_sources import PodSourceContract  # noqa: E402
from .records import RecordsContract  # noqa: E402
from .remedies import RemedyContract  # noqa: E402
from .suite import ContractBase, RuntimeContract  # noqa: E402
from .volume_drivers import VolumeDriverContract  # noqa: E402

__all__ = [
    "AdmissionCheckContract",
    "ContractBase",
    "HealthCheckContract",
    "PanelContract",
    "PodSourceContract",
    "RecordsContract",
    "RemedyContract",
    "RuntimeContract",
    "VolumeDriverContract",
]
