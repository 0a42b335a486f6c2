"""Annotations, labels and variables that a core and its nodes use. Source: fornax-serverless pkg/fornaxcore/resource."""

from __future__ import annotations

from typing import Final

SUFFIX: Final = "fornax-serverless.centaurusinfra.io"
NODE: Final = f"node.{SUFFIX}"
"""On a pod: identifier of its node. A POD_STATE without it is rejected."""
REVISION: Final = f"noderevision.core.{SUFFIX}"
"""On a pod or session: revision of its last change. On a pod it has to grow."""
POD_SESSIONS: Final = f"applicationsession.core.{SUFFIX}"
"""On a pod: identifiers of its live sessions, separated by commas."""
SESSION_POD: Final = f"pod.{SUFFIX}"
"""On a session: identifier of its pod."""
APPLICATION: Final = f"application.core.{SUFFIX}"
"""Label of a pod: its application. A pod without it is terminated."""
SESSION_SERVICE: Final = f"sessionservice.core.{SUFFIX}"
"""Variable of a container: the node's address."""
POD: Final = f"pod.{SUFFIX}"
"""Variable of a container: identifier of its pod."""

TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
ENDED_STATUSES: Final = frozenset({"Closed", "Timeout"})
"""Values of a session's status after which it never changes."""
