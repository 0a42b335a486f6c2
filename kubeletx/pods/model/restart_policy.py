"""Decides whether an ended container runs again (docs/kubelet-parity.md, rows B4 and L7).

The first of these that applies decides: the container's restart rules for exit codes, its own restart policy, the
pod's restart policy. A container that the node stopped because it was unhealthy runs again unless the policy is
Never. A container whose image changed runs again under every policy. An init container of a pod with policy Always
restarts only after a failure. A sidecar is an init container whose own policy is Always. Source: kubelet,
component-helpers and kuberuntime's computePodActions; KEP-5307.
"""

from __future__ import annotations

from kubeletx.kube.types.core import Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes

ALWAYS, ON_FAILURE, NEVER = "Always", "OnFailure", "Never"
LOST_EXIT_CODE = 137
"""Exit code reported for a container that ran, but that its runtime no longer has."""

RESTART, RESTART_ALL = "Restart", "RestartAllContainers"
RESTART_REQUESTED = "RestartRequested"
"""Reason for stopping a container of which a user wants a restart."""
SPEC_CHANGED = "SpecChanged"
"""Reason for stopping a container that no longer matches its spec, for example because its image changed."""


def restart_policy_of(container: Container, pod_policy: str | None) -> str:
    """Return the restart policy of this container: its own, else the pod's, else Always."""
    return container.restart_policy or pod_policy or ALWAYS


def should_restart(
    container: Container,
    pod_policy: str | None,
    exit_code: int,
    *,
    killed: str = "",
    is_init: bool = False,
) -> bool:
    """Return True if the container, which ended with `exit_code`, should run again.

    `pod_policy`: restart policy of the pod; None means Always. `killed`: the agent's reason if it stopped the
    container for a restart (failed probe or hook, changed image), else empty. `is_init`: the container is an init
    container but no sidecar, so it is done after exit code 0.
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
    """Return the first of the container's `restartPolicyRules` that matches the exit code; None if none does."""
    for rule in container.restart_policy_rules:
        if rule.action in (RESTART, RESTART_ALL) and _matches(rule.exit_codes, exit_code):
            return rule
    return None


def _matches(codes: ContainerRestartRuleOnExitCodes | None, exit_code: int) -> bool:
    if codes is None:
        return False
    listed = exit_code in codes.values
    return not listed if codes.operator == "NotIn" else listed
