"""Files that a node needs to run the agent, with their content: `wanted_files` returns them, `install` writes them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

import click
import msgspec
from click.shell_completion import ShellComplete, get_completion_class

from .found import BRIDGE, KnownRuntime
from .man import man_pages

CONFIG: Final = "/etc/kubeletx/config.yaml"
UNIT: Final = "kubeletx.service"
_MANIFESTS: Final = "/etc/kubeletx/manifests"
_CNI: Final = "/etc/cni/net.d"
_PROGRAM_OF_UNIT: Final = "/opt/kubeletx/bin/kubeletx"
_COMPLETIONS: Final = {
    "bash": (
        "/usr/local/share/bash-completion/completions/kubeletx",
        "/usr/share/bash-completion/completions/kubeletx",
    ),
    "zsh": ("/usr/local/share/zsh/site-functions/_kubeletx", "/usr/share/zsh/vendor-completions/_kubeletx"),
    "fish": (
        "/usr/local/share/fish/vendor_completions.d/kubeletx.fish",
        "/usr/share/fish/vendor_completions.d/kubeletx.fish",
    ),
}
"""Path of each shell's completion script, and the path at which a package has it."""


class WantedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the node; paths are absolute. `text` None: a directory.

    `purpose`: at most 17 characters. `instead`: patterns of paths; a file at one of them makes this one unnecessary.
    `renewed`: setup writes it again if its text differs later. False for a text that depends on the state of the node:
    pods use the network as it was first written.
    """

    path: str
    purpose: str
    text: str | None
    instead: tuple[str, ...] = ()
    renewed: bool = True


def wanted_files(
    program: click.Group, *, executable: str, runtimes: Sequence[KnownRuntime], subnet: str | None
) -> Iterator[WantedFile]:
    """Yield the files of a node. `program`: the group of all commands. `executable`: path of kubeletx on the node.

    `subnet`: of the pod network; None: there is no free one, and no network is written.
    """
    yield WantedFile(path=CONFIG, purpose="settings", text=_settings(runtimes), renewed=False)
    yield WantedFile(path=_MANIFESTS, purpose="static pods", text=None)
    if subnet is not None and any(runtime.endpoint.startswith("container:") for runtime in runtimes):
        yield WantedFile(
            path=f"{_CNI}/99-kubeletx.conflist",
            purpose="pod network",
            text=_network(subnet),
            instead=(f"{_CNI}/*.conf", f"{_CNI}/*.conflist", f"{_CNI}/*.json"),
            renewed=False,
        )
    unit = (files("kubeletx") / "share" / "systemd" / UNIT).read_text()
    yield WantedFile(
        path=f"/etc/systemd/system/{UNIT}",
        purpose="service",
        text=unit.replace(_PROGRAM_OF_UNIT, executable),
        instead=(f"/usr/lib/systemd/system/{UNIT}", f"/lib/systemd/system/{UNIT}"),
    )
    for shell, (path, packaged) in _COMPLETIONS.items():
        text = _completion(program, shell)
        yield WantedFile(path=path, purpose=f"{shell} completion", text=text, instead=(packaged,))
    for name, text in man_pages(program).items():
        section = name.rpartition(".")[2]
        packaged = f"/usr/share/man/man{section}/{name}*"
        path = f"/usr/local/share/man/man{section}/{name}"
        yield WantedFile(path=path, purpose="man page", text=text, instead=(packaged,))


def program_path(root: Path) -> str:
    """Return the path of this kubeletx as the node below `root` sees it."""
    beside, launched = Path(sys.executable).parent / "kubeletx", Path(sys.argv[0]).absolute()
    path = beside if beside.exists() and launched.suffix != ".pyz" else launched
    return f"/{path.relative_to(root)}" if path.is_relative_to(root) else str(path)


def _settings(runtimes: Sequence[KnownRuntime]) -> str:
    lines = [
        "# Settings of kubeletx: a KubeletConfiguration with section kubeletx. `kubeletx config view` prints the effective ones.",
        "apiVersion: kubelet.config.k8s.io/v1beta1",
        "kind: KubeletConfiguration",
        f"staticPodPath: {_MANIFESTS}",
        "kubeletx:",
        f"  cniConfDir: {_CNI} # pod network of virtual machines; containerd reads the same directory",
    ]
    if runtimes:
        lines.append("  containerRuntimeEndpoints:")
    return "\n".join([*lines, *(f"    - {runtime.endpoint}" for runtime in runtimes), ""])


def _network(subnet: str) -> str:
    """Return a CNI configuration. Source: CNI specification 0.4.0; plugins bridge, host-local and portmap."""
    routes = [{"dst": "0.0.0.0/0"}]
    ipam = {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": routes}
    bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "ipMasq": True, "ipam": ipam}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return (
        json.dumps({"cniVersion": "0.4.0", "name": "kubeletx", "plugins": [bridge, ports]}, indent=2) + "\n"
    )


def _completion(program: click.Group, shell: str) -> str:
    kind = get_completion_class(shell)
    assert kind is not None
    # the method of `BashComplete` also runs bash to compare its version
    return ShellComplete.source(kind(program, {}, "kubeletx", "_KUBELETX_COMPLETE"))
