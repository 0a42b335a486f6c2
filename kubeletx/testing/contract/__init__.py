"""Public: the contract suites that plugins must pass, one for each protocol.

In your plugin's tests::

    from kubeletx.testing.contract import RuntimeContract

    class TestContract(RuntimeContract):
        @pytest.fixture
        def make_runtime(self, tmp_path):
            host = FakeHost(tmp_path)
            return lambda: MyRuntime(endpoint("my:///"), None, host)

`make_runtime` is the only fixture that you must define. A test calls it again to simulate a restart of the
agent, so its runtimes must reach the same backend every time. Override `sandbox_spec`, `unit_spec` and the
other spec fixtures of `ContractBase` if your runtime needs other images or details.

A test is skipped only because of what the runtime declares: its traits, or a capability that it does not
have.

`HealthCheckContract`, `PodSourceContract`, `AdmissionCheckContract` and `PanelContract` are the suites for
what plugins register besides runtimes; their docstrings name their fixtures. `RecordsContract` is the suite
of `kubeletx.api.Records`; its one fixture is `open_records`.
"""

import pytest

_PARTS = ("base", "basics", "sandboxes", "units", "logs", "streams", "images", "changes", "power")
for _part in (*_PARTS, "admission", "health", "panels", "pod_sources", "records"):
    pytest.register_assert_rewrite(f"{__name__}.{_part}")

from .admission import AdmissionCheckContract  # noqa: E402 (asserts are rewritten before the import)
from .health import HealthCheckContract  # noqa: E402
from .panels import PanelContract  # noqa: E402
from .pod_sources import PodSourceContract  # noqa: E402
from .records import RecordsContract  # noqa: E402
from .suite import ContractBase, RuntimeContract  # noqa: E402

__all__ = [
    "AdmissionCheckContract",
    "ContractBase",
    "HealthCheckContract",
    "PanelContract",
    "PodSourceContract",
    "RecordsContract",
    "RuntimeContract",
]
