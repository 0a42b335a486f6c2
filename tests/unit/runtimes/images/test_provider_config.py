"""CredentialProviderConfig: files and directories, versions, and every mistake by its name."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeletx.api import InvalidConfig
from kubeletx.runtimes.images.provider_config import ProviderPlan, read_providers

V1 = "kubelet.config.k8s.io/v1"
PROVIDER = {
    "name": "cloud",
    "matchImages": ["*.cloud.example", "registry.example:8443/team"],
    "defaultCacheDuration": "12h",
    "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
}
TOKEN = {"serviceAccountTokenAudience": "registry", "requireServiceAccount": True, "cacheType": "Token"}


def program(directory: Path, *names: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    return directory


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    return program(tmp_path / "bin", "cloud", "other")


def config(*providers: object, **header: object) -> bytes:
    fields = {"apiVersion": V1, "kind": "CredentialProviderConfig", "providers": providers}
    return msgspec.json.encode({**fields, **header})


def read(path: Path, bin_dir: Path, data: bytes) -> ProviderPlan:
    path.write_bytes(data)
    return read_providers(path, bin_dir)


def problems(path: Path, bin_dir: Path, *providers: object, **header: object) -> str:
    with pytest.raises(InvalidConfig) as caught:
        read(path, bin_dir, config(*providers, **header))
    return caught.value.message


def test_a_provider_has_all_its_fields(tmp_path: Path, bin_dir: Path) -> None:
    file = tmp_path / "providers.yaml"
    file.write_text(
        """\
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
  - name: cloud
    matchImages: ["*.cloud.example", "10.0.0.1:5000/team/a"]
    defaultCacheDuration: 1h30m
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    args: [get-credentials]
    env:
      - {name: PROFILE, value: hunter2}
    tokenAttributes:
      serviceAccountTokenAudience: registry
      requireServiceAccount: false
      cacheType: ServiceAccount
      optionalServiceAccountAnnotationKeys: [example.com/Role]
"""
    )
    plan = read_providers(file, bin_dir)
    (one,) = plan.providers
    assert (one.name, one.program, one.default_cache_seconds) == ("cloud", bin_dir / "cloud", 5400.0)
    assert one.match_images == ("*.cloud.example", "10.0.0.1:5000/team/a")
    assert (one.args, [(e.name, e.value) for e in one.env]) == (
        ("get-credentials",),
        [("PROFILE", "hunter2")],
    )
    assert one.token is not None
    assert one.token.require_service_account is False
    assert "hunter2" not in repr(plan)


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_the_older_versions_are_read_too(version: str, tmp_path: Path, bin_dir: Path) -> None:
    older = {**PROVIDER, "apiVersion": f"credentialprovider.kubelet.k8s.io/{version}"}
    data = config(older, apiVersion=f"kubelet.config.k8s.io/{version}")
    (one,) = read(tmp_path / "c.json", bin_dir, data).providers
    assert one.api_version == older["apiVersion"]


def test_a_directory_is_read_in_the_order_of_its_names(tmp_path: Path, bin_dir: Path) -> None:
    directory = tmp_path / "conf"
    (directory / "deeper.yaml").mkdir(parents=True)
    first, second = config({**PROVIDER, "name": "other"}), config(PROVIDER)
    (directory / "20.yml").write_bytes(second)
    (directory / "10.json").write_bytes(first)
    (directory / "00.conf").write_text("not read")
    plan = read_providers(directory, bin_dir)
    assert [one.name for one in plan.providers] == ["other", "cloud"]
    framed = b"".join(len(data).to_bytes(8, "big") + data for data in (first, second))
    assert plan.digest == f"sha256:{hashlib.sha256(framed).hexdigest()}"


def test_one_name_in_two_files_is_refused_with_both(tmp_path: Path, bin_dir: Path) -> None:
    directory = tmp_path / "conf"
    directory.mkdir()
    for name in ("a.yaml", "b.yaml"):
        (directory / name).write_bytes(config(PROVIDER))
    with pytest.raises(InvalidConfig) as caught:
        read_providers(directory, bin_dir)
    assert f'{directory}/b.yaml: provider "cloud": name' in caught.value.message
    assert f"stands in {directory}/a.yaml already" in caught.value.message


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"name": "a/b"}, "name: 'a/b' is not the name of a program"),
        ({"name": ".."}, "name: '..' is not the name of a program"),
        ({"name": ""}, "providers[0]: name: '' is not the name of a program"),
        ({"name": "absent"}, "is not there"),
        ({"matchImages": []}, "matchImages: is empty"),
        ({"matchImages": ["https://r.io"]}, "matchImages[0]: 'https://r.io' fits no image"),
        ({"matchImages": ["r.io", "r.io:*"]}, "matchImages[1]: 'r.io:*' fits no image"),
        ({"matchImages": ["r.io/team-*"]}, "only the host may hold * and ?"),
        ({"defaultCacheDuration": None}, "defaultCacheDuration: is missing"),
        ({"defaultCacheDuration": "soon"}, "defaultCacheDuration: 'soon' is not a duration"),
        ({"defaultCacheDuration": "-1s"}, "is negative"),
        ({"defaultCacheDuration": 60}, "defaultCacheDuration: 60 is not a string"),
        (
            {"apiVersion": "v1"},
            "apiVersion: 'v1' is not supported; use credentialprovider.kubelet.k8s.io/v1,",
        ),
        ({"matchImage": ["r.io"]}, "matchImage"),
        ({"args": "x"}, "args: 'x' is not a list"),
        ({"tokenAttributes": {}}, "tokenAttributes.serviceAccountTokenAudience: is missing"),
        ({"tokenAttributes": {}}, "tokenAttributes.requireServiceAccount: is missing"),
        ({"tokenAttributes": {}}, "tokenAttributes.cacheType: is missing; use ServiceAccount or Token"),
        (
            {"tokenAttributes": {**TOKEN, "cacheType": "Pod"}},
            "tokenAttributes.cacheType: 'Pod' is not supported",
        ),
        (
            {"tokenAttributes": TOKEN, "apiVersion": "credentialprovider.kubelet.k8s.io/v1beta1"},
            "tokenAttributes: goes with apiVersion credentialprovider.kubelet.k8s.io/v1 only",
        ),
        (
            {
                "tokenAttributes": {
                    **TOKEN,
                    "requireServiceAccount": False,
                    "requiredServiceAccountAnnotationKeys": ["a"],
                }
            },
            "tokenAttributes.requiredServiceAccountAnnotationKeys: is set although requireServiceAccount is false",
        ),
        (
            {"tokenAttributes": {**TOKEN, "optionalServiceAccountAnnotationKeys": ["a b", "c", "c"]}},
            "optionalServiceAccountAnnotationKeys[0]: 'a b' is not the name of an annotation",
        ),
        (
            {
                "tokenAttributes": {
                    **TOKEN,
                    "requiredServiceAccountAnnotationKeys": ["a"],
                    "optionalServiceAccountAnnotationKeys": ["a"],
                }
            },
            "tokenAttributes: 'a' is both required and optional",
        ),
    ],
)
def test_each_mistake_names_file_provider_field_and_cure(
    change: dict[str, Any], reported: str, tmp_path: Path, bin_dir: Path
) -> None:
    message = problems(tmp_path / "c.yaml", bin_dir, {**PROVIDER, **change})
    assert str(tmp_path / "c.yaml") in message
    assert reported in message
    if change.get("name") != "":
        assert f'provider "{change.get("name", "cloud")}"' in message


def test_all_mistakes_of_all_providers_are_reported_at_once(tmp_path: Path, bin_dir: Path) -> None:
    message = problems(
        tmp_path / "c.yaml",
        bin_dir,
        {**PROVIDER, "matchImages": []},
        {**PROVIDER, "name": "other", "apiVersion": ""},
        "text",
    )
    assert message.startswith("3 problems: ")
    assert "providers[2]: is not a map of fields" in message


@pytest.mark.parametrize(
    ("header", "reported"),
    [
        ({"kind": "Pod"}, "kind: 'Pod' is not supported; use CredentialProviderConfig"),
        ({"apiVersion": "v1"}, "apiVersion: 'v1' is not supported"),
        ({"more": 1}, "more: is not a known field"),
        ({"providers": []}, "providers: holds no provider"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    header: dict[str, Any], reported: str, tmp_path: Path, bin_dir: Path
) -> None:
    assert reported in problems(tmp_path / "c.yaml", bin_dir, PROVIDER, **header)


def test_token_attributes_need_the_files_newest_version(tmp_path: Path, bin_dir: Path) -> None:
    provider = {**PROVIDER, "tokenAttributes": TOKEN}
    reported = problems(tmp_path / "c.yaml", bin_dir, provider, apiVersion="kubelet.config.k8s.io/v1beta1")
    assert f"set the file's apiVersion to {V1}" in reported


def test_a_variable_that_is_not_a_string_is_not_shown(tmp_path: Path, bin_dir: Path) -> None:
    provider = {**PROVIDER, "env": [{"name": "PIN", "value": 471147}]}
    reported = problems(tmp_path / "c.yaml", bin_dir, provider)
    assert "env[0].value: is not a string" in reported
    assert "471147" not in reported


def test_what_is_not_there_or_not_readable_is_named(tmp_path: Path, bin_dir: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read"):
        read_providers(tmp_path / "none.yaml", bin_dir)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidConfig, match=r"holds no \*\.json, \*\.yaml, \*\.yml"):
        read_providers(empty, bin_dir)
    with pytest.raises(InvalidConfig, match=r"line 2.*duplicate|line 2"):
        read(tmp_path / "c.yaml", bin_dir, b"kind: a\nkind: b\n")
    with pytest.raises(InvalidConfig, match="nowhere: is not a directory"):
        read(tmp_path / "c.yaml", tmp_path / "nowhere", config(PROVIDER))
    (bin_dir / "cloud").chmod(0o644)
    with pytest.raises(InvalidConfig, match="bin/cloud cannot be run"):
        read(tmp_path / "c.yaml", bin_dir, config(PROVIDER))
