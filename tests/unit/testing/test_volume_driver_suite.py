"""The contract suite of volume drivers finds each fault of the drivers in `bad_plugins.volume_drivers`, and names it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletx.api import VolumeDriver
from kubeletx.testing.contract import VolumeDriverContract
from kubeletx_testing.bad_plugins.volume_drivers.faults import PlainVolumeDriver

from .suite_model import failures, run_file

HEAD = """
import pytest
from kubeletx_testing.bad_plugins.volume_drivers import faults
from kubeletx.testing.contract import VolumeDriverContract
"""

CLASS = """
class Test{name}(VolumeDriverContract):
    @pytest.fixture
    def volume_fields(self):
        return {{"options": {{"size": "1Mi"}}}}

    @pytest.fixture
    def make_driver(self, tmp_path):
        return lambda: faults.{name}(tmp_path / "state")
"""

FAULTS = {
    "ForgetfulVolumeDriver": ("release", r"after the release there is still .*/data/file in the target"),
    "SharingVolumeDriver": ("prepare", "a file of the first volume is in the second one"),
    "LosingVolumeDriver": ("prepare", r"after the second call the file .* has None, not 'one'"),
    "StrictVolumeDriver": ("release", "NotFound: volume data is not prepared"),
    "RememberingVolumeDriver": ("release", r"after the release there is still .*/prepared in the target"),
    "OptionVolumeDriver": ("release", "KeyError: 'size'"),
    "TellingVolumeDriver": ("prepare", "a secret of the request is in the result"),
    "EagerVolumeDriver": ("", r"the factory made file .*/state/made-\d+; do that in `open`"),
    "LateVolumeDriver": (
        "prepare",
        r"after the release there is .*/late in the target: the cancelled prepare",
    ),
    "OverstatingVolumeDriver": ("stats", "used_bytes is larger than capacity_bytes"),
    "WritableVolumeDriver": ("prepare", "mounted read-write and ReadyVolume.read_only is False"),
    "ChangingVolumeDriver": ("prepare", "prepare changed the request; copy `options` before you change them"),
}
"""Driver: the method whose contract a failure quotes, and what was found."""


class TestPlainVolumeDriver(VolumeDriverContract):
    @pytest.fixture
    def make_driver(self, tmp_path: Path) -> Callable[[], VolumeDriver]:
        return lambda: PlainVolumeDriver(tmp_path / "state")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Output of one run of the suite on all drivers with a fault."""
    text = HEAD + "".join(CLASS.format(name=name) for name in FAULTS)
    done = run_file(tmp_path_factory.mktemp("suite"), text)
    assert done.returncode == 1, done.stdout
    return done.stdout


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_named_with_the_contract(name: str, output: str) -> None:
    method, message = FAULTS[name]
    texts = [" ".join(one.split()) for one in failures(output, f"Test{name}")]
    found = [one for one in texts if re.search(message, one)]
    assert found, texts
    assert any(not method or f"contract of VolumeDriver.{method}:" in one for one in found), found
    assert "Traceback" not in output
