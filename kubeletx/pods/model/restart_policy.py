"""Restart decision for an ended container (B4, L7 in docs/kubelet-parity.md).

The container's own rules on exit codes decide before its own restart policy, and that before the pod's. A
container that the node stopped because it was unhealthy runs again unless the policy is Never; one whose
image changed runs again under every policy. Init containers under Always restart on failure only; sidecars
carry Always themselves. Source: kubelet, component-helpers and kuberuntime's computePodActions; KEP-5307.
"""

from __future__ import annotations

from kubeletx.kube.types.core import Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes

ALWAYS, ON_FAILURE, NEVER = "Always", "OnFailure", "Never"
LOST_EXIT_CODE = 137
"""Exit code of a container that ran and that its runtime no longer has."""

RESTART, RESTART_ALL = "Restart", "RestartAllContainers"
SPEC_CHANGED = "SpecChanged"
"""Reason for stopping a container whose image no longer matches its spec."""


def restart_policy_of(container: Container, pod_policy: str | None) -> str:
    """The restart policy of this container: its own, else the pod's, else Always."""
    return container.restart_policy or pod_policy or ALWAYS


def should_restart(
    container: Container,
    pod_policy: str | None,
    exit_code: int,
    *,
    killed: str = "",
    is_init: bool = False,
) -> bool:
    """Return True if the container that ended with `exit_code` is to run again.

    `killed`: the node's reason for stopping it for a restart (its health, a hook, a changed image), or empty.
    `is_init`: an ordinary init container, which is done once it exited with 0.
    """
    if is_init and exit_code == 0 and not killed:
        return False
    if killed == SPEC_CHANGED or rule_for(container, exit_code) is not None:
        return True
    policy = restart_policy_of(container, pod_policy)
    if policy == ON_FAILURE:
        return bool(killed) or exit_code != 0
    return policy != NEVER


def rule_for(container: Container, exit_code: int) -> ContainerRestartRule | None:
    """The container's first rule that matches the exit code; None if none does."""
    for rule in container.restart_policy_rules:
        if rule.action in (RESTART, RESTART_ALL) and _matches(rule.exit_codes, exit_code):
            return rule
    return None


def _matches(codes: ContainerRestartRuleOnExitCodes | None, exit_code: int) -> bool:
    if codes is None:
        return False
    listed = exit_code in codes.values
    return not listed if codes.operator == "NotIn" else listed
