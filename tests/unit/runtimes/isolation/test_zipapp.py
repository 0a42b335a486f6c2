"""kubeletx in one file, as `script/package --zipapp` makes it: its child processes find their program in the file too."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
SITE = sysconfig.get_path("purelib")
RUNTIME = """
import kubeletx
from kubeletx.api import RuntimeVersion
from kubeletx.testing import FakeRuntime
class Zipped(FakeRuntime):
    async def version(self):
        return RuntimeVersion(name=kubeletx.__file__, version="1")
make = lambda endpoint, settings, host: Zipped()
make.__qualname__ = "make"
"""
AGENT = f"""
import sys
sys.path[:] = [sys.argv[1], *sys.path, {SITE!r}]  # without the .pth file that leads to the source
import asyncio, pathlib, zipped
from kubeletx.runtimes.isolation import IsolatedRuntime
from kubeletx.testing import FakeHost, endpoint
async def main():
    runtime = IsolatedRuntime(zipped.make, endpoint("fake://"), None, FakeHost(pathlib.Path("/nowhere")))
    await runtime.open()
    print((await runtime.version()).name)
    await runtime.close()
asyncio.run(main())
"""
PROBE = f"""
import sys
sys.path[:] = [sys.argv[1], *sys.path, {SITE!r}]
import subprocess
from kubeletx.linux.blank import PROBE
print(subprocess.run([*PROBE, "/dev/null"], capture_output=True, text=True).stdout)
"""
CHECK = f"""
import sys
sys.path[:] = [sys.argv[1], *sys.path, {SITE!r}]
sys.argv = ["kubeletx", "plugin", "check", {str(ROOT / "examples/plugins/host-load")!r}]
from kubeletx.cli import start
start()
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zipapp") / "kubeletx.pyz"
    with zipfile.ZipFile(path, "w") as file:
        for source in sorted((ROOT / "kubeletx").rglob("*.py")):
            file.write(source, source.relative_to(ROOT))
        file.writestr("zipped.py", RUNTIME)
    return path


def in_archive(archive: Path, script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-IS", "-c", script, archive.name],
        cwd=archive.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_runtime_in_a_child_process_is_imported_from_the_archive(archive: Path) -> None:
    assert in_archive(archive, AGENT).splitlines()[-1] == str(archive / "kubeletx" / "__init__.py")


def test_the_probe_of_a_device_runs(archive: Path) -> None:
    assert "it is not a block device" in in_archive(archive, PROBE)


def test_a_plugin_is_checked(archive: Path) -> None:
    result = in_archive(archive, CHECK)
    assert "cannot read kubeletx in a zipapp" in result
    assert "✓ contract of panel/host-load" in result
