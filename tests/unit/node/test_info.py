import re
from pathlib import Path

import pytest

from kubeletx.api import RuntimeVersion
from kubeletx.node.info import architecture, kubelet_version, read_system_info


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_everything_is_read_from_the_machine(tmp_path: Path) -> None:
    write(tmp_path, "etc/machine-id", "abc\n")
    write(tmp_path, "sys/class/dmi/id/product_uuid", "UUID-1\n")
    write(tmp_path, "proc/sys/kernel/random/boot_id", "boot-1\n")
    write(tmp_path, "proc/sys/kernel/osrelease", "6.1.0\n")
    write(tmp_path, "etc/os-release", 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12"\n')
    write(tmp_path, "proc/meminfo", "SwapTotal: 2 kB\n")
    info = read_system_info(
        kubelet_version="v0.1.0", runtime=RuntimeVersion(name="containerd", version="1.6.20"), root=tmp_path
    )
    assert (info.machine_id, info.system_uuid, info.boot_id) == ("abc", "UUID-1", "boot-1")
    assert (info.kernel_version, info.os_image) == ("6.1.0", "Debian GNU/Linux 12")
    assert info.container_runtime_version == "containerd://1.6.20"
    assert info.operating_system == "linux"
    assert info.swap is not None
    assert info.swap.capacity == 2048


def test_what_is_missing_is_empty_and_the_machine_id_stands_in_for_the_uuid(tmp_path: Path) -> None:
    write(tmp_path, "var/lib/dbus/machine-id", "abc\n")
    info = read_system_info(kubelet_version="v0.1.0", runtime=None, root=tmp_path)
    assert info.system_uuid == "abc"
    assert info.container_runtime_version == ""
    assert info.os_image == "Linux"
    assert info.swap is None


@pytest.mark.parametrize("version", ["0.1.0", "1.2.0rc1", "1.2.0.dev3+g1a2b3c4"])
def test_the_version_is_one_that_tools_of_kubernetes_can_parse(version: str) -> None:
    semantic = r"v1\.(\d+)\.(\d+)\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*"
    assert re.fullmatch(semantic, kubelet_version(version))


def test_machines_are_named_as_kubernetes_names_them() -> None:
    assert architecture("x86_64") == "amd64"
    assert architecture("aarch64") == "arm64"
    assert architecture("alien") == "alien"
