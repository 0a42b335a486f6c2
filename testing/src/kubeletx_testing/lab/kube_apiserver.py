"""A real kube-apiserver with its own etcd, for tests that must not rely on the test double.

The programs are in the directory that KUBEBUILDER_ASSETS names, as is usual in Kubernetes projects. Both
programs listen on free ports of 127.0.0.1 and write below one directory. As with kubeadm, authorization is
Node and RBAC, and admission includes NodeRestriction. No controller manager runs: a test makes service
accounts, signs certificates and collects garbage itself.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kubeletx_testing.apiserver.authorization import Grant
from kubeletx_testing.apiserver.ca import CertificateAuthority, Pair
from kubeletx_testing.apiserver.client import ApiClient
from kubeletx_testing.apiserver.errors import StatusError
from kubeletx_testing.apiserver.kubeconfig import write_kubeconfig

ASSETS: Final = "KUBEBUILDER_ASSETS"
START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 30.0


def missing_binaries() -> str:
    """Return the reason that no real API server can be started; empty if one can."""
    directory = os.environ.get(ASSETS)
    if not directory:
        return f"{ASSETS} is not set: name a directory with kube-apiserver and etcd"
    absent = [name for name in ("kube-apiserver", "etcd") if not os.access(Path(directory) / name, os.X_OK)]
    return f"{ASSETS}={directory} holds no {' and no '.join(absent)}" if absent else ""


class KubeApiServer:
    """A kube-apiserver and its etcd. Between `start` and `stop` the server answers at `url`.

    `admin`: client of a user who may do everything.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.authority = CertificateAuthority(directory / "pki")
        self.ca_file = self.authority.ca_file
        self._assets = Path(os.environ[ASSETS])
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port, self._etcd_port, self._peer_port = _free_ports(3)
        self.url = f"https://127.0.0.1:{self._port}"
        self._admin_pair = self.authority.client("admin", ["system:masters"])
        self.admin = self.client(self._admin_pair)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def client(self, credentials: Pair | str | None) -> ApiClient:
        """Return a client with these credentials.

        `credentials`: the files of a client certificate, a bearer token, or None for an anonymous user.
        """
        return ApiClient(self.url, self.ca_file, credentials)

    def node_pair(self, name: str) -> Pair:
        """Make a client certificate that a node's agent can use."""
        return self.authority.client(f"system:node:{name}", ["system:nodes"])

    def node_client(self, name: str) -> ApiClient:
        """Return a client with the identity of this node, as the node's agent has it."""
        return self.client(self.node_pair(name))

    def admin_kubeconfig(self) -> Path:
        """Write a kubeconfig file of a user who may do everything; returns its path."""
        path = self.directory / "admin.kubeconfig"
        return write_kubeconfig(path, self.url, self.ca_file, self._admin_pair)

    def node_kubeconfig(self, name: str) -> Path:
        """Write a kubeconfig file for the agent of a node; returns its path."""
        path = self.directory / f"{name}.kubeconfig"
        return write_kubeconfig(path, self.url, self.ca_file, self.node_pair(name))

    def grant(self, grant: Grant) -> None:
        """Give a user or group a right by RBAC objects; it takes effect a moment later."""
        name = f"grant-{uuid.uuid4()}"
        rbac = "rbac.authorization.k8s.io"
        rule = {
            "apiGroups": list(grant.groups),
            "resources": list(grant.resources),
            "verbs": list(grant.verbs),
            **({} if "*" in grant.names else {"resourceNames": list(grant.names)}),
        }
        subjects = [{"apiGroup": rbac, "kind": kind, "name": grant.subject} for kind in ("User", "Group")]
        path, head = f"/apis/{rbac}/v1", {"metadata": {"name": name}}
        role = {"apiGroup": rbac, "kind": "ClusterRole", "name": name}
        self.admin.ask("POST", f"{path}/clusterroles", {**head, "rules": [rule]})
        for at in grant.namespaces:
            kind = "clusterrolebindings" if at == "*" else f"namespaces/{at}/rolebindings"
            self.admin.ask("POST", f"{path}/{kind}", {**head, "roleRef": role, "subjects": subjects})

    def start(self) -> None:
        """Start etcd and the API server, and wait until the API server is ready.

        Raises RuntimeError if a program ends, TimeoutError after `START_SECONDS`.
        """
        self._run("etcd", self._etcd_flags())
        self._run("kube-apiserver", self._flags())
        self._wait_ready()

    def stop(self) -> None:
        """Stop the API server and etcd. The state is kept for the next `start`."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def backup(self) -> Path:
        """Copy etcd's files for `restore`; returns the path of the copy. The server is stopped and started again."""
        copy = self.directory / f"backup-{time.monotonic_ns()}"
        self.stop()
        shutil.copytree(self._etcd_dir, copy)
        self.start()
        return copy

    def restore(self, backup: Path) -> None:
        """Replace etcd's files by a backup, so that resource versions return to their old values too.

        The server is stopped and started again.
        """
        self.stop()
        shutil.rmtree(self._etcd_dir)
        shutil.copytree(backup, self._etcd_dir)
        self.start()

    @property
    def _etcd_dir(self) -> Path:
        return self.directory / "etcd"

    def log_tail(self, lines: int = 40) -> str:
        """Return the last `lines` lines of the logs of etcd and the API server."""
        texts = [
            "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
            for path in sorted(self.directory.glob("*.log"))
        ]
        return "\n\n".join(texts)

    def _run(self, name: str, flags: list[str]) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(self._assets / name), *flags],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.directory,
                    start_new_session=True,
                )
            )

    def _etcd_flags(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        return [
            f"--data-dir={self._etcd_dir}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        ]

    def _flags(self) -> list[str]:
        serving = self.authority.server("apiserver", ("localhost", "127.0.0.1", "10.96.0.1"))
        kubelet = self.authority.client("kube-apiserver-kubelet-client", ["system:masters"])
        service_key = self.authority.client("service-accounts")
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={serving.cert_file}",
            f"--tls-private-key-file={serving.key_file}",
            f"--client-ca-file={self.ca_file}",
            f"--kubelet-client-certificate={kubelet.cert_file}",
            f"--kubelet-client-key={kubelet.key_file}",
            f"--kubelet-certificate-authority={self.ca_file}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={service_key.key_file}",
            f"--service-account-signing-key-file={service_key.key_file}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
            "--endpoint-reconciler-type=none",
            "--allow-privileged=true",
            "--v=0",
        ]

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        problem = "nothing was tried"
        while time.monotonic() < deadline:
            for process in self._processes:
                if process.poll() is not None:
                    raise RuntimeError(f"{process.args!r} ended: {self.log_tail()}")
            try:
                reply = self.admin.send("GET", "/readyz")
                if reply.code == 200 and self._has_default_namespace():
                    return
                problem = f"/readyz answers {reply.code}"
            except OSError as err:
                problem = str(err)
            time.sleep(0.1)
        raise TimeoutError(f"no ready API server after {START_SECONDS:g} s ({problem}): {self.log_tail()}")

    def _has_default_namespace(self) -> bool:
        try:
            self.admin.get("namespaces", "default")
        except StatusError:
            return False
        return True


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()
