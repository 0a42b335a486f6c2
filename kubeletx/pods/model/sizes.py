"""Compare, merge and format CPU and memory, the only resources that an in-place resize can change. Pure."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final

import msgspec
from msgspec.structs import replace

from kubeletx.kube.text.quantity import to_bytes, to_millicores
from kubeletx.kube.types.core import ResourceRequirements

RESIZED: Final = ("cpu", "memory")
INFEASIBLE: Final = "Infeasible"
"""Reason of a failed resize that the node or the runtime can never grant."""

_decoder = msgspec.json.Decoder(ResourceRequirements)


def resources_text(resources: ResourceRequirements) -> str:
    """Format the CPU and memory of `resources` as compact JSON, for an annotation."""
    return msgspec.json.encode(resized(resources), order="sorted").decode()


@lru_cache(maxsize=256)
def read_resources(text: str) -> ResourceRequirements | None:
    """Parse text written by `resources_text`. Return None if it is invalid JSON or has invalid quantities.

    Every plan and every status of a pod reads the same few texts, so the values are kept; callers do not change them.
    """
    try:
        resources = _decoder.decode(text)
        amounts(resources)
    except ValueError:  # msgspec.DecodeError is one
        return None
    return resources


def is_same(one: ResourceRequirements, other: ResourceRequirements) -> bool:
    """Return True if both have equal amounts of CPU and memory; ``1`` and ``1000m`` are equal."""
    return one == other or amounts(one) == amounts(other)


def resized(resources: ResourceRequirements) -> ResourceRequirements:
    """Return only the CPU and memory requests and limits of `resources`."""
    return ResourceRequirements(
        limits={name: text for name, text in resources.limits.items() if name in RESIZED},
        requests={name: text for name, text in resources.requests.items() if name in RESIZED},
    )


def merged(wanted: ResourceRequirements, has: ResourceRequirements) -> ResourceRequirements:
    """Return `wanted` with the CPU and memory of `has`."""
    return replace(
        wanted,
        limits={**{k: v for k, v in wanted.limits.items() if k not in RESIZED}, **has.limits},
        requests={**{k: v for k, v in wanted.requests.items() if k not in RESIZED}, **has.requests},
    )


def larger(first: ResourceRequirements, second: ResourceRequirements) -> ResourceRequirements:
    """Return for each request and limit the larger of both amounts.

    A limit that one of them lacks is left out, since no limit counts as the largest.
    """
    if is_same(first, second):
        return first
    limits = {
        name: max(first.limits[name], second.limits[name], key=partial(_amount, name))
        for name in first.limits
        if name in second.limits
    }
    requests = {
        name: max(
            (table[name] for table in (first.requests, second.requests) if name in table),
            key=partial(_amount, name),
        )
        for name in first.requests.keys() | second.requests.keys()
    }
    return replace(first, limits=limits, requests=requests)


def lowers_memory(has: ResourceRequirements | None, wanted: ResourceRequirements) -> bool:
    """Return True if a change from `has` to `wanted` lowers or adds a memory limit.

    `has` None: the present limit is unknown, so any new limit may lower it.
    """
    limit = amounts(wanted)["memory"][1]
    before = amounts(has)["memory"][1] if has is not None else -1
    return limit >= 0 and (before < 0 or limit < before)


def amounts(resources: ResourceRequirements) -> dict[str, tuple[int, int]]:
    """Return for ``cpu`` (millicores) and ``memory`` (bytes) the pair (request, limit); -1 if not set."""
    return {
        name: (
            _amount(name, resources.requests.get(name)),
            _amount(name, resources.limits.get(name)),
        )
        for name in RESIZED
    }


def _amount(name: str, text: str | None) -> int:
    if text is None:
        return -1
    if name == "cpu":
        return to_millicores(text)
    return to_bytes(text)
