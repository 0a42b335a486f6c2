"""Default of imagePullPolicy."""

from __future__ import annotations

from kubeletx.api import find_image_reference


def pull_policy(image: str) -> str:
    """Always for the tag ``latest``, given or implied, and for what is no reference; IfNotPresent otherwise.

    A machine's image may be a URL, or a reference with the prefix ``oci:``.
    """
    found = find_image_reference(image.removeprefix("oci:"))
    return "Always" if found is None or found.tag == "latest" else "IfNotPresent"
