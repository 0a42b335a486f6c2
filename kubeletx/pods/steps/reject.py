"""Rejects a pod for good: it becomes Failed.

See docs/kubelet-parity.md, row A2, and DECISIONS 5 in docs/decisions/answers.md.
"""

from __future__ import annotations

import structlog

from kubeletx.api import InvalidPod, KubeletxError
from kubeletx.api.names import RUNTIME_UNSUPPORTED
from kubeletx.node.events import shortened

from ..model import results
from ..model.facts import PodFacts
from ..model.phase import PENDING
from ..model.results import Result
from .context import StepContext

log = structlog.get_logger(__name__)


def reject(step: StepContext, reason: str, message: str) -> Result:
    """Record the rejection, and return the result that makes the pod Failed with this reason and message."""
    message = shortened(message)
    log.info("Rejected pod", pod=step.desired.ref, pod_uid=step.uid, reason=reason, err=message)
    step.warning(reason, message)
    step.deps.counters.admission_rejections[reason] += 1
    return results.Rejected(reason, message)


def refusal(step: StepContext, error: KubeletxError) -> Result | None:
    """Reject the pod if `error` says that its runtime does not support a feature that it needs.

    Return None if the pod is not rejected and the caller should retry. A pod that ran before is never rejected: its
    runtime had the missing feature once and may have it again (docs/kubelet-parity.md, row A6).
    """
    if not isinstance(error, InvalidPod) or error.reason != RUNTIME_UNSUPPORTED or _has_run(step.facts):
        return None
    return reject(step, RUNTIME_UNSUPPORTED, str(error))


def _has_run(facts: PodFacts) -> bool:
    if facts.snapshot is not None and facts.snapshot.units:
        return True
    previous = facts.previous_status
    return previous is not None and previous.phase not in (None, PENDING)
