"""Errors of pulls; `reason` is the Waiting reason that users see."""

from __future__ import annotations

from kubeletx.api import Unavailable

ERR_IMAGE_PULL = "ErrImagePull"
IMAGE_PULL_BACK_OFF = "ImagePullBackOff"


class PullFailed(Unavailable):
    """A pull failed. `retry_at`: monotonic time before which the store refuses the next try."""

    def __init__(self, message: str, *, retry_at: float, reason: str = ERR_IMAGE_PULL) -> None:
        """`reason`: the store's own word for it, ErrImagePull if it gave none."""
        super().__init__(message, reason=reason)
        self.retry_at = retry_at


class PullBackOff(PullFailed):
    """No pull was made: the last one failed not long ago."""

    def __init__(self, message: str, *, retry_at: float) -> None:
        """`retry_at` as in `PullFailed`."""
        super().__init__(message, retry_at=retry_at, reason=IMAGE_PULL_BACK_OFF)
