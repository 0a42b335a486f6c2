"""Finds the programs that the lab runs.

script/setup installs them from Debian. If the installation would replace something (such as Docker's
containerd), it unpacks them into another directory instead, whose path is in KUBELETX_TOOLS; this directory
is searched before PATH. The sbin directories are searched too, since an ordinary user's PATH lacks them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .process import LabError

TOOLS_VARIABLE = "KUBELETX_TOOLS"

PACKAGES: dict[str, str] = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "docker-registry": "docker-registry",
    "busybox": "busybox-static",
    "ip": "iproute2",
    "iptables": "iptables",
    "mount": "mount",
    "dbus-daemon": "dbus-daemon",
    "kubectl": "kubernetes-client",
    "qemu-img": "qemu-utils",
    "qemu-system-x86_64": "qemu-system-x86",
    "libvirtd": "libvirt-daemon",
    "virtlogd": "libvirt-daemon",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "chromium": "chromium",
    "chromedriver": "chromium-driver",
}
"""The Debian package of each program that the lab runs."""

_SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def search_path() -> str:
    """Return the PATH of the lab's daemons: unpacked tools, the caller's PATH, then the system's directories."""
    unpacked = os.environ.get(TOOLS_VARIABLE)
    parts = [f"{unpacked}/{sub}" for sub in ("usr/sbin", "usr/bin", "sbin", "bin")] if unpacked else []
    parts += os.environ.get("PATH", "").split(os.pathsep)
    parts += _SYSTEM_DIRECTORIES
    return os.pathsep.join(dict.fromkeys(part for part in parts if part))


def daemon_environment() -> dict[str, str]:
    """Return the environment variables of the lab's daemons.

    They are only what the daemons need; a user's proxy settings are not passed on.
    """
    return {"PATH": search_path(), "HOME": "/root", "LANG": "C.UTF-8"}


def find_tool(name: str) -> str | None:
    """Return the absolute path of a program; None if it is missing."""
    return shutil.which(name, path=search_path())


def get_tool(name: str) -> str:
    """Return the absolute path of a program.

    Raises LabError with the name of its Debian package if it is missing.
    """
    path = find_tool(name)
    if path is None:
        raise LabError(
            f"program {name} is missing (Debian package {PACKAGES.get(name, name)}); run script/setup"
        )
    return path


def get_cni_bin_dir() -> Path:
    """Return the directory of the CNI plugins. Raises LabError if no known directory contains them."""
    unpacked = os.environ.get(TOOLS_VARIABLE)
    candidates = ([Path(unpacked) / "usr/lib/cni"] if unpacked else []) + [
        Path("/usr/lib/cni"),
        Path("/opt/cni/bin"),
        Path("/usr/libexec/cni"),
    ]
    for directory in candidates:
        if all((directory / plugin).exists() for plugin in ("bridge", "host-local", "loopback")):
            return directory
    raise LabError("CNI plugins are missing (Debian package containernetworking-plugins); run script/setup")


def list_missing() -> list[str]:
    """Return one line for each thing that the lab needs and this machine lacks; empty if nothing is missing."""
    missing = [
        f"program {name} (Debian package {package})"
        for name, package in PACKAGES.items()
        if find_tool(name) is None
    ]
    try:
        get_cni_bin_dir()
    except LabError:
        missing.append("CNI plugins (Debian package containernetworking-plugins)")
    if os.geteuid() != 0:
        missing.append("root (containerd, mounts and network namespaces need it)")
    if not Path("/sys/fs/cgroup").is_dir():
        missing.append("kernel: /sys/fs/cgroup is not mounted")
    return missing
