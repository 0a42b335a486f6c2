"""Topics: small JSON files that local agents publish and read, ``RUN/AGENT/TOPIC/KEY.json``; persistent ones below PERSIST.

A file is replaced as a whole. To be written again is the sign of life: `Reader` reports a file whenever its inode or time of
modification differs, with the same content too. Invalid content is reported once, and the last valid value counts. Names and
fields are those of EVE (pkg/pillar/types), so that agents written for it can be connected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from kubeletx.linux.files import read_regular, replace_file, replace_unflushed, stamp_of

from .model import CheckState, NodeBoot

MAX_BYTES: Final = 1 << 20
MAX_KEYS: Final = 256
"""Most files of one topic that are read."""
_UNWATCHED_CALLS: Final = 6
_TOPIC: Final = re.compile(r"[^/.\0][^/\0]*(/[^/.\0][^/\0]*){2}")
TopicWords = tuple[str | int | bool, ...]
"""Values of a field, such as ``[up, 1, true]``."""
_T = TypeVar("_T", bound=msgspec.Struct)


class _Fields(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Base of topics: ``cur_part`` is CurPart in the file, unknown fields are ignored, absent ones have defaults."""


class NodeAgentStatus(_Fields, frozen=True, kw_only=True):
    """Published by the guardian, key ``nodeagent``: its verdict, what it is about to do, and why the node was booted."""

    name: str = "nodeagent"
    cur_part: str = ""
    update_inprogress: bool = False
    remaining_test_time: int = 0
    """Seconds."""
    device_reboot: bool = False
    device_shutdown: bool = False
    device_poweroff: bool = False
    all_domains_halted: bool = False
    reboot_reason: str = ""
    boot_reason: int = 0
    reboot_stack: str = ""
    reboot_time: str = ""
    """RFC 3339."""
    restart_counter: int = 0
    reboot_image: str = ""
    local_maintenance_mode: bool = False
    local_maintenance_mode_reasons: tuple[str, ...] = ()
    hv_type_kube: bool = msgspec.field(name="HVTypeKube", default=False)
    wait_drain_in_progress: bool = False


class ZbootConfig(_Fields, frozen=True, kw_only=True):
    """Published by the guardian, a key for each label: that its image passed the test."""

    partition_label: str
    test_complete: bool = False


class ZbootStatus(_Fields, frozen=True, kw_only=True):
    """Published by the owner of the slots, a key for each label. The guardian publishes it for its own slots."""

    partition_label: str
    partition_devname: str = ""
    partition_state: str = ""
    short_version: str = ""
    long_version: str = ""
    current_partition: bool = False
    test_complete: bool = False


class ZedAgentStatus(_Fields, frozen=True, kw_only=True):
    """Published by the agent that talks to the controller, key ``zedagent``."""

    config_get_status: int = 0
    """See `model.Reach`."""
    reboot_cmd: bool = False
    shutdown_cmd: bool = False
    poweroff_cmd: bool = False
    requested_reboot_reason: str = ""
    requested_boot_reason: int = 0
    maintenance_mode: bool = False
    edge_node_certs_refused: bool = False
    force_fallback_counter: int | None = None


class LedBlinkerConfig(_Fields, frozen=True, kw_only=True):
    """State that the LED shows, published by any agent: 1 waits for an address, 2 connects, 3 connected, 4 onboarded, 5 radio
    silence, 10 and more: errors."""

    blink_counter: int = 0


class BaseOsConfig(_Fields, frozen=True, kw_only=True):
    """Image that the controller wants, a key for each; it is removed to cancel the update.

    With `activate`, the image is booted when the unused slot has its version. A change of `retry_update_counter` asks to boot
    it once more after it has failed.
    """

    base_os_version: str = ""
    activate: bool = False
    retry_update_counter: int = 0


class DomainStatus(_Fields, frozen=True, kw_only=True):
    """State of a domain (pod or machine) of any agent: whether it must still end before a reboot."""

    activated: bool = False


class VaultStatus(_Fields, frozen=True, kw_only=True):
    """State of a vault. `status`: 1 not supported, 2 disabled, 3 enabled, 4 error, 5 in progress (EVE's DataSecStatus)."""

    name: str = ""
    status: int = 0
    conversion_complete: bool = False


class VolumeMgrStatus(_Fields, frozen=True, kw_only=True):
    """Space left for volumes, in bytes."""

    initialized: bool = False
    remaining_space: int = 0


class TpmSanityStatus(_Fields, frozen=True, kw_only=True):
    """Result of the self-test of the TPM: `status` 2 is a failure of encryption, 3 of quotes (EVE's TpmSanityStatus)."""

    name: str = ""
    status: int = 0


class ConfigItemValueMap(_Fields, frozen=True, kw_only=True):
    """Settings of the controller, key ``global``: items by name, each a number or a word."""

    global_settings: dict[str, Any] = {}


class NodeDrainStatus(_Fields, frozen=True, kw_only=True):
    """State of a drain of the node, see `drain.DrainState` and `drain.DrainRequester`."""

    status: int = 0
    requested_by: int = 0


ANY: Final = "*"
"""Name of the agent in topics that any agent may publish."""


class KubeletxStatus(_Fields, frozen=True, kw_only=True):
    """Published by the node agent kubeletx, key ``kubeletx``; it is written again every 10 s, as a sign of life."""

    contact: int = 0
    """Contact of the agent with its API server or FornaxCore, see `model.Reach`."""
    contact_source: str = ""
    runtimes_not_ready: tuple[str, ...] = ()
    pods_not_ready: tuple[str, ...] = ()
    """Pods that have not ended and are not Ready, as ``NAMESPACE/NAME``; without those in standby."""
    pods_ready: tuple[str, ...] = ()
    is_ending: bool = False
    """The agent ends its pods because the guardian, or the host, goes down."""
    all_pods_ended: bool = False
    checks: tuple[CheckState, ...] = ()
    """Results of plugins' checks (hook kubeletx_register_health_checks)."""
    drain: NodeDrainStatus = NodeDrainStatus()
    """Answer to HealthStatus.DrainRequest. Status NOTREQUESTED (2) means that the agent can drain the node when it is asked."""


class HealthStatus(_Fields, frozen=True, kw_only=True):
    """Published by the guardian beside NodeAgentStatus, key ``nodeagent``: its verdict, and a reason for each part of it."""

    phase: str = "Normal"
    """See `validation.Phase`."""
    operation: str = ""
    """Kind and step of an operation under way."""
    operation_held_by: str = ""
    """Reason for which the operation does not begin yet."""
    held_by: str = ""
    """Reason for which the test window does not count now."""
    remaining_test_time: int = 0
    """Seconds."""
    contact: int = 0
    contact_source: str = ""
    silent_seconds: int = 0
    """Seconds since the controller was reached."""
    is_healthy: bool = True
    """No required check fails."""
    drain_request: int = 1
    """Request to kubeletx: drain the node for a device operation (2) or an update (3) and report COMPLETE; 1: no request,
    uncordon what was drained for the last one."""
    drain: str = ""
    """What is known of that drain, one line."""
    checks: tuple[CheckState, ...] = ()
    boots: tuple[NodeBoot, ...] = ()
    """The last ten boots, the newest first."""
    maintenance_mode: bool = False
    maintenance_reasons: tuple[str, ...] = ()


class HealthTopic(NamedTuple):
    """A topic: who publishes it, and its type."""

    agent: str
    kind: type[msgspec.Struct]
    is_persistent: bool = False

    @property
    def name(self) -> str:
        return self.kind.__name__


NODE_AGENT: Final = "nodeagent"
NODE_AGENT_STATUS: Final = HealthTopic(NODE_AGENT, NodeAgentStatus)
ZBOOT_CONFIG: Final = HealthTopic(NODE_AGENT, ZbootConfig)
ZBOOT_STATUS: Final = HealthTopic("baseosmgr", ZbootStatus)
HEALTH_STATUS: Final = HealthTopic(NODE_AGENT, HealthStatus)
KUBELETX_STATUS: Final = HealthTopic("kubeletx", KubeletxStatus)
PUBLISHED: Final = (NODE_AGENT_STATUS, HEALTH_STATUS, ZBOOT_CONFIG, ZBOOT_STATUS)
READ: Final = (
    HealthTopic("zedagent", ZedAgentStatus),
    HealthTopic("zedagent", ConfigItemValueMap),
    HealthTopic("zedagent", BaseOsConfig),
    HealthTopic(ANY, LedBlinkerConfig),
    HealthTopic(ANY, DomainStatus),
    HealthTopic("vaultmgr", VaultStatus),
    HealthTopic("volumemgr", VolumeMgrStatus),
    HealthTopic("tpmmgr", TpmSanityStatus),
    HealthTopic("zedkube", NodeDrainStatus),
    KUBELETX_STATUS,
)


class Update(NamedTuple):
    """A file of a topic that was written or removed. `value` None: removed. `is_old`: it was there at the start."""

    topic: HealthTopic
    agent: str
    key: str
    value: Any
    is_old: bool


class Publisher:
    """Writes topics. A value that is published again with the same content is not written again."""

    def __init__(self, run: Path, persist: Path, complain: Callable[[str], object]) -> None:
        self._run, self._persist, self._complain = run, persist, complain
        self._written: dict[Path, bytes] = {}

    def publish(self, topic: HealthTopic, key: str, value: msgspec.Struct) -> None:
        """Publish a value; an error is reported, and the next call tries again."""
        path = path_of(self._persist if topic.is_persistent else self._run, topic, key)
        data = msgspec.json.encode(value)
        if self._written.get(path) == data and path.exists():
            return
        try:
            (replace_file if topic.is_persistent else replace_unflushed)(path, data, 0o644)
        except OSError as error:
            self._complain(f"{path}: cannot be published: {error.strerror}")
            return
        self._written[path] = data


class Reader:
    """Reads topics. `changes` returns what was written since its last call.

    `is_changed`: set by a watch of `directories` when something was written. Without a sign of a change, files are looked at
    in every sixth call only, in case that a watch was lost.
    """

    def __init__(
        self, run: Path, persist: Path, topics: tuple[HealthTopic, ...], complain: Callable[[str], object]
    ) -> None:
        self._run, self._persist, self._topics, self._complain = run, persist, topics, complain
        self._seen: dict[Path, tuple[int, int]] = {}
        self._is_first = True
        self.is_changed = True
        self._calls = 0

    def directories(self) -> Iterator[Path]:
        """Return the directories in which a change may come: to watch them."""
        yield self._run
        for topic in self._topics:
            for directory in self._directories(topic):
                yield directory.parent
                yield directory

    def changes(self) -> list[Update]:
        self._calls += 1
        if not self.is_changed and self._calls % _UNWATCHED_CALLS:
            return []
        self.is_changed = False
        updates, present = [], set()
        for topic in self._topics:
            for directory in self._directories(topic):
                for path in self._files(directory):
                    present.add(path)
                    update = self._read(topic, directory.parent.name, path)
                    if update is not None:
                        updates.append(update)
                for path in [p for p in self._seen if p.parent == directory and p not in present]:
                    del self._seen[path]
                    updates.append(Update(topic, directory.parent.name, path.stem, None, is_old=False))
        self._is_first = False
        return updates

    def _directories(self, topic: HealthTopic) -> list[Path]:
        base = self._persist if topic.is_persistent else self._run
        if topic.agent != ANY:
            return [base / topic.agent / topic.name]
        try:
            return sorted(path for path in base.glob(f"*/{topic.name}") if path.is_dir())
        except OSError:
            return []

    def _files(self, directory: Path) -> list[Path]:
        try:
            paths = sorted(
                path for path in directory.iterdir() if path.suffix == ".json" and path.name[0] != "."
            )
        except OSError:
            return []
        if len(paths) > MAX_KEYS:
            self._complain(f"{directory}: has {len(paths)} files; the first {MAX_KEYS} are read")
        return paths[:MAX_KEYS]

    def _read(self, topic: HealthTopic, agent: str, path: Path) -> Update | None:
        stamp = stamp_of(path)
        if stamp is None or self._seen.get(path) == stamp:
            return None
        self._seen[path] = stamp
        try:
            value = msgspec.json.decode(read_regular(path, MAX_BYTES), type=topic.kind)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            self._complain(f"{path}: {error}; the last valid value counts")
            return None
        return Update(topic, agent, path.stem, value, self._is_first)


def path_of(base: Path, topic: HealthTopic, key: str) -> Path:
    """Return the file of a topic. `base`: RUN, or PERSIST for a persistent topic."""
    return base / topic.agent / topic.name / f"{key}.json"


def find(kind: type[_T], path: Path) -> _T | None:
    """Return the value of a topic's file for a command; None if there is none. Raises ValueError and OSError."""
    try:
        return msgspec.json.decode(read_regular(path, MAX_BYTES), type=kind)
    except FileNotFoundError:
        return None


def validate_topic(topic: str) -> None:
    """Raises ValueError unless it is AGENT/TOPIC/KEY."""
    if not _TOPIC.fullmatch(topic):
        raise ValueError(f"topic {topic[:80]!r} is not AGENT/TOPIC/KEY")


def read_field(path: Path, field: str) -> Any:
    """Return the value at a dotted path, such as ``Port.State``. Raises OSError, and ValueError if it is not there."""
    try:
        value = msgspec.json.decode(read_regular(path, MAX_BYTES))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            raise ValueError(f"{path}: there is no field {field}")
        value = value[name]
    return value


def is_among(value: Any, words: TopicWords) -> bool:
    """Return True if a value is one of these; 1 is not true here."""
    return any(type(value) is type(word) and value == word for word in words)
