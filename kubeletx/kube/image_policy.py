"""Default of imagePullPolicy."""

from __future__ import annotations


def pull_policy(image: str) -> str:
    """Always for the tag ``latest``, given or implied; IfNotPresent for any other tag or a digest."""
    name, _, digest = image.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    return "Always" if tag == "latest" or not (colon or digest) else "IfNotPresent"
