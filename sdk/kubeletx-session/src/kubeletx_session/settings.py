"""Settings and metadata that an instance gets from its node: environment variables, the certificate, and the file metadata.json.

    KUBELETX_SESSION_DIRECTORY   directory with tls.crt, tls.key, ca.crt and metadata.json
    KUBELETX_SESSION_SERVICE     address of the session service: unix:///PATH or HOST:PORT
    KUBELETX_POD_ID              namespace/name of the pod

A virtual machine has no such variables: it mounts the directory itself, sets the first of them, and finds the rest in
metadata.json.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY = "KUBELETX_SESSION_DIRECTORY"
SERVICE = "KUBELETX_SESSION_SERVICE"
POD_ID = "KUBELETX_POD_ID"


class SettingsError(ValueError):
    """The environment or a file of the session directory is missing or unusable; the message says which, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address and a port of the pod. `protocol`: TCP, UDP or SCTP. `name`: of the container's port, or empty."""

    name: str
    protocol: str
    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """Content of metadata.json. `application_data`: custom data of the application, from the pod's annotation.

    `endpoints`: one for each port and address of the pod; none before it has an address. `raw`: the whole JSON object,
    with the pod's sessions.
    """

    pod_id: str
    pod_uid: str
    service: str
    node: str
    endpoints: tuple[Endpoint, ...]
    application: str
    application_data: str
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Address of the session service, and the client's limits and times.

    `service`, `pod_id`: empty values are read from metadata.json. `heartbeat_seconds`: interval between reports of every
    session. `shutdown_seconds`: grace period of open sessions at SIGTERM. `call_seconds`: deadline of one report, and of a connection.
    `longest_pause_seconds`: upper bound of the pause before another attempt to connect. `most_sessions`: a session above
    this number is refused.
    """

    directory: Path
    service: str = ""
    pod_id: str = ""
    heartbeat_seconds: float = 10.0
    shutdown_seconds: float = 20.0
    call_seconds: float = 5.0
    longest_pause_seconds: float = 5.0
    most_sessions: int = 1000

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **limits: Any) -> Settings:
        """Read the variables of the module's docstring. `limits`: other fields.

        Raises SettingsError if the pod has no session directory.
        """
        variables = os.environ if environ is None else environ
        if not variables.get(DIRECTORY):
            raise SettingsError(
                f'{DIRECTORY} is not set; give the pod the annotation kubeletx.io/sessions: "true", '
                "or in a virtual machine set it to the mounted directory"
            )
        return cls(
            directory=Path(variables[DIRECTORY]),
            service=variables.get(SERVICE, ""),
            pod_id=variables.get(POD_ID, ""),
            **limits,
        )

    def metadata(self) -> Metadata:
        """Read metadata.json as it is now. Raises SettingsError."""
        path = self.directory / "metadata.json"
        content = self.read("metadata.json")
        try:
            document = json.loads(content)
            application = document.get("application") or {}
            return Metadata(
                pod_id=document["podId"],
                pod_uid=document.get("podUid", ""),
                service=document.get("service", ""),
                node=document.get("node", ""),
                endpoints=tuple(Endpoint(**endpoint) for endpoint in document.get("endpoints", ())),
                application=application.get("name", ""),
                application_data=application.get("data", ""),
                raw=document,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingsError(f"{path} is not the metadata of an instance: {error!r}") from error

    def read(self, name: str) -> bytes:
        """Read a file of the session directory. Raises SettingsError."""
        path = self.directory / name
        try:
            return path.read_bytes()
        except OSError as error:
            raise SettingsError(f"cannot read {path}: {error.strerror}; check {DIRECTORY}") from error
