"""`CertificateFiles`: storage of a certificate and its key, in the kubelet's layout.

    <cert-dir>/kubelet-client-2030-01-02-03-04-05.pem      certificate, then key; mode 0600
    <cert-dir>/kubelet-client-current.pem                  a link to the newest one, replaced in one step

A reader of the link always gets a certificate and the matching key, even while the link is replaced. Older files are
kept, as by the kubelet. Source: client-go, util/certificate/certificate_store.go.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import structlog

from kubeletx.api import InvalidConfig
from kubeletx.linux.files import replace_file, sync_directory

from .key_pairs import KeyPair, parse_pair

log = structlog.get_logger(__name__)

CLIENT, SERVER = "kubelet-client", "kubelet-server"


class CertificateFiles:
    """Stores the client or the serving certificate of the node in a directory. All methods block.

    `prefix`: `CLIENT` or `SERVER`, the first part of the file names. `current`: path of the link to the newest file.
    """

    def __init__(self, directory: Path, prefix: str) -> None:
        self._directory = directory
        self._prefix = prefix
        self.current = directory / f"{prefix}-current.pem"

    def load(self) -> KeyPair | None:
        """Return the newest certificate with its key.

        None if nothing is stored, or if the file cannot be read or parsed, which is logged.
        """
        try:
            return parse_pair(self.current.read_bytes(), str(self.current))
        except FileNotFoundError:  # no certificate was stored yet, or the link has no target
            return None
        except (OSError, InvalidConfig) as error:
            log.warning("Cannot use a certificate", file=str(self.current), err=str(error))
            return None

    def store(self, pair: KeyPair, now: datetime) -> Path:
        """Store the pair in a new file, named by the time `now`, and make the link `current` point to it.

        Returns the path of the new file. Raises OSError.
        """
        self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        path = self._directory / f"{self._prefix}-{now:%Y-%m-%d-%H-%M-%S}.pem"
        replace_file(path, pair.pem, 0o600)
        link = self._directory / f"{self._prefix}-updated.pem"
        link.unlink(missing_ok=True)
        link.symlink_to(path.name)
        link.replace(self.current)
        sync_directory(self._directory)
        return path
