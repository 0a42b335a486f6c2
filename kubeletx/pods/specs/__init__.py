"""Converts a Pod to the `SandboxSpec` and `UnitSpec` that runtimes get. Pure, except that it reads host files."""

from ..model.node_context import NodeContext
from ..model.spec_errors import ContainerConfigError, SandboxConfigError
from .dns import PodWarning
from .environment import skipped_names
from .extras import ExtrasProvider, UnitExtras, gather_extras
from .hosts import hosts_text
from .inputs import SandboxInputs, UnitInputs
from .sandbox import build_sandbox_spec, sandbox_warnings
from .service_variables import service_variables
from .unit import build_unit_spec, compose_unit, unit_environment

__all__ = [
    "ContainerConfigError",
    "ExtrasProvider",
    "NodeContext",
    "PodWarning",
    "SandboxConfigError",
    "SandboxInputs",
    "UnitExtras",
    "UnitInputs",
    "build_sandbox_spec",
    "build_unit_spec",
    "compose_unit",
    "gather_extras",
    "hosts_text",
    "sandbox_warnings",
    "service_variables",
    "skipped_names",
    "unit_environment",
]
