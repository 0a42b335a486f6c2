"""`ClusterAccess`: the API server's address and the client's identity, read from a kubeconfig.

Source: client-go, tools/clientcmd/api/v1. Relative paths in the file start at the file's directory. The file's
current-context selects cluster and user; a file with one cluster and at most one user needs none. An unsupported
setting raises InvalidConfig, which names the setting.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kubeletx.api import InvalidConfig

from ..text.yaml import YamlError, parse_documents

_REFUSED = {
    "auth-provider": "use client certificates, a token or exec",
    "username": "basic authentication is gone from Kubernetes; use a token",
    "as": "a node cannot impersonate another user; remove it",
}
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXTENSION = "client.authentication.k8s.io/exec"


class ExecCredential(msgspec.Struct, frozen=True, kw_only=True):
    """Command line of an external program that prints credentials.

    Source: client.authentication.k8s.io/v1 ExecConfig. `is_told_cluster` (provideClusterInfo): the program
    also gets the server's address, its CA and `cluster_config` in the variable KUBERNETES_EXEC_INFO.
    `cluster_config`: the extension ``client.authentication.k8s.io/exec`` of the kubeconfig's cluster; None if
    the cluster has no such extension.
    """

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    is_told_cluster: bool = False
    cluster_config: Any = None


class ClusterAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Address of an API server, and the credentials of its client. The repr shows no secret.

    `server`: URL without a trailing slash. `ca`, `certificate` and `key`: path of a PEM file, or the PEM text
    itself; `ca` None: trust the system's CAs. The files, and `token_file`, are read again when they change.
    `insecure`: do not verify the server's certificate. `tls_server_name`: name to expect in that certificate;
    empty: the host of `server`. `exec`: program that prints credentials; None: none. `namespace`: default
    namespace of the kubeconfig's context.
    """

    server: str
    ca: Path | bytes | None = None
    insecure: bool = False
    tls_server_name: str = ""
    certificate: Path | bytes | None = None
    key: Path | bytes | None = None
    token: str = ""
    token_file: Path | None = None
    exec: ExecCredential | None = None
    proxy_url: str = ""
    namespace: str = "default"

    def __repr__(self) -> str:
        return f"ClusterAccess(server={self.server!r})"


def load_kubeconfig(path: Path) -> ClusterAccess:
    """Read a kubeconfig and return its current context. Raises InvalidConfig, which names the file and the field."""
    try:
        documents = parse_documents(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _bad(path, "", f"cannot be read: {error.strerror or error}", "correct the path") from error
    except UnicodeDecodeError as error:
        raise _bad(path, "", "is not UTF-8", "save it as UTF-8") from error
    except YamlError as error:
        raise _bad(path, f"line {error.line}" if error.line else "", error.problem, error.fix) from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise _bad(path, "", "is not a kubeconfig", "write apiVersion: v1, kind: Config")
    return _Reader(path, documents[0]).access()


def service_account_access(directory: Path = SERVICE_ACCOUNT) -> ClusterAccess:
    """Return the access of this process's pod: its service account, and the API server that the kubelet names.

    `directory`: with ``token`` and ``ca.crt``. Raises InvalidConfig outside of a pod.
    Source: client-go, rest.InClusterConfig.
    """
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{word}", "") for word in ("HOST", "PORT"))
    token = directory / "token"
    if not host or not port.isdigit() or not token.exists():
        raise InvalidConfig(
            field="--kubeconfig",
            problem="no API server is named, and this process has no service account of a pod",
            fix="write --kubeconfig FILE, or set KUBECONFIG",
        )
    address = f"[{host}]" if ":" in host else host
    return ClusterAccess(server=f"https://{address}:{port}", ca=directory / "ca.crt", token_file=token)


class _Reader:
    """Converts one decoded kubeconfig file to a `ClusterAccess`."""

    def __init__(self, path: Path, document: dict[str, Any]) -> None:
        self._path = path
        self._document = document

    def access(self) -> ClusterAccess:
        """Return the server and the credentials of the file's current context."""
        context = self._context()
        cluster = self._named("clusters", "cluster", context.get("cluster"))
        user = self._named("users", "user", context.get("user"))
        for word, fix in _REFUSED.items():
            if user.get(word):
                raise _bad(self._path, f"user.{word}", "is not supported", fix)
        server = self._address(cluster, "server").rstrip("/")
        certificate = self._material(user, "client-certificate", "user")
        key = self._material(user, "client-key", "user")
        if (certificate is None) != (key is None):
            raise _bad(
                self._path, "user", "has a certificate without its key, or the reverse", "give both or none"
            )
        token_file = self._text(user, "tokenFile", "user.tokenFile")
        return ClusterAccess(
            server=server,
            ca=self._material(cluster, "certificate-authority", "cluster"),
            insecure=self._is_true(cluster, "insecure-skip-tls-verify", "cluster.insecure-skip-tls-verify"),
            tls_server_name=self._text(cluster, "tls-server-name", "cluster.tls-server-name"),
            certificate=certificate,
            key=key,
            token="" if token_file else self._token(user),
            token_file=self._resolved(token_file) if token_file else None,
            exec=self._exec(user.get("exec"), cluster),
            proxy_url=self._address(cluster, "proxy-url") if cluster.get("proxy-url") else "",
            namespace=self._text(context, "namespace", "context.namespace") or "default",
        )

    def _context(self) -> dict[str, Any]:
        current = self._document.get("current-context")
        if current:
            return self._named("contexts", "context", current)
        clusters, users = self._items("clusters"), self._items("users")
        if len(clusters) == 1 and len(users) <= 1:
            return {
                "cluster": clusters[0].get("name"),
                "user": users[0].get("name") if users else None,
            }
        raise _bad(self._path, "current-context", "is not set", "name one of the contexts")

    def _items(self, plural: str) -> list[dict[str, Any]]:
        items = self._document.get(plural) or []
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise _bad(self._path, plural, "is not a list of mappings", "write '- name: NAME' items")
        return items

    def _named(self, plural: str, single: str, name: Any) -> dict[str, Any]:
        if single == "user" and not name:
            return {}
        items = self._items(plural)
        for item in items:
            if item.get("name") == name:
                inner = item.get(single) or {}
                if isinstance(inner, dict):
                    return inner
                raise _bad(self._path, f"{plural}[{name}].{single}", "is not a mapping", "correct it")
        known = ", ".join(str(item.get("name")) for item in items) or "none"
        raise _bad(
            self._path, f"{plural}", f"has no {single} {name!r}; there are: {known}", "correct the name"
        )

    def _text(self, table: dict[str, Any], key: str, field: str) -> str:
        value = table.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise _bad(self._path, field, "is not a text", "put it in quotes")
        return value

    def _is_true(self, table: dict[str, Any], key: str, field: str) -> bool:
        value = table.get(key)
        if value is not None and not isinstance(value, bool):  # the string "false" must not mean true
            raise _bad(self._path, field, f"{value!r} is neither true nor false", "write it without quotes")
        return bool(value)

    def _address(self, cluster: dict[str, Any], key: str) -> str:
        text = self._text(cluster, key, f"cluster.{key}")
        try:
            parts = urlsplit(text)
            is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # brackets that do not match, a port that is not a number
            is_good = False
        if not is_good:
            raise _bad(self._path, f"cluster.{key}", f"{text!r} is not an address", "use https://HOST:PORT")
        return text

    def _token(self, user: dict[str, Any]) -> str:
        token = self._text(user, "token", "user.token").strip()
        if not is_token(token):
            raise _bad(self._path, "user.token", "is not one line of text", "write the token alone")
        return token

    def _material(self, table: dict[str, Any], key: str, where: str) -> Path | bytes | None:
        """Return the PEM text of the field ``KEY-data``, else the path in the field ``KEY``; None if neither is set.

        ``KEY-data`` takes precedence, as in client-go. `where`: path of `table`, for errors.
        """
        data = self._text(table, f"{key}-data", f"{where}.{key}-data")
        if data:
            try:
                return base64.b64decode(data, validate=True)
            except (binascii.Error, ValueError) as error:
                raise _bad(
                    self._path, f"{where}.{key}-data", "is not base64", "encode the PEM text"
                ) from error
        file = self._text(table, key, f"{where}.{key}")
        return self._resolved(file) if file else None

    def _resolved(self, name: str) -> Path:
        return self._path.parent / name

    def _exec(self, table: Any, cluster: dict[str, Any]) -> ExecCredential | None:
        if not table:
            return None
        if not isinstance(table, dict) or not self._text(table, "command", "user.exec.command"):
            raise _bad(self._path, "user.exec.command", "is missing", "name the program")
        if table.get("interactiveMode") == "Always":
            fix = "use Never, with a program that needs no input"
            raise _bad(self._path, "user.exec.interactiveMode", "'Always' is not supported", fix)
        command = self._text(table, "command", "user.exec.command")
        return ExecCredential(
            command=str(self._resolved(command)) if "/" in command else command,
            args=self._arguments(table.get("args")),
            env=self._environment(table.get("env")),
            api_version=self._text(table, "apiVersion", "user.exec.apiVersion")
            or "client.authentication.k8s.io/v1",
            is_told_cluster=self._is_true(table, "provideClusterInfo", "user.exec.provideClusterInfo"),
            cluster_config=_extension(cluster.get("extensions")),
        )

    def _arguments(self, arguments: Any) -> tuple[str, ...]:
        if not isinstance(arguments or [], list) or not all(
            isinstance(item, str) for item in arguments or ()
        ):
            raise _bad(self._path, "user.exec.args", "is not a list of texts", "put each in quotes")
        return tuple(arguments or ())

    def _environment(self, variables: Any) -> tuple[tuple[str, str], ...]:
        try:
            pairs = msgspec.convert(variables or [], list[_Variable])
        except msgspec.ValidationError as error:
            raise _bad(
                self._path, "user.exec.env", "is not a list of name and value", "put values in quotes"
            ) from error
        return tuple((pair.name, pair.value) for pair in pairs)


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


def _extension(extensions: Any) -> Any:
    for item in extensions if isinstance(extensions, list) else ():
        if isinstance(item, dict) and item.get("name") == _EXTENSION:
            return item.get("extension")
    return None


def is_token(text: str) -> bool:
    """Return True if the text is printable ASCII without line breaks, so that an HTTP header can carry it."""
    return text.isascii() and text.isprintable()


def _bad(path: Path, field: str, problem: str, fix: str) -> InvalidConfig:
    return InvalidConfig(obj=str(path), field=field, problem=problem, fix=fix)
