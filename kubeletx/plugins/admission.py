"""`AdmissionChecks`: calls the admission checks of plugins for a new pod, before it is assigned to a runtime."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import structlog

from kubeletx.api import AdmissionCheck, Allow, KubeletxError, Refuse
from kubeletx.api.names import ADMISSION_CHECK_FAILED
from kubeletx.kube.types.core import Pod
from kubeletx.pods import Rejection, Waiting
from kubeletx.runtimes.handles.shapes import describe

from .callbacks import MOST_LEFT, Callbacks, line

log = structlog.get_logger(__name__)

REASON: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")


class AdmissionChecks:
    """Calls the plugins' admission checks, one after the other, in the order of their names."""

    def __init__(self, checks: Iterable[Callbacks], *, timeout_seconds: float) -> None:
        self._checks = sorted(checks, key=lambda callbacks: callbacks.registration.name)
        self._timeout_seconds = timeout_seconds

    def __len__(self) -> int:
        return len(self._checks)

    async def review(self, pod: Pod) -> Rejection | Waiting | None:
        """Review the pod with each check in turn; return None if all of them allow it.

        Returns a Rejection if a check refuses the pod. Returns Waiting if a check fails; the pod is then reviewed again
        later. A check that was registered with `fails_open` is skipped when it fails.
        """
        for callbacks in self._checks:
            registration = callbacks.registration
            try:
                answer: Allow | Refuse = await callbacks.call(
                    "review",
                    _reviewing(callbacks.made, pod),
                    seconds=self._timeout_seconds,
                    most_left=MOST_LEFT,
                )
            except KubeletxError as error:
                if registration.fails_open:
                    log.warning(
                        "Admitted a pod without a check that failed", pod=pod.ref, check=registration.name
                    )
                    continue
                return Waiting(reason=ADMISSION_CHECK_FAILED, message=line(str(error)))
            if isinstance(answer, Refuse):
                return Rejection(
                    reason=answer.reason,
                    message=f"admission check {registration.name}: {line(answer.message)}",
                )
        return None


def _reviewing(check: AdmissionCheck, pod: Pod) -> Callable[[], Any]:
    async def review() -> Allow | Refuse:
        answer = await check.review(as_mapping(pod))
        if isinstance(answer, Allow):
            return answer
        if not isinstance(answer, Refuse):
            raise TypeError(f"returned {type(answer).__name__}, not Allow or Refuse")
        if not isinstance(answer.reason, str) or not REASON.fullmatch(answer.reason):
            raise ValueError(f"reason {describe(answer.reason)} is not one word in CamelCase")
        return answer

    return review


def as_mapping(pod: Pod) -> Mapping[str, Any]:
    """Return a copy of the pod as a mapping of JSON values, with apiVersion and kind."""
    copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(pod))
    return {"apiVersion": "v1", "kind": "Pod", **copy}
