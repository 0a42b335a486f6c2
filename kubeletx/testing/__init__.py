"""Public: fakes, a clock that tests control, and contract suites, for tests of the agent and of plugins.

`kubeletx.testing.contract` (needs pytest) has the test suites that plugin authors run on their own plugins.
"""

from .clock import FakeClock
from .fake_backend import Behaviour, FakeBackend
from .fake_calls import RecordedCall
from .fake_records import FakeRecords
from .fake_runtime import FakeRuntime
from .fake_volume_driver import FakeVolumeDriver
from .faults import Script
from .host import FakeEventSink, FakeHost, FakePluginHost, FakeRemedyHost, FakeVolumeHost, Recorded, endpoint
from .pod_sink import FakePodSink
from .sessions import FakeSession
from .specs import sandbox_spec, unit_spec, volume_request

__all__ = [
    "Behaviour",
    "FakeBackend",
    "FakeClock",
    "FakeEventSink",
    "FakeHost",
    "FakePluginHost",
    "FakePodSink",
    "FakeRecords",
    "FakeRemedyHost",
    "FakeRuntime",
    "FakeSession",
    "FakeVolumeDriver",
    "FakeVolumeHost",
    "Recorded",
    "RecordedCall",
    "Script",
    "endpoint",
    "sandbox_spec",
    "unit_spec",
    "volume_request",
]
