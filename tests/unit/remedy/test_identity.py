"""The controller as a pod's service account, and with an identity that may not install the definition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kubeletx.api import InvalidConfig, PermissionDenied, SystemClock
from kubeletx.kube.client import ClusterAccess, KubeClient, load_kubeconfig
from kubeletx.kube.client.access import service_account_access
from kubeletx.remedy.fences import FenceRecords
from kubeletx_testing.apiserver import ApiServerDouble, Grant

ACCOUNT = "system:serviceaccount:kube-system:kubeletx-remedy"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServerDouble]:
    with ApiServerDouble(tmp_path / "api") as made:
        yield made


async def install(access: ClusterAccess) -> None:
    client = KubeClient(access, clock=SystemClock())
    try:
        await FenceRecords(client, SystemClock()).install()
    finally:
        await client.close()


async def test_a_pod_uses_its_service_account(
    api: ApiServerDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = urlsplit(api.url)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", server.hostname or "")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    (tmp_path / "token").write_text(api.add_user(ACCOUNT, []))
    (tmp_path / "ca.crt").write_bytes(Path(api.ca_file).read_bytes())
    for resource in ("customresourcedefinitions", "nodefences"):
        api.grant(Grant(subject=ACCOUNT, resources=(resource,)))
    await install(service_account_access(tmp_path))


@pytest.mark.parametrize("host", ["", "10.0.0.1"])
def test_a_process_without_service_account_needs_a_kubeconfig(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(InvalidConfig, match="write --kubeconfig FILE"):
        service_account_access(tmp_path)


async def test_an_identity_that_may_not_install_needs_the_definition(api: ApiServerDouble) -> None:
    api.grant(Grant(subject=ACCOUNT, resources=("nodefences",)))
    limited = load_kubeconfig(api.kubeconfig("limited", api.add_user(ACCOUNT, [])))
    with pytest.raises(PermissionDenied, match=r"apply deploy/remedy\.yaml"):
        await install(limited)
    await install(load_kubeconfig(api.admin_kubeconfig()))
    await install(limited)
