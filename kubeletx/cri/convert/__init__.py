"""Conversion between values of `kubeletx.api` and CRI messages. Pure, without policy.

``..._to_cri`` functions convert specs to the requests that `CriRuntime` sends. ``..._from_cri`` functions convert its
answers, and the requests that the agent's own CRI server receives. Fields without a counterpart in CRI are left out of
messages, and have their defaults in values that come from CRI; each module names these fields.
"""

from .common import (
    auth_to_cri,
    filesystem_from_cri,
    image_from_cri,
    image_spec_from_cri,
    image_spec_to_cri,
    namespaces_from_cri,
    namespaces_to_cri,
    resources_from_cri,
    resources_to_cri,
)
from .observed import (
    sandbox_status_from_cri,
    sandbox_summary_from_cri,
    stats_from_cri,
    unit_status_from_cri,
    unit_summary_from_cri,
)
from .sandbox import sandbox_from_cri, sandbox_to_cri
from .unit import unit_from_cri, unit_to_cri

__all__ = [
    "auth_to_cri",
    "filesystem_from_cri",
    "image_from_cri",
    "image_spec_from_cri",
    "image_spec_to_cri",
    "namespaces_from_cri",
    "namespaces_to_cri",
    "resources_from_cri",
    "resources_to_cri",
    "sandbox_from_cri",
    "sandbox_status_from_cri",
    "sandbox_summary_from_cri",
    "sandbox_to_cri",
    "stats_from_cri",
    "unit_from_cri",
    "unit_status_from_cri",
    "unit_summary_from_cri",
    "unit_to_cri",
]
