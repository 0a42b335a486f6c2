"""The default of imagePullPolicy, which depends on the image's tag."""

from __future__ import annotations

from kubeletx.api import find_image_reference


def pull_policy(image: str) -> str:
    """Return the default imagePullPolicy: Always for the tag ``latest``, written or implied, else IfNotPresent.

    The result is Always, too, if `image` is not an image reference, such as the URL of a virtual machine's
    disk. A prefix ``oci:`` is ignored.
    """
    found = find_image_reference(image.removeprefix("oci:"))
    return "Always" if found is None or found.tag == "latest" else "IfNotPresent"
