"""Asks CRI servers for their version, settings and sandbox image, with deadlines, without an agent."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeletx.agent.config.tree import AgentConfig
from kubeletx.runtimes.endpoints.discover import WELL_KNOWN
from kubeletx.runtimes.endpoints.grammar import EndpointItem, split_item

_SECONDS: Final = 4.0


class CriServer(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of a CRI server. `error`: why it gave none; `has_no_cri`: it is a containerd without its CRI plugin.

    `version`: such as ``containerd 1.6.20``. `settings`: of containerd, as its verbose Status has them; empty for others.
    `problems`: messages of its conditions that are false.
    """

    name: str
    path: Path
    error: str = ""
    has_no_cri: bool = False
    version: str = ""
    cgroup_driver: str = ""
    settings: dict[str, Any] = {}
    sandbox_image: str = ""
    has_sandbox_image: bool = True
    problems: tuple[str, ...] = ()


def configured_endpoints(config: AgentConfig) -> tuple[EndpointItem, ...]:
    """Return the endpoints of the settings, or else the well-known sockets that exist. Raises InvalidConfig."""
    texts = [text for given in config.runtimes.endpoints for text in given.text.split(";") if text.strip()]
    if not texts:
        texts = [f"container:{name}:unix://{path}" for name, path in WELL_KNOWN if Path(path).exists()]
    return tuple(split_item(text.strip(), "endpoint") for text in texts)


def ask_servers(items: Iterable[EndpointItem], root: Path = Path("/")) -> tuple[CriServer, ...]:
    """Ask each unix socket once. `root`: root of the node's file system."""
    paths: dict[str, str] = {}
    for item in items:
        path = item.url.partition("?")[0].removeprefix("unix://")
        if path.startswith("/"):
            paths.setdefault(path, item.name or path)
    return tuple(_ask(name, root / path.lstrip("/")) for path, name in paths.items())


def _ask(name: str, path: Path) -> CriServer:
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_SECONDS)
            probe.connect(str(path))
    except OSError as error:
        return CriServer(name=name, path=path, error=error.strerror or str(error))
    import grpc

    try:
        return _answers(name, path)
    except grpc.RpcError as error:
        has_no_cri = error.code() is grpc.StatusCode.UNIMPLEMENTED
        return CriServer(name=name, path=path, error=str(error.details()), has_no_cri=has_no_cri)


def _answers(name: str, path: Path) -> CriServer:
    import grpc

    from kubeletx.cri import methods
    from kubeletx.cri.backend import read_backend, version_from_cri
    from kubeletx.cri.client import OPTIONS
    from kubeletx.cri.stubs import runtime_v1_pb2 as pb

    with grpc.insecure_channel(f"unix:{path}", options=OPTIONS) as channel:

        def call(method: methods.Method[Any, Any], request: Any) -> Any:
            encode, decode = method.request.SerializeToString, method.answer.FromString
            return channel.unary_unary(method.path, encode, decode)(request, timeout=_SECONDS)

        version = version_from_cri(call(methods.VERSION, pb.VersionRequest()))
        status = call(methods.STATUS, pb.StatusRequest(verbose=True))
        try:
            driver = call(methods.RUNTIME_CONFIG, pb.RuntimeConfigRequest())
        except grpc.RpcError:  # an older server
            driver = None
        backend = read_backend(version, status, driver, "")
        image = backend.sandbox_image
        has_image = not image or call(
            methods.IMAGE_STATUS, pb.ImageStatusRequest(image=pb.ImageSpec(image=image))
        ).HasField("image")
    return CriServer(
        name=name,
        path=path,
        version=f"{version.name} {version.version.lstrip('v')}",
        cgroup_driver=backend.cgroup_driver,
        settings=_settings(status.info.get("config", "{}")),
        sandbox_image=image,
        has_sandbox_image=has_image,
        problems=tuple(_problems(status.status)),
    )


def _problems(status: Any) -> Iterator[str]:
    for condition in status.conditions:
        if not condition.status and condition.type != "NetworkReady":  # the check of the network says more
            yield f"{condition.type}: {condition.message or condition.reason}"


def _settings(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
