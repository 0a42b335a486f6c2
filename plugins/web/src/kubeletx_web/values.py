"""Answers of the admin socket that are not Kubernetes objects, as far as the page reads them; other fields are ignored.

Answers that only sections of the node's page show are plain JSON; `field`, `listed` and `picture_of` read it.
"""

from __future__ import annotations

from base64 import b64decode
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


def field(answer: object, name: str, default: T) -> T:
    """Return a field of plain JSON; `default` if it is missing or of another type."""
    value = answer.get(name) if isinstance(answer, dict) else None
    return value if isinstance(value, type(default)) else default


def listed(answer: object, name: str = "items") -> list[dict[str, Any]]:
    """Return the objects in a list of plain JSON, a field of `answer`."""
    some: list[object] = field(answer, name, [])
    return [each for each in some if isinstance(each, dict)]


def picture_of(panel: object) -> bytes | None:
    """Return the picture in a panel's content; None if it has none. Shape: `kubeletx.api.Png` as JSON."""
    try:
        return b64decode(field(panel, "data", "")) if field(panel, "type", "") == "png" else None
    except ValueError:
        return None


class Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base class: field names are camelCase in JSON. Sizes are in bytes, times in UTC."""


class Items(msgspec.Struct, Generic[T], frozen=True):
    """A list as the agent sends it. `missing`: names of runtimes that did not answer."""

    items: tuple[T, ...] = ()
    missing: tuple[str, ...] = ()


class Version(Value, frozen=True, kw_only=True):
    """Version and start of the agent."""

    version: str = ""
    pid: int = 0
    started_at: datetime | None = None
    node_name: str = ""
    root_dir: str = ""


class ImageService(Value, frozen=True, kw_only=True):
    """Image service of a runtime. `store`: id of its image store."""

    store: str = ""


class Runtime(Value, frozen=True, kw_only=True):
    """One runtime. `status`: Ready, NotReady or Unknown. `calls` and `call_seconds` grow since the agent's start."""

    name: str
    workload_type: str
    kind: str
    url: str
    status: str
    since: datetime
    version: str = ""
    pods: int = 0
    default: bool = False
    cordoned: bool = False
    reason: str = ""
    message: str = ""
    image_service: ImageService | None = None
    abandoned_calls: dict[str, int] = {}
    calls: int = 0
    failed_calls: int = 0
    call_seconds: float = 0.0


class Series(Value, frozen=True, kw_only=True):
    """Usage of one pod, or of the machine (`uid` empty). `cpu` in millicores; None: not measured."""

    uid: str = ""
    cpu: tuple[int | None, ...] = ()
    memory: tuple[int | None, ...] = ()


class UsageSamples(Value, frozen=True, kw_only=True):
    """Samples of usage since an earlier question. `next`: number of the next sample."""

    next: int = 0
    interval_seconds: float = 10.0
    times: tuple[datetime, ...] = ()
    series: tuple[Series, ...] = ()


class Volume(Value, frozen=True, kw_only=True):
    """One volume of one pod. `state`: preparing, ready or releasing. `driver` empty: the agent prepares it itself."""

    namespace: str
    pod: str
    name: str
    kind: str
    state: str
    pod_uid: str = ""
    driver: str = ""
    persistent_volume: str = ""
    claim: str = ""
    path: str = ""
    read_only: bool = False
    access_modes: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    message: str = ""
    since: datetime | None = None
    capacity_bytes: int | None = None
    used_bytes: int | None = None


class Action(Value, frozen=True, kw_only=True):
    """One action of the agent on a pod. `at`: its end. `seconds`: its duration."""

    at: datetime
    action: str
    result: str
    seconds: float
    count: int = 1


class Start(Value, frozen=True, kw_only=True):
    """The start of a pod; a time is None while it has not come."""

    seen_at: datetime
    running_at: datetime | None = None
    ready_at: datetime | None = None
    ended_at: datetime | None = None
    steps: tuple[Action, ...] = ()


class History(Value, frozen=True, kw_only=True):
    """The last actions on a pod, and its start; None: the pod is older than the agent process."""

    items: tuple[Action, ...] = ()
    start: Start | None = None


class AccessFiles(Value, frozen=True, kw_only=True):
    """TLS settings of the kubelet's API. `client_ca_file` None: clients have no certificates. `ciphers`: of OpenSSL."""

    certificate_file: str
    key_file: str
    client_ca_file: str | None = None
    min_version: str = ""
    ciphers: str = ""


class Credentials(Value, frozen=True, kw_only=True):
    """Credentials of a request. `subject`: of the verified client certificate, as `ssl.SSLObject.getpeercert` returns it."""

    authorization: str | None = None
    subject: tuple[tuple[tuple[str, str], ...], ...] = ()


class Decision(Value, frozen=True, kw_only=True):
    """The agent's decision about credentials. `status`, `message`: HTTP status of a refusal, and its reason."""

    allowed: bool = False
    user: str = ""
    status: int = 403
    message: str = ""
