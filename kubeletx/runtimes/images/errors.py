"""Errors of image pulls. Their `reason` is the reason of the container's Waiting state."""

from __future__ import annotations

from kubeletx.api import Unavailable

ERR_IMAGE_PULL = "ErrImagePull"
IMAGE_PULL_BACK_OFF = "ImagePullBackOff"


class PullFailed(Unavailable):
    """Raised if a pull failed. `retry_at`: monotonic time of the next try; earlier ones raise `PullBackOff`."""

    def __init__(self, message: str, *, retry_at: float, reason: str = ERR_IMAGE_PULL) -> None:
        """`reason`: reason of the error of the image service; ErrImagePull if it gave none."""
        super().__init__(message, reason=reason)
        self.retry_at = retry_at


class PullBackOff(PullFailed):
    """Raised instead of pulling, while the back-off after the last failure is not over."""

    def __init__(self, message: str, *, retry_at: float) -> None:
        """`retry_at`: monotonic time at which the back-off ends."""
        super().__init__(message, retry_at=retry_at, reason=IMAGE_PULL_BACK_OFF)
