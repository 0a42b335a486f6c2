"""Rejects a pod for good: it becomes Failed.

See docs/kubelet-parity.md, row A2, and DECISIONS 5 in docs/decisions/answers.md.
"""

from __future__ import annotations

import structlog

from kubeletx.node.events import shortened

from ..model import results
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
