"""Reads what a CRI server reports about itself: version, health, runtime handlers, features and cgroup driver.

Newer servers report the cgroup driver in RuntimeConfig and their runtime handlers in Status. Older ones (containerd
1.6) do not; both are then read from containerd's configuration, which the verbose Status has as JSON.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubeletx.api import FEATURES, LogMode, RuntimeCondition, RuntimeHealth, RuntimeVersion, Traits
from kubeletx.cri.stubs import runtime_v1_pb2 as pb

SYSTEMD = "systemd"
CGROUPFS = "cgroupfs"

IMAGE_VOLUMES_SINCE = {"containerd": (2, 1), "cri-o": (1, 31)}
STOP_SIGNAL_SINCE = {"containerd": (2, 3)}


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """Properties that one CRI server has reported about itself. Values that it does not report are empty.

    `handlers`: names of its runtime handlers. `cgroup_driver`: systemd or cgroupfs. `refuses`: features
    (`kubeletx.api.FEATURES`) that the server does not support with the endpoint's handler. `handler_refuses`:
    runtime handler to the features that the server does not support with it.
    """

    version: RuntimeVersion
    handlers: tuple[str, ...] = ()
    cgroup_driver: str = ""
    refuses: tuple[str, ...] = ()
    handler_refuses: dict[str, tuple[str, ...]] = {}
    handler_types: dict[str, str] = {}
    """containerd's runtime type of each handler, such as ``io.containerd.runc.v2``; the default handler has name ""."""
    sandbox_image: str = ""
    """Image of the pause containers. Kept here because older servers do not report it as pinned."""
    cni_directory: str = ""
    """Directory from which the server reads the configuration of the pod network; empty if it does not report it."""


def read_backend(
    version: RuntimeVersion,
    status: pb.StatusResponse,
    config: pb.RuntimeConfigResponse | None,
    handler: str,
) -> Backend:
    """Build a `Backend` from the answers of a CRI server.

    `status`: answer to the verbose Status, which has the server's configuration. `config`: answer to
    RuntimeConfig; None if the server does not have that call. `handler`: runtime handler in the endpoint's URL;
    empty: the server's default.
    """
    settings = settings_of(status)
    handlers = _handlers(status, settings)
    return Backend(
        version=version,
        handlers=handlers,
        cgroup_driver=_cgroup_driver(config, settings, handler),
        refuses=_refuses(version, status, handler),
        handler_refuses={name: _refuses(version, status, name) for name in handlers},
        handler_types=_handler_types(settings),
        sandbox_image=str(settings.get("sandboxImage") or ""),
        cni_directory=str((settings.get("cni") or {}).get("confDir") or ""),
    )


def version_from_cri(answer: pb.VersionResponse) -> RuntimeVersion:
    """Convert the answer to the call Version."""
    return RuntimeVersion(
        name=answer.runtime_name, version=answer.runtime_version, api_version=answer.runtime_api_version
    )


def health_from_cri(
    answer: pb.StatusResponse, handlers: tuple[str, ...], wanted: str, cni_directory: str = ""
) -> RuntimeHealth:
    """Convert the answer to the call Status. If the pod network is not ready, its message says what to do.

    `handlers`: runtime handlers of the server; empty: not known. `wanted`: runtime handler in the endpoint's URL,
    or empty. `cni_directory`: see `Backend`. If the server does not have that handler, the runtime is not ready, and the
    condition HandlerReady is added as False.
    """
    conditions = tuple(
        RuntimeCondition(
            type=c.type, ok=c.status, reason=c.reason, message=c.message + _advice(c, cni_directory)
        )
        for c in answer.status.conditions
    )
    ready = {c.type: c.ok for c in conditions}
    known = not wanted or not handlers or wanted in handlers
    if not known:
        conditions += (
            RuntimeCondition(
                type="HandlerReady",
                ok=False,
                reason="HandlerNotConfigured",
                message=f"no runtime handler {wanted!r}, only {', '.join(handlers)}",
            ),
        )
    return RuntimeHealth(
        runtime_ready=ready.get("RuntimeReady", False) and known,
        network_ready=ready.get("NetworkReady", False),
        conditions=conditions,
        handlers=(wanted,) if wanted else handlers,
    )


def _advice(condition: pb.RuntimeCondition, cni_directory: str) -> str:
    if condition.type != "NetworkReady" or condition.status:
        return ""
    where = cni_directory or "the runtime's CNI directory, usually /etc/cni/net.d"
    return f"; a CNI configuration must be in {where}, see 'The pod network' in docs/install.md"


def traits_of(backend: Backend, *, remote: bool) -> Traits:
    """Return the traits of a runtime over the CRI server `backend`.

    `remote`: the server is on another machine; its cgroup driver is then left out.
    """
    return Traits(
        details=("process",),
        log_mode=LogMode.FILE,
        remote=remote,
        refuses=backend.refuses,
        handler_refuses=backend.handler_refuses,
        cgroup_driver="" if remote else backend.cgroup_driver,
    )


def cgroup_parent(path: str, driver: str) -> str:
    """Convert a cgroup path to the form that the cgroup driver requires.

    For systemd, ``/kubepods/pod1-2`` becomes kubepods-pod1_2.slice. For other drivers the path is unchanged.
    """
    if driver != SYSTEMD or not path or path.endswith(".slice"):
        return path
    parts = [part.replace("-", "_") for part in path.split("/") if part]
    return "-".join(parts) + ".slice" if parts else path


def settings_of(status: pb.StatusResponse) -> dict[str, Any]:
    """Return the configuration of a containerd, which is in its verbose Status; empty for other servers."""
    try:
        settings = msgspec.json.decode(status.info.get("config", "{}"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # not the configuration of a containerd
        return {}
    return settings if isinstance(settings, dict) else {}


def _runtimes(settings: dict[str, Any]) -> dict[str, Any]:
    runtimes = (settings.get("containerd") or {}).get("runtimes")
    return runtimes if isinstance(runtimes, dict) else {}


def _handlers(status: pb.StatusResponse, settings: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the server's runtime handlers. The default handler, whose name is empty, is left out."""
    if status.runtime_handlers:
        return tuple(sorted(handler.name for handler in status.runtime_handlers if handler.name))
    return tuple(sorted(_runtimes(settings)))


def _handler_types(settings: dict[str, Any]) -> dict[str, str]:
    types = {}
    for name, runtime in _runtimes(settings).items():
        kind = runtime.get("runtimeType") if isinstance(runtime, dict) else None
        if isinstance(kind, str) and kind:
            types[name] = kind
    # A pod without a handler gets the default one; its type is found under the empty name.
    default = (settings.get("containerd") or {}).get("defaultRuntimeName", "")
    return {**types, "": types[default]} if default in types else types


def _cgroup_driver(config: pb.RuntimeConfigResponse | None, settings: dict[str, Any], handler: str) -> str:
    # SYSTEMD is 0, the enum's default: without this check an answer without the field would read as systemd.
    if config is not None and config.HasField("linux"):
        return SYSTEMD if config.linux.cgroup_driver == pb.SYSTEMD else CGROUPFS
    runtimes = _runtimes(settings)
    if not runtimes:
        return ""
    name = handler or (settings.get("containerd") or {}).get("defaultRuntimeName", "")
    options = (runtimes.get(name) or {}).get("options") or {}
    return SYSTEMD if options.get("SystemdCgroup") or settings.get("systemdCgroup") else CGROUPFS


def _refuses(version: RuntimeVersion, status: pb.StatusResponse, handler: str) -> tuple[str, ...]:
    """Return the features that the server does not support with this handler, for `Traits.refuses`.

    Pods that need one must be refused: an older server ignores fields that it does not know, and would run the
    pod without the feature.
    """
    features = {h.name: h.features for h in status.runtime_handlers}.get(handler)
    refused = set()
    if features is None or not features.user_namespaces:
        refused.add("user-namespace")
    if features is None or not features.recursive_read_only_mounts:
        refused.add("recursive-read-only")
    if not status.features.supplemental_groups_policy:
        refused.add("strict-groups")
    # Status has no field for these two, so the version decides; a server that is not in the tables keeps them.
    for feature, known in (("image-volumes", IMAGE_VOLUMES_SINCE), ("stop-signal", STOP_SIGNAL_SINCE)):
        since = known.get(version.name)
        if since is not None and _number(version.version) < since:
            refused.add(feature)
    assert refused <= FEATURES
    return tuple(sorted(refused))


def _number(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version: (1, 6) for ``1.6.20~ds1`` or ``v1.6``.

    For a version without numbers, return a pair that is higher than all others.
    """
    parts = version.lstrip("v").split(".")
    digits = ["".join(c for c in part if c.isdecimal()) for part in parts[:2]]
    if len(digits) < 2 or not all(digits):
        return (1 << 30, 0)
    return (int(digits[0]), int(digits[1]))
