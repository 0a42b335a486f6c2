"""Topics of other agents, kept as the values that a tick needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from .contact import ContactReport
from .drain import DrainRequester, DrainState, NodeDrain
from .maintenance import MaintenanceReason
from .model import Begin, BootReason, Complain, Order, Reach
from .orders import request_of
from .topics import (
    READ,
    BaseOsConfig,
    ConfigItemValueMap,
    DomainStatus,
    KubeletxStatus,
    LedBlinkerConfig,
    NodeDrainStatus,
    Reader,
    TpmSanityStatus,
    Update,
    VaultStatus,
    VolumeMgrStatus,
    ZedAgentStatus,
)
from .validation import Vault

_CONNECTED: Final = frozenset({3, 4})
"""LED counts that mean a connection with the controller."""
_TPM_ENCRYPTION: Final = 2
_TPM_QUOTE: Final = 3
_VAULT: Final = "Application Data Store"
"""Name of the vault that a node needs (EVE's DefaultVaultName); others are ignored."""
_VAULTS: Final = {3: Vault.OPEN, 4: Vault.ERROR}
"""States of a vault by the number in its topic."""


class Inbox:
    """Last valid values of all topics that are read.

    `reports`: last report about the controller, by source. `commands`: operations that the controller's agent asks for;
    `ignored`: commands that an earlier boot has carried out, so that they count only after they have changed.
    `has_new_command`: they have changed. `images`: what the controller wants, by key; `cancelled`: what it has removed.
    `domains`: agent and name of the domains that run. `items`: the controller's settings; `fallback_counter`: its ForceFallbackCounter.
    `reasons`: for maintenance mode; `asks_maintenance`: the controller wants it.
    `blink_counter`: the last LED count of any agent. `agent`: last status of the node agent; None: there is none.
    """

    def __init__(self, run: Path, persist: Path, complain: Complain) -> None:
        self.reader = Reader(run, persist, READ, complain)
        self.reports: dict[str, ContactReport] = {}
        self.commands: tuple[Begin, ...] = ()
        self.ignored: tuple[Begin, ...] = ()
        self.has_new_command = False
        self.images: dict[str, BaseOsConfig] = {}
        self.cancelled: list[BaseOsConfig] = []
        self._requests: list[Begin] = []
        self.domains: set[tuple[str, str]] = set()
        self.items: dict[str, Any] = {}
        self.fallback_counter: int | None = None
        self.asks_maintenance = False
        self.blink_counter = 0
        self.agent: KubeletxStatus | None = None
        self.reasons: set[MaintenanceReason] = set()
        self._vaults: dict[str, Vault] = {}
        self.agent_at = 0
        self._drain: NodeDrain | None = None

    def read(self, now: int) -> None:
        """Take what was written since the last call."""
        for update in self.reader.changes():
            if update.value is None:
                self._forget(update)
            else:
                self._take(update, now)

    @property
    def vault(self) -> Vault:
        states = set(self._vaults.values())
        return Vault.ERROR if Vault.ERROR in states else Vault.OPEN if Vault.OPEN in states else Vault.NONE

    @property
    def is_halted(self) -> bool:
        """True if no domain runs, and the node agent, if there is one, has ended its pods."""
        return not self.domains and (self.agent is None or self.agent.all_pods_ended)

    @property
    def drain(self) -> NodeDrain | None:
        """Drain of the node: of an agent that has begun one, else of kubeletx, which can be asked; None: there is none."""
        if self._drain is not None and self._drain.state > DrainState.NOTREQUESTED:
            return self._drain
        return _drain_of(self.agent.drain, self.agent_at) if self.agent else None

    def take_requests(self) -> list[Begin]:
        """Return the operations that were asked for since the last call."""
        requests, self._requests = self._requests, []
        return requests

    def receive(self, source: str, reach: Reach, now: int, *, is_old: bool = False) -> None:
        """Take a report about the controller. `is_old`: it may be of an earlier boot, so success is no contact."""
        if is_old and reach is Reach.SUCCESS:
            return
        before = self.reports.get(source)
        count = before.count if before else 0
        self.reports[source] = ContactReport(reach, now, count + (reach is Reach.SUCCESS))

    def _take(self, update: Update, now: int) -> None:
        value = update.value
        match value:
            case ZedAgentStatus():
                self.receive(_source(update), _reach(value.config_get_status), now, is_old=update.is_old)
                self._take_commands(value)
            case LedBlinkerConfig():
                self.blink_counter = value.blink_counter
                reach = Reach.SUCCESS if value.blink_counter in _CONNECTED else Reach.FAIL
                self.receive(_source(update), reach, now, is_old=update.is_old)
            case KubeletxStatus():
                self.agent, self.agent_at = value, now
                if value.contact:
                    self.receive(_source(update), _reach(value.contact), now, is_old=update.is_old)
            case NodeDrainStatus():
                self._drain = _drain_of(value, None)
            case BaseOsConfig():
                self.images[update.key] = value
            case DomainStatus():
                change = self.domains.add if value.activated else self.domains.discard
                change((update.agent, update.key))
            case VaultStatus() if _VAULT in {update.key, value.name}:
                self._vaults[update.key] = _VAULTS.get(value.status, Vault.NONE)
            case VolumeMgrStatus() if value.initialized or value.remaining_space:
                self._blame(MaintenanceReason.NO_DISK_SPACE, value.remaining_space == 0)
            case TpmSanityStatus():
                self._blame(MaintenanceReason.TPM_ENC_FAILURE, value.status == _TPM_ENCRYPTION)
                self._blame(MaintenanceReason.TPM_QUOTE_FAILURE, value.status == _TPM_QUOTE)
            case ConfigItemValueMap() if update.key == "global":
                self.items = value.global_settings

    def _forget(self, update: Update) -> None:
        self.reports.pop(_source(update), None)
        self.domains.discard((update.agent, update.key))
        if update.topic.kind is KubeletxStatus:
            self.agent = None
        if update.topic.kind is NodeDrainStatus:
            self._drain = None
        if update.topic.kind is BaseOsConfig and update.key in self.images:
            self.cancelled.append(self.images.pop(update.key))
        if update.topic.kind is VaultStatus:
            self._vaults.pop(update.key, None)

    def _take_commands(self, status: ZedAgentStatus) -> None:
        boot_reason = status.requested_boot_reason or BootReason.REBOOT_CMD
        verbs = {
            "reboot": status.reboot_cmd,
            "shutdown": status.shutdown_cmd,
            "poweroff": status.poweroff_cmd,
        }
        reason = status.requested_reboot_reason
        commands = tuple(
            request_of(Order(id="", verb=verb, reason=reason, boot_reason=boot_reason))
            for verb, is_asked in verbs.items()
            if is_asked
        )
        if commands != self.ignored:
            self.ignored = ()
            self.has_new_command |= bool(commands) and commands != self.commands
            self._requests.extend(commands)
        self.commands = commands
        self.fallback_counter = status.force_fallback_counter
        self.asks_maintenance = status.maintenance_mode
        self._blame(MaintenanceReason.EDGE_NODE_CERTS_REFUSED, status.edge_node_certs_refused)

    def _blame(self, reason: MaintenanceReason, holds: bool) -> None:
        (self.reasons.add if holds else self.reasons.discard)(reason)


def _source(update: Update) -> str:
    return f"{update.agent}/{update.topic.name}/{update.key}"


def _drain_of(status: NodeDrainStatus, at: int | None) -> NodeDrain:
    state = DrainState(status.status) if status.status in set(DrainState) else DrainState.UNKNOWN
    is_known = status.requested_by in set(DrainRequester)
    return NodeDrain(state, DrainRequester(status.requested_by) if is_known else DrainRequester.NONE, at)


def _reach(number: int) -> Reach:
    return Reach(number) if number in set(Reach) else Reach.FAIL
