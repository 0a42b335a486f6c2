"""Asks CRI servers for their version, settings and sandbox image, with deadlines, without an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubeletx.agent.config.tree import AgentConfig
from kubeletx.api.errors import KubeletxError, Unsupported
from kubeletx.runtimes.endpoints.discover import WELL_KNOWN
from kubeletx.runtimes.endpoints.grammar import EndpointItem, split_item

if TYPE_CHECKING:  # gRPC takes 0.1 s to import
    from kubeletx.cri.client import CriClient

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
    if not path.exists():
        return CriServer(name=name, path=path, error="No such file or directory")
    return asyncio.run(_asked(name, path))


async def _asked(name: str, path: Path) -> CriServer:
    from kubeletx.cri.client import CriClient

    client = CriClient(f"unix://{path}")
    try:
        return await _answers(client, name, path)
    except KubeletxError as error:
        return CriServer(name=name, path=path, error=error.message, has_no_cri=isinstance(error, Unsupported))
    finally:
        await client.close()


async def _answers(client: CriClient, name: str, path: Path) -> CriServer:
    from kubeletx.cri import methods
    from kubeletx.cri.backend import read_backend, settings_of, version_from_cri
    from kubeletx.cri.stubs import runtime_v1_pb2 as pb

    async def call(method: methods.Method[Any, Any], request: Any) -> Any:
        return await client.call(method, request, timeout_seconds=_SECONDS)

    version = version_from_cri(await call(methods.VERSION, pb.VersionRequest()))
    status = await call(methods.STATUS, pb.StatusRequest(verbose=True))
    try:
        driver = await call(methods.RUNTIME_CONFIG, pb.RuntimeConfigRequest())
    except Unsupported:  # an older server
        driver = None
    backend = read_backend(version, status, driver, "")
    image = backend.sandbox_image
    request = pb.ImageStatusRequest(image=pb.ImageSpec(image=image))
    return CriServer(
        name=name,
        path=path,
        version=f"{version.name} {version.version.lstrip('v')}",
        cgroup_driver=backend.cgroup_driver,
        settings=settings_of(status),
        sandbox_image=image,
        has_sandbox_image=not image or (await call(methods.IMAGE_STATUS, request)).HasField("image"),
        problems=tuple(
            f"{condition.type}: {condition.message or condition.reason}"
            for condition in status.status.conditions
            if not condition.status and condition.type != "NetworkReady"  # the check of the network says more
        ),
    )
