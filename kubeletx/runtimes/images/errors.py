"""Errors of pulls; `reason` is the Waiting reason that users see."""

from __future__ import annotations

from kubeletx.api import Unavailable

ERR_IMAGE_PULL = "ErrImagePull"
IMAGE_PULL_BACK_OFF = "ImagePullBackOff"


class PullFailed(Unavailable):
    """Raised if a pull failed. `retry_at`: monotonic time of the next try; the store refuses earlier ones."""

    def __init__(self, message: str, *, retry_at: float, reason: str = ERR_IMAGE_PULL) -> None:
        """`reason`: the store's own reason; ErrImagePull if it has none."""
        super().__init__(message, reason=reason)
        self.retry_at = retry_at


class PullBackOff(PullFailed):
    """Raised without a pull, because the back-off after the last failure is not over."""

    def __init__(self, message: str, *, retry_at: float) -> None:
        """`retry_at`: see `PullFailed`."""
        super().__init__(message, retry_at=retry_at, reason=IMAGE_PULL_BACK_OFF)
