"""States of a pod of a core, and the table of their changes. Pure.

    CREATING             stored; the pod is assigned to a runtime, its images are pulled, init containers run
    LIVENESS_CHECKING    containers are started and not ready yet
    STANDBY              ready and frozen
    ACTIVATING           it thaws, or a first session is not ready yet
    RUNNING              ready; sessions are open, or it needs none
    HIBERNATING          a core has requested standby; the containers are not frozen yet
    EVACUATING           it ends; its sessions are closed
    TERMINATING          it ends; its containers are stopped and removed
    TERMINATED           nothing is left of it; its row is deleted

`step` takes the causes that hold now, and follows the first row of each state whose cause holds. So a missed change
is made up by the next look, and several changes may follow in one step. Source: the drawing of pods in nodeagent.md;
HIBERNATING and what has to do with it are added.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Final


class PodState(enum.Enum):
    """State of a pod of a core; see the top of this file."""

    CREATING = "Creating"
    LIVENESS_CHECKING = "LivenessChecking"
    STANDBY = "Standby"
    ACTIVATING = "Activating"
    RUNNING = "Running"
    HIBERNATING = "Hibernating"
    EVACUATING = "Evacuating"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"


class PodCause(enum.Enum):
    """Cause of a change. The value is the text in the drawing."""

    GONE = "nothing is left of it"
    ENDING = "it is deleted, or has ended"
    FAILED = "a container cannot start"
    CHECK_TIMEOUT = "liveness check timeout"
    CALLBACK_TIMEOUT = "ready callback timeout"
    EXISTS = "its containers are started"
    READY = "its containers are ready, and it does not rest"
    FROZEN = "its containers are frozen"
    WAKES = "a session is opened, or a core activates it"
    ACTIVE = "it is thawed, and a session is ready or none is open"
    HIBERNATE = "a core hibernates it"
    STAYS_AWAKE = "it cannot rest, or is activated"
    EVACUATED = "no session is open"


_S, _C = PodState, PodCause
_LAST: Final = (_C.GONE, _S.TERMINATED)
_ENDS: Final = (_LAST, (_C.ENDING, _S.TERMINATING))
_EVACUATES: Final = (_LAST, (_C.ENDING, _S.EVACUATING))

TABLE: Final[Mapping[PodState, tuple[tuple[PodCause, PodState], ...]]] = {
    _S.CREATING: (*_ENDS, (_C.FAILED, _S.TERMINATING), (_C.EXISTS, _S.LIVENESS_CHECKING)),
    _S.LIVENESS_CHECKING: (
        *_ENDS,
        (_C.FAILED, _S.TERMINATING),
        (_C.CHECK_TIMEOUT, _S.TERMINATING),
        (_C.FROZEN, _S.STANDBY),
        (_C.READY, _S.RUNNING),
    ),
    _S.STANDBY: (*_ENDS, (_C.WAKES, _S.ACTIVATING)),
    _S.ACTIVATING: (
        *_EVACUATES,
        (_C.CALLBACK_TIMEOUT, _S.TERMINATING),
        (_C.ACTIVE, _S.RUNNING),
        (_C.HIBERNATE, _S.HIBERNATING),
    ),
    _S.RUNNING: (*_EVACUATES, (_C.FROZEN, _S.STANDBY), (_C.HIBERNATE, _S.HIBERNATING)),
    _S.HIBERNATING: (*_EVACUATES, (_C.FROZEN, _S.STANDBY), (_C.STAYS_AWAKE, _S.RUNNING)),
    _S.EVACUATING: (_LAST, (_C.EVACUATED, _S.TERMINATING)),
    _S.TERMINATING: (_LAST,),
    _S.TERMINATED: (),
}
"""For each state: causes and next states, the first that holds counts."""

ENDING: Final = frozenset({PodState.EVACUATING, PodState.TERMINATING, PodState.TERMINATED})
NEW: Final = frozenset({PodState.CREATING, PodState.LIVENESS_CHECKING})


def step(state: PodState, causes: Collection[PodCause]) -> PodState:
    """Return the state in which none of the causes leads to another one, starting from `state`.

    Each state is entered at most once, so contradictory causes do not make it turn in circles.
    """
    seen = {state}
    while True:
        found = next((then for cause, then in TABLE[state] if cause in causes), None)
        if found is None or found in seen:
            return state
        seen.add(found)
        state = found
