"""Programs that know the credentials of a registry: a protected one, opened for pods by what a program answers."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.apiserver import Grant
from kubeletx_testing.lab import PrivateAgent
from kubeletx_testing.lab.images import load_images
from kubeletx_testing.lab.registry import PASSWORD, USERNAME, PrivateRegistry
from tests.integration.support.bench import Bench
from tests.integration.support.clusters import API_SERVERS, ApiServer, cluster_agent, main_status, running_api
from tests.integration.support.survival import until

PROGRAM = """\
#!{python}
import base64, json, os, sys
request = json.load(sys.stdin)
token = request.get("serviceAccountToken", "")
claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "==")) if token else {{}}
seen = {{
    "image": request["image"],
    "argv": sys.argv[1:],
    "audience": claims.get("aud"),
    "subject": claims.get("sub"),
    "annotations": request.get("serviceAccountAnnotations"),
    "token": token,
}}
with open({seen!r}, "a") as file:
    print(json.dumps(seen), file=file)
login = {{"username": {username!r}, "password": os.environ["REGISTRY_WORD"]}}
print(json.dumps({{
    "kind": "CredentialProviderResponse",
    "apiVersion": request["apiVersion"],
    "cacheKeyType": "Registry",
    "auth": {{{address!r}: login}},
}}))
"""
TOKENS = {
    "serviceAccountTokenAudience": "registry",
    "requireServiceAccount": True,
    "cacheType": "ServiceAccount",
    "requiredServiceAccountAnnotationKeys": ["example.com/may-pull"],
}


@pytest.fixture
def private(tmp_path: Path) -> Iterator[PrivateRegistry]:
    """A registry that asks for a password, with one image."""
    with PrivateRegistry(tmp_path / "private", protected=True) as registry:
        registry.push(image for image in load_images() if image.name == "busybox")
        yield registry


class ProviderFiles:
    """A program and its configuration. `token`: its tokenAttributes."""

    def __init__(self, directory: Path, registry: PrivateRegistry, **more: Any) -> None:
        self._seen = directory / "seen"
        bin_dir, config = directory / "bin", directory / "providers"
        for one in (bin_dir, config):
            one.mkdir()
        program = bin_dir / "lab-provider"
        fields = {
            "python": sys.executable,
            "seen": str(self._seen),
            "username": USERNAME,
            "address": registry.address,
        }
        program.write_text(PROGRAM.format(**fields))
        program.chmod(0o755)
        provider = {
            "name": program.name,
            "matchImages": [f"127.0.*.*:{registry.port}/busybox"],
            "defaultCacheDuration": "1h",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "args": ["get"],
            "env": [{"name": "REGISTRY_WORD", "value": PASSWORD}],
            **more,
        }
        head = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig"}
        (config / "lab.json").write_text(json.dumps({**head, "providers": [provider]}))
        self.flags = [
            f"--image-credential-provider-config={config}",
            f"--image-credential-provider-bin-dir={bin_dir}",
        ]

    def seen(self) -> list[dict[str, Any]]:
        """What the program was asked, in order."""
        return (
            [json.loads(line) for line in self._seen.read_text().splitlines()] if self._seen.exists() else []
        )


def written(agent: PrivateAgent) -> bytes:
    """Everything that the agent wrote: its log and its database."""
    databases = agent.root_dir.glob("kubeletx.db*")
    return agent.log_path.read_bytes() + b"".join(path.read_bytes() for path in databases)


def test_a_program_opens_a_registry_once_for_all_pods(
    make_bench: Callable[..., Bench], private: PrivateRegistry, tmp_path: Path
) -> None:
    files = ProviderFiles(tmp_path, private)
    bench = make_bench(flags=files.flags)
    image = {"image": f"{private.address}/busybox:1", "imagePullPolicy": "Always"}
    for name in ("first", "second"):
        bench.put(name, container=image)
        bench.ready(name)
    (asked,) = files.seen()
    assert asked["image"] == f"{private.address}/busybox"
    assert asked["argv"] == ["get"]
    assert asked["token"] == ""
    assert bench.event("second", "Pulled", "Successfully pulled image")
    assert PASSWORD.encode() not in written(bench.agent)
    metrics = bench.agent.get("/metrics").decode()
    assert 'kubelet_credential_provider_plugin_duration_count{plugin_name="lab-provider"} 1.0' in metrics
    assert 'kubelet_credential_provider_plugin_errors_total{plugin_name="lab-provider"} 0.0' in metrics
    assert 'kubelet_credential_provider_config_info{hash="sha256:' in metrics
    bench.remove("first", "second")


def test_a_wrong_configuration_is_refused_at_start(
    make_agent: Callable[..., PrivateAgent], private: PrivateRegistry, tmp_path: Path
) -> None:
    files = ProviderFiles(tmp_path, private, matchImages=["https://r.io"], defaultCacheDuration="soon")
    agent = make_agent(flags=files.flags)
    with pytest.raises(Exception, match=r"provider \\?\"lab-provider\\?\": matchImages"):
        agent.start()
    log = agent.log_path.read_text()
    assert re.search(r"providers/lab\.json: provider .lab-provider.*defaultCacheDuration: 'soon'", log)
    assert PASSWORD not in log


@pytest.fixture(params=API_SERVERS)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApiServer]:
    """An API server."""
    yield from running_api(request.param, tmp_path / "api")


def test_a_program_learns_the_service_account_of_the_pod(
    api: ApiServer, make_agent: Callable[..., PrivateAgent], private: PrivateRegistry, tmp_path: Path
) -> None:
    files = ProviderFiles(tmp_path, private, tokenAttributes=TOKENS)
    node = cluster_agent(api, make_agent, manifest_dir=None, flags=files.flags)
    for name, marks in (("may", {"example.com/may-pull": "yes", "other": "x"}), ("may-not", {})):
        account = {"metadata": {"name": name, "annotations": marks}}
        node.admin.create("serviceaccounts", account, "default")
    image = {"image": f"{private.address}/busybox:1", "imagePullPolicy": "Always"}
    node.apply("refused", container=image, serviceAccountName="may-not")
    node.wait(
        "refused",
        lambda one: (
            one["status"].get("containerStatuses")
            and main_status(one)["state"].get("waiting", {}).get("reason") == "ImagePullBackOff"
        ),
        "refused by the registry",
    )
    node.apply("allowed", container=image, serviceAccountName="may")
    until(lambda: "audience" in node.agent.log_path.read_text(), "a warning that nodes get no such tokens")
    assert files.seen() == []
    audience = {"verbs": ("request-serviceaccounts-token-audience",), "resources": ("registry",)}
    api.grant(Grant(subject="system:nodes", **audience))
    node.wait_running("allowed")
    (asked,) = files.seen()
    assert asked["audience"] in ("registry", ["registry"])
    assert asked["subject"] == "system:serviceaccount:default:may"
    assert asked["annotations"] == {"example.com/may-pull": "yes"}
    text = written(node.agent) + json.dumps(node.admin.list("events", "default")).encode()
    assert asked["token"].encode() not in text
    assert PASSWORD.encode() not in text
