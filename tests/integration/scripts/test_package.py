"""script/package: its wheels, its zipapp, and its Debian package, which dpkg installs into a copy of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from kubeletx.agent.config.load import load_config

pytestmark = pytest.mark.timeout(900)  # libraries are downloaded
ROOT = Path(__file__).parents[3]
DISTRIBUTIONS = {"kubeletx", *(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml")), "session"}

COPY = """
mkdir upper work root
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" root
mount --rbind /dev root/dev
written=upper install="dpkg --install"
"""
"""A copy of this machine; what is written there goes into memory."""
NEW = """
suite="$(. /etc/os-release && echo "$VERSION_CODENAME")"
debootstrap --variant=minbase --include=python3 "$suite" root >&2
written=root install="apt-get -q -y --no-install-recommends install"
"""
"""A root with the essential packages and Python, from Debian."""
INSTALLS = """
mount -t proc proc root/proc
cp "$2" root/kubeletx.deb
units=/etc/systemd/system/multi-user.target.wants
inside() { chroot root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
inside $install /kubeletx.deb
inside dpkg --verify kubeletx
inside test -L $units/kubeletx.service
inside test ! -e $units/kubeletx-storage.service -a ! -e $units/kubeletx-web.service -a ! -e /etc/systemd/system/sysinit.target.wants/kubeletx-health.service
if inside which systemd-analyze; then
    inside systemd-analyze verify kubeletx.service kubeletx-health.service kubeletx-storage.service kubeletx-web.service
fi
inside kubeletx completion bash | inside diff - /usr/share/bash-completion/completions/kubeletx
inside test -e /usr/share/man/man8/kubeletx-agent.8.gz
inside test -e /usr/share/kubeletx/grafana/kubeletx-node.json
inside kubeletx-flexvolume --help >/dev/null
inside /usr/lib/kubeletx/bin/python -I -c "
import kubeletx.agent.assembly
from importlib.metadata import entry_points
for one in entry_points(group='kubeletx'):
    print('plugin', one.name, one.load().__file__ if one.name != 'libvirt' else '')"
"""
"""Arguments: an empty directory, the package."""
ENDS = """
echo "# mine" >> root/etc/kubeletx/config.yaml
inside dpkg --install kubeletx.deb
inside dpkg --remove kubeletx
tail -1 root/etc/kubeletx/config.yaml
mkdir -p root/var/lib/kubeletx root/etc/systemd/logind.conf.d && touch root/var/lib/kubeletx/kept
touch root/etc/systemd/logind.conf.d/99-kubeletx.conf
inside dpkg --purge kubeletx
find $written/etc $written/usr $written/var -name "*kubeletx*" -type f -o -name "*kubeletx*" -type d
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = ["bash", "script/package", "--zipapp", "--deb", "--out", str(out)]
    environment = {**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "none"}  # xz takes half a minute
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900, env=environment
    )
    assert done.returncode == 0, done.stderr
    return out


def names(dist: Path, distribution: str) -> set[str]:
    (wheel,) = dist.glob(f"{distribution}-*.whl")
    with ZipFile(wheel) as file:
        return set(file.namelist())


def test_every_distribution_has_a_wheel_with_its_license(dist: Path) -> None:
    wheels = {path.name.split("-")[0] for path in dist.glob("*.whl")}
    assert {name.removeprefix("kubeletx_") for name in wheels} == DISTRIBUTIONS
    for wheel in wheels:
        assert f"{wheel}-0.1.0.dist-info/licenses/LICENSE" in names(dist, wheel)


def test_the_host_has_what_setup_and_operators_take_from_it(dist: Path) -> None:
    share = {name.removeprefix("kubeletx/share/") for name in names(dist, "kubeletx") if "/share/" in name}
    deployed = {
        str(path.relative_to(ROOT / "deploy")) for path in (ROOT / "deploy").rglob("*") if path.is_file()
    }
    printed = {*(f"completions/kubeletx.{shell}" for shell in ("bash", "zsh", "fish")), "man/kubeletx.1"}
    assert {one for one in deployed if "exchanges" not in one} | printed <= share
    assert not any("exchanges" in one for one in share)


def test_the_zipapp_has_all_plugins(dist: Path) -> None:
    archive = dist / "kubeletx.pyz"
    with ZipFile(archive) as file:
        found = {name.split("/")[0] for name in file.namelist() if name.endswith("entry_points.txt")}
    assert len(found) == 6
    command = [sys.executable, "-I", str(archive), "completion", "bash"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "_KUBELETX_COMPLETE" in done.stdout, done.stderr


@pytest.mark.parametrize("words", [("get", "pods"), ("agent",), ("health",), ("remedy",)])
def test_the_zipapp_names_the_libraries_that_are_missing(dist: Path, words: tuple[str, ...]) -> None:
    command = [sys.executable, "-IS", str(dist / "kubeletx.pyz"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert "libraries that kubeletx needs: aiohttp, click, cryptography, " in done.stderr
    assert "-m pip install aiohttp click " in done.stderr


@pytest.mark.integration
@pytest.mark.parametrize("root", [COPY, pytest.param(NEW, marks=pytest.mark.long)], ids=["copy", "new"])
def test_dpkg_installs_upgrades_removes_and_purges_the_package(dist: Path, tmp_path: Path, root: str) -> None:
    (package,) = dist.glob("*.deb")
    script = "set -eu; mount -t tmpfs tmpfs $1; cd $1" + root + INSTALLS + ENDS
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "bash",
        "-c",
        script,
        "-",
        str(tmp_path),
        str(package),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    plugins = {line.split()[1] for line in lines if line.startswith("plugin")}
    assert plugins == {"containerd", "flexvolume", "libvirt", "quark"}
    loaded = [line.split()[2] for line in lines if line.startswith("plugin") and "libvirt" not in line]
    assert all(path.startswith("/usr/lib/kubeletx/lib/") for path in loaded)
    assert "# mine" in lines
    assert lines[-1].endswith("/var/lib/kubeletx"), "a purge leaves the root directory and nothing else"
    assert "/var/lib/kubeletx stays" in done.stderr


def test_the_settings_of_the_package_are_valid() -> None:
    config = load_config(config_file=ROOT / "script" / "debian" / "config.yaml")
    assert [one.text for one in config.runtimes.endpoints] == [
        "container:containerd:unix:///run/containerd/containerd.sock"
    ]
    assert config.network.cni_conf_dir == Path("/etc/cni/net.d"), "machines have no network without it"


def test_the_package_brings_runtimes_for_containers_and_only_suggests_virtual_machines() -> None:
    control = (ROOT / "script/debian/control").read_text()
    fields = dict(line.split(": ", 1) for line in control.splitlines() if ": " in line)
    assert "containerd" in fields["Recommends"]
    assert "libvirt" not in fields["Recommends"], "python3-libvirt recommends libvirt-daemon and QEMU: 1 GB"
    assert "python3-libvirt" in fields["Suggests"]
