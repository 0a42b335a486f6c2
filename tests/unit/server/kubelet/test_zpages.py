"""/flagz, /statusz and /debug/flags/v."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubeletx.kube.text.yaml import parse_documents
from kubeletx.server.views import ConfigValue
from tests.unit.server.api_client import serving

VALUES = (
    ConfigValue(key="maxPods", value=77, origin="flag --max-pods", flag="max-pods"),
    ConfigValue(key="registerNode", value=True, origin="default", flag="register-node"),
    ConfigValue(key="kubeletx.nodeLabels", value={"a": "1", "b": "2"}, origin="c.yaml", flag="node-labels"),
    ConfigValue(key="clusterDNS", value=["10.0.0.10"], origin="c.yaml", flag="cluster-dns"),
    ConfigValue(key="staticPodPath", value=None, origin="default", flag="pod-manifest-path"),
    ConfigValue(key="shutdownGracePeriod", value="0s", origin="default"),
)
FLAGS = {
    "cluster-dns": "10.0.0.10",
    "max-pods": "77",
    "node-labels": "a=1,b=2",
    "pod-manifest-path": "",
    "register-node": "true",
}


def asks(kind: str, version: str = "v1beta1", media: str = "application/json") -> dict[str, str]:
    return {"Accept": f"{media};v={version};g=config.k8s.io;as={kind}"}


async def test_flags_are_text_for_people(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        api.backend.config_values = VALUES
        for accept in ({}, {"Accept": "text/plain"}, {"Accept": "application/json, */*"}):
            code, text = await api.get("/flagz", headers=accept)
            assert code == 200
            assert text.startswith("\nkubelet flagz\nWarning: ")
            assert text.splitlines()[3:] == [f"{name}={value}" for name, value in FLAGS.items()]


async def test_flags_are_an_object_for_who_names_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        api.backend.config_values = VALUES
        wanted = {"kind": "Flagz", "metadata": {"name": "kubelet"}, "flags": FLAGS}
        for version in ("v1beta1", "v1alpha1"):
            _, text = await api.get("/flagz", headers=asks("Flagz", version))
            assert json.loads(text) == {**wanted, "apiVersion": f"config.k8s.io/{version}"}
        _, text = await api.get("/flagz", headers=asks("Flagz", media="application/yaml"))
        assert parse_documents(text) == [{**wanted, "apiVersion": "config.k8s.io/v1beta1"}]


@pytest.mark.parametrize(
    "accept",
    [
        {"Accept": "application/json"},
        asks("Statusz"),
        asks("Flagz", "v2"),
        asks("Flagz", media="application/cbor"),
        {"Accept": "application/json;as=Flagz;v=v1beta1;g=apps"},
    ],
)
async def test_another_form_is_not_acceptable(tmp_path: Path, accept: dict[str, str]) -> None:
    async with serving(tmp_path) as api:
        code, text = await api.get("/flagz", headers=accept)
        assert code == 406
        assert "as=Flagz" in text


async def test_the_state_names_start_version_and_paths(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        version = await api.backend.version()
        code, text = await api.get("/statusz")
        assert code == 200
        assert text.startswith("\nkubelet statusz\nWarning: ")
        assert f"Binary version: {version.version}\n" in text
        assert "Up: " in text
        _, text = await api.get("/statusz", headers=asks("Statusz"))
        found = json.loads(text)
        assert (found["kind"], found["apiVersion"]) == ("Statusz", "config.k8s.io/v1beta1")
        assert found["binaryVersion"] == version.version
        assert {"/pods", "/metrics", "/logs", "/exec", "/flagz", "/debug"} <= set(found["paths"])


async def test_the_verbosity_of_the_log_is_put(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:

        async def put(text: str) -> tuple[int, str]:
            return await api.ask("PUT", "/debug/flags/v", certificate=api.admin, data=text)

        assert await put("4") == (200, "successfully set klog.logging.verbosity to 4")
        for wrong in ("", "-1", "x", "4 ", "99999999999", "\u0664"):
            assert (await put(wrong))[0] == 400
        assert (await api.get("/debug/flags/v"))[0] == 406
        assert api.verbosities == [4]


async def test_the_verbosity_can_be_kept_as_it_is(tmp_path: Path) -> None:
    async with serving(tmp_path, debug_flags=False) as api:
        answer = await api.ask("PUT", "/debug/flags/v", certificate=api.admin, data="4")
        assert answer == (405, "flags endpoint is disabled.")
        assert api.verbosities == []


async def test_there_are_no_profiles_of_go(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        assert (await api.get("/debug/pprof/"))[0] == 404
