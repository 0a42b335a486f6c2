"""The example plugin in Perl: the contract suite runs on a program that uses the wire format as JSON."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kubeletx.api import Endpoint, InvalidConfig, InvalidPod, NotFound, Runtime, UnitId
from kubeletx.runtimes.endpoints.kinds import KindTable
from kubeletx.runtimes.endpoints.programs import PROGRAMS, make_program_runtime
from kubeletx.testing import FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx.testing.contract import RuntimeContract

PROGRAM = Path(__file__).parents[4] / "examples" / "plugins" / "wire-perl" / "wire-perl"

needs_perl = pytest.mark.skipif(shutil.which("perl") is None, reason="perl is not installed")


def at(path: str) -> Endpoint:
    return endpoint(f"exec://{path}", kind="exec")


@needs_perl
class TestWirePerl(RuntimeContract):
    @pytest.fixture
    def make_runtime(self, tmp_path: Path) -> Callable[[], Runtime]:
        host = FakeHost(tmp_path)
        return lambda: make_program_runtime(at(str(PROGRAM)), None, host)


@needs_perl
async def test_errors_of_the_program_have_their_classes(tmp_path: Path) -> None:
    runtime = make_program_runtime(at(str(PROGRAM)), None, FakeHost(tmp_path))
    await runtime.open()
    with pytest.raises(NotFound, match="no object nothing"):
        await runtime.unit_status(UnitId("nothing"))
    sandbox_id = await runtime.create_sandbox(sandbox_spec())
    with pytest.raises(InvalidPod, match="write the program to run"):
        await runtime.create_unit(sandbox_id, unit_spec(), sandbox_spec())
    await runtime.close()


@pytest.mark.parametrize("url", ["exec://", "exec:///", "exec://host/program"])
def test_an_endpoint_without_a_path_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidConfig, match="no absolute path of a program; write exec:// and the path"):
        make_program_runtime(endpoint(url, kind="exec"), None, FakeHost(tmp_path))


def test_a_program_cannot_run_in_the_agents_process(tmp_path: Path) -> None:
    inside = msgspec.structs.replace(at("/bin/sh"), isolation="none")
    with pytest.raises(InvalidConfig, match="isolation=none is not possible: the plugin is a program"):
        make_program_runtime(inside, None, FakeHost(tmp_path))


def test_settings_of_programs_are_mappings_by_name_of_the_runtime() -> None:
    kinds = KindTable([PROGRAMS])
    section = {"x": {"verbose": True}}
    assert kinds.decode_settings({"exec": section}) == {"exec": section}
    assert kinds.decode_settings({}) == {"exec": {}}
    with pytest.raises(InvalidConfig, match=r"kubeletx.plugins.exec: Expected `object`, got `int`"):
        kinds.decode_settings({"exec": {"x": 7}})
