"""Labels, annotations and words of the published protocol. Source: reference of fornax-serverless, pkg/apis and pkg/util."""

from __future__ import annotations

from typing import Final

SUFFIX: Final = "fornax-serverless.centaurusinfra.io"
"""End of all names of labels and annotations of the protocol."""

NODE: Final = f"node.{SUFFIX}"
"""Annotation of a pod: identifier of its node. A core refuses a state of a pod without it."""
NODE_REVISION: Final = f"noderevision.core.{SUFFIX}"
"""Annotation of a pod and a session: revision of its last change, decimal."""
SESSIONS: Final = f"applicationsession.core.{SUFFIX}"
"""Annotation of a pod: identifiers of its sessions that have not ended, separated by commas; absent without sessions."""
POD: Final = f"pod.{SUFFIX}"
"""Annotation of a session: identifier of its pod. A core drops a state of a session without it."""
HIBERNATE_POD: Final = f"hibernatepod.core.{SUFFIX}"
"""Annotation of a pod: ``hibernate`` or ``standby``, the state of the pod once it is ready."""
SESSION_SERVICE_POD: Final = f"sessionservicepod.core.{SUFFIX}"
"""Annotation of a pod whose application uses the session service."""

REST_STATES: Final = {"hibernate": "hibernated", "standby": "standby"}
"""Value of annotation ``kubeletx.io/standby`` by value of `HIBERNATE_POD`."""
