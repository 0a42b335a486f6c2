"""Pod → contract specs: environment, names, security, resources, logs. Pure apart from host files."""

from .compose import compose_unit
from .dns import PodWarning
from .env import skipped_names
from .errors import ContainerConfigError, SandboxConfigError
from .hosts import hosts_text
from .node import NodeContext
from .sandbox import build_sandbox_spec, sandbox_warnings
from .services import service_variables
from .unit import build_unit_spec, log_path, unit_environment

__all__ = [
    "ContainerConfigError",
    "NodeContext",
    "PodWarning",
    "SandboxConfigError",
    "build_sandbox_spec",
    "build_unit_spec",
    "compose_unit",
    "hosts_text",
    "log_path",
    "sandbox_warnings",
    "service_variables",
    "skipped_names",
    "unit_environment",
]
