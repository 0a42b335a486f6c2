"""Credential providers: real programs, a fake cluster and a fake clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletx.api import (
    ClusterObjects,
    ClusterServiceAccount,
    ImageAuth,
    PodUid,
    TokenParameters,
    Unavailable,
)
from kubeletx.api.counting import Durations
from kubeletx.runtimes.images.credentials import NodeCredentials
from kubeletx.runtimes.images.provider_config import (
    PROVIDER_V1,
    EnvironmentVariable,
    Provider,
    ProviderPlan,
    TokenAttributes,
)
from kubeletx.runtimes.images.providers import PURGE_SECONDS, CredentialProviders, ImageCredentials
from kubeletx.runtimes.images.verification import AccountUse, Credential, Puller
from kubeletx.testing import FakeClock

TOKEN = "header.claims.signature"
POD = Puller(uid=PodUid("u1"), namespace="team", name="web", service_account="builder", source="api")
BY_ACCOUNT = TokenAttributes(
    service_account_token_audience="registry",
    require_service_account=True,
    cache_type="ServiceAccount",
    required_service_account_annotation_keys=("example.com/role",),
    optional_service_account_annotation_keys=("example.com/zone",),
)


class Cluster:
    """One service account, whose tokens are one for each pod."""

    def __init__(self, annotations: Mapping[str, str] | None) -> None:
        self.annotations = annotations
        self.wishes: list[tuple[str, TokenParameters]] = []
        self.problem: Exception | None = None

    async def find_service_account(self, namespace: str, name: str) -> ClusterServiceAccount | None:
        if self.annotations is None:
            return None
        return ClusterServiceAccount(uid=f"{namespace}/{name}", annotations=dict(self.annotations))

    async def token(self, uid: PodUid, wanted: TokenParameters) -> bytes:
        if self.problem is not None:
            raise self.problem
        self.wishes.append((uid, wanted))
        return f"{TOKEN}-{uid}".encode()


class Shop:
    """Providers of one directory; each writes its questions to a file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.cluster = Cluster({"example.com/role": "puller", "other": "no"})
        self.providers: list[Provider] = []

    def add(self, script: str, name: str = "cloud", **fields: Any) -> None:
        """A program; the question is in $question and in the file NAME.asked."""
        program = self.directory / name
        program.write_text(
            f'#!/bin/sh\nquestion=$(cat)\necho "$question" >> {self.directory}/{name}.asked\n{script}\n'
        )
        program.chmod(0o755)
        defaults: dict[str, Any] = {"match_images": ("*.example",), "default_cache_seconds": 60.0}
        self.providers.append(Provider(name=name, program=program, **{**defaults, **fields}))

    def open(self, seconds: float = 60.0) -> CredentialProviders:
        return CredentialProviders(
            ProviderPlan(providers=tuple(self.providers), digest="sha256:1"),
            cluster={"api": cast(ClusterObjects, self.cluster)},
            clock=self.clock,
            seconds=seconds,
        )

    def asked(self, name: str = "cloud") -> list[dict[str, Any]]:
        path = self.directory / f"{name}.asked"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def answer(auth: Mapping[str, tuple[str, str]] | None, **fields: Any) -> str:
    """A script that prints a response."""
    logins = auth and {key: {"username": name, "password": word} for key, (name, word) in auth.items()}
    response = {
        "kind": "CredentialProviderResponse",
        "apiVersion": PROVIDER_V1,
        "cacheKeyType": "Image",
        "auth": logins,
        **fields,
    }
    return f"cat <<'EOF'\n{json.dumps(response)}\nEOF"


def auths(found: Sequence[Credential]) -> list[ImageAuth]:
    return [one.auth for one in found if one.auth is not None]


def runs(providers: CredentialProviders) -> tuple[int, int]:
    """Number of runs of the program ``cloud``, and number of its failed runs."""
    found = {one.name: dict(one.samples()) for one in providers.metrics()}
    name = "kubelet_credential_provider_plugin"
    durations = cast(Durations, found[f"{name}_duration"]["cloud",])
    return sum(durations.counts), cast(int, found[f"{name}_errors_total"]["cloud",])


def names(found: Sequence[Credential]) -> list[str]:
    return [one.username for one in auths(found)]


async def test_the_program_gets_the_image_and_gives_its_credentials(shop: Shop) -> None:
    script = 'test "$1 $PROFILE" = "get this" || exit 1\n' + answer({"r.example": ("u", "hunter2")})
    env = (EnvironmentVariable(name="PROFILE", value="this"),)
    shop.add(script, args=("get",), env=env)
    found = await shop.open().lookup("r.example/app:1@sha256:" + "0" * 64, None)
    assert [(one.username, one.password) for one in auths(found)] == [("u", "hunter2")]
    assert shop.asked() == [
        {"kind": "CredentialProviderRequest", "apiVersion": PROVIDER_V1, "image": "r.example/app"}
    ]


@pytest.mark.parametrize(
    ("pattern", "image", "is_asked"),
    [
        ("r.example", "r.example/app:1", True),
        ("*.r.example", "eu.r.example/app", True),
        ("*.r.example", "r.example/app", False),
        ("*.example", "a.b.example/app", False),
        ("r*.example", "registry.example/app", True),
        ("r.example/team", "r.example/team/app", True),
        ("r.example/team", "r.example/other/app", False),
        ("r.example:5000", "r.example:5000/app", True),
        ("r.example:5000", "r.example/app", False),
        ("r.example", "r.example:5000/app", False),
        ("docker.io", "busybox", True),
        ("docker.io/library", "busybox:1", True),
    ],
)
async def test_only_images_that_fit_a_pattern_are_asked_for(
    pattern: str, image: str, is_asked: bool, shop: Shop
) -> None:
    shop.add(answer(None), match_images=("never.example", pattern))
    assert await shop.open().lookup(image, None) == []
    assert len(shop.asked()) == is_asked


async def test_the_most_specific_pattern_of_all_providers_comes_first(shop: Shop) -> None:
    shop.add(
        answer({"*.example": ("glob", ""), "r.example": ("host", ""), "else.example": ("else", "")}), "one"
    )
    shop.add(answer({"r.example/team": ("path", ""), "r.example": ("second", "")}), "two")
    found = await shop.open().lookup("r.example/team/app", None)
    assert names(found) == ["path", "host", "second", "glob"]


async def test_docker_config_comes_before_providers(shop: Shop, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"auths": {"r.example": {"username": "file", "password": "p"}}}))
    shop.add(answer({"r.example/team": ("program", "")}))
    credentials = ImageCredentials(NodeCredentials([config]), shop.open())
    assert names(await credentials.lookup("r.example/team/app", None)) == ["file", "program"]


@pytest.mark.parametrize(
    ("kind", "asked_again"),
    [
        ("Image", {"r.example/b", "s.example/a"}),
        ("Registry", {"s.example/a"}),
        ("Global", set()),
    ],
)
async def test_an_answer_is_remembered_for_an_image_a_registry_or_all(
    kind: str, asked_again: set[str], shop: Shop
) -> None:
    shop.add(answer({"*.example": ("u", "p")}, cacheKeyType=kind))
    providers = shop.open()
    for image in ("r.example/a:1", "r.example/a:2", "r.example/b", "s.example/a"):
        assert names(await providers.lookup(image, None)) == ["u"]
    assert {one["image"] for one in shop.asked()} == {"r.example/a", *asked_again}
    assert len(shop.asked()) == 1 + len(asked_again)


@pytest.mark.parametrize(
    ("said", "default", "seconds"),
    [("10m", 60.0, 600.0), (None, 60.0, 60.0), ("0s", 60.0, 0.0), (None, 0.0, 0.0), ("-1s", 60.0, 0.0)],
)
async def test_how_long_it_is_remembered(
    said: str | None, default: float, seconds: float, shop: Shop
) -> None:
    shop.add(answer({"r.example": ("u", "p")}, cacheDuration=said), default_cache_seconds=default)
    providers = shop.open()
    await providers.lookup("r.example/a", None)
    shop.clock.advance(max(seconds - 1, 0))
    await providers.lookup("r.example/a", None)
    assert len(shop.asked()) == (1 if seconds else 2)
    shop.clock.advance(2)
    await providers.lookup("r.example/a", None)
    assert len(shop.asked()) == (2 if seconds else 3)


async def test_what_is_over_is_forgotten_even_if_no_one_asks_for_it(shop: Shop) -> None:
    shop.add(answer({"*.example": ("u", "p")}))
    providers = shop.open()
    for number in range(5):
        await providers.lookup(f"r.example/{number}", None)
    shop.clock.advance(PURGE_SECONDS)
    await providers.lookup("r.example/last", None)
    assert len(providers._providers[0]._remembered) == 1


async def test_many_who_ask_at_once_share_one_program(shop: Shop) -> None:
    shop.add(answer({"r.example": ("u", "p")}, cacheDuration="0s"))
    providers = shop.open()
    asking = [asyncio.create_task(providers.lookup("r.example/a", None)) for _ in range(5)]
    found = await asyncio.gather(*asking, providers.lookup("r.example/b", None))
    assert [names(one) for one in found] == [["u"]] * 6
    assert sorted(one["image"] for one in shop.asked()) == ["r.example/a", "r.example/b"]
    assert runs(providers) == (2, 0)


@pytest.mark.parametrize(
    ("script", "reported"),
    [
        ("echo hunter2; echo no account >&2; exit 3", "exit code 3: no account"),
        ("kill -9 $$", "signal 9"),
        ("echo hunter2", "it printed no CredentialProviderResponse: not JSON"),
        (answer({"r.example": ("u", "hunter2")}, kind="Pod"), "not valid at `$.kind`"),
        (answer({"r.example": ("u", "hunter2")}, cacheKeyType="hunter2"), "not valid at `$.cacheKeyType`"),
        (answer({"r.example": ("u", "hunter2")}, cacheDuration="hunter2"), "cacheDuration is not a duration"),
        (answer({"r.example": ("u", "hunter2")}, hunter2=1), "CredentialProviderResponse: not valid"),
        (answer({"r.example": ("u", 1)}), "Expected `str`, got `int`"),  # type: ignore[dict-item]
        (
            answer({"r.example": ("u", "p")}, apiVersion="credentialprovider.kubelet.k8s.io/v2"),
            "must be credentialprovider.kubelet.k8s.io/v1",
        ),
    ],
)
async def test_a_provider_that_fails_is_reported_and_gives_nothing(
    script: str, reported: str, shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.add(script)
    shop.add(answer({"r.example": ("good", "p")}), "other")
    assert names(await shop.open().lookup("r.example/a", None)) == ["good"]
    shown = capsys.readouterr().out
    assert reported in shown
    assert "cloud" in shown
    assert "hunter2" not in shown


async def test_a_program_that_hangs_is_given_up(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.add("sleep 1000 & wait")
    providers = shop.open(seconds=0.1)
    assert await providers.lookup("r.example/a", None) == []
    assert "no answer within 0.1 s" in capsys.readouterr().out
    assert runs(providers) == (1, 1)


async def test_a_service_account_is_shown_by_token_and_chosen_annotations(shop: Shop) -> None:
    shop.add(answer({"r.example": ("u", "p")}), token=BY_ACCOUNT)
    providers = shop.open()
    assert names(await providers.lookup("r.example/a", POD)) == ["u"]
    (asked,) = shop.asked()
    assert asked["serviceAccountToken"] == f"{TOKEN}-u1"
    assert asked["serviceAccountAnnotations"] == {"example.com/role": "puller"}
    assert shop.cluster.wishes == [("u1", TokenParameters(audience="registry"))]


@pytest.mark.parametrize(("kind", "runs"), [("ServiceAccount", 1), ("Token", 2)])
async def test_answers_are_remembered_for_an_account_or_for_a_token(kind: str, runs: int, shop: Shop) -> None:
    token = TokenAttributes(
        service_account_token_audience="registry", require_service_account=True, cache_type=kind
    )
    shop.add(answer({"r.example": ("u", "p")}, cacheKeyType="Global"), token=token)
    providers = shop.open()
    sibling = Puller(uid=PodUid("u2"), namespace="team", service_account="builder", source="api")
    stranger = Puller(uid=PodUid("u3"), namespace="else", service_account="builder", source="api")
    for puller in (POD, POD, sibling):
        assert names(await providers.lookup("r.example/a", puller)) == ["u"]
    assert len(shop.asked()) == runs
    await providers.lookup("r.example/a", stranger)
    assert len(shop.asked()) == runs + 1


async def test_a_changed_annotation_is_another_question(shop: Shop) -> None:
    shop.add(answer({"r.example": ("u", "p")}), token=BY_ACCOUNT)
    providers = shop.open()
    await providers.lookup("r.example/a", POD)
    shop.cluster.annotations = {"example.com/role": "other", "example.com/zone": "eu"}
    await providers.lookup("r.example/a", POD)
    assert [one["serviceAccountAnnotations"] for one in shop.asked()] == [
        {"example.com/role": "puller"},
        {"example.com/role": "other", "example.com/zone": "eu"},
    ]


async def test_a_pod_without_what_is_required_is_not_asked_for(shop: Shop) -> None:
    shop.add(answer({"r.example": ("u", "p")}), token=BY_ACCOUNT)
    providers = shop.open()
    shop.cluster.annotations = {"other": "no"}
    no_account = Puller(uid=PodUid("u"), namespace="team", source="api")
    static = Puller(uid=PodUid("u"), namespace="team", service_account="builder", source="file")
    for puller in (POD, no_account, static, None):
        assert await providers.lookup("r.example/a", puller) == []
    assert shop.asked() == []


async def test_where_no_account_is_required_those_without_one_are_served_too(shop: Shop) -> None:
    token = TokenAttributes(
        service_account_token_audience="registry", require_service_account=False, cache_type="ServiceAccount"
    )
    shop.add(answer({"r.example": ("u", "p")}), token=token)
    assert names(await shop.open().lookup("r.example/a", None)) == ["u"]
    assert shop.asked() == [
        {"kind": "CredentialProviderRequest", "apiVersion": PROVIDER_V1, "image": "r.example/a"}
    ]


async def test_without_a_token_or_an_account_nothing_is_asked_and_it_is_reported(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.add(answer({"r.example": ("u", "p")}), token=BY_ACCOUNT)
    providers = shop.open()
    shop.cluster.problem = Unavailable("the API server does not answer")
    assert await providers.lookup("r.example/a", POD) == []
    shop.cluster.annotations = None
    assert await providers.lookup("r.example/a", POD) == []
    shown = capsys.readouterr().out
    assert "the API server does not answer" in shown
    assert 'service account "team/builder" not found' in shown.replace("\\", "")
    assert shop.asked() == []


async def test_a_token_is_not_shown_and_not_a_password_unless_the_cache_is_by_token(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.add('echo "bad: $question" >&2; exit 1', "loud", token=BY_ACCOUNT)
    shop.add(answer({"r.example": ("u", f"{TOKEN}-u1")}), "echoes", token=BY_ACCOUNT)
    providers = shop.open()
    assert await providers.lookup("r.example/a", POD) == []
    shown = capsys.readouterr().out
    assert TOKEN not in shown
    assert "***" in shown
    assert "set tokenAttributes.cacheType to Token" in shown


def test_only_providers_with_tokens_make_a_pull_personal(shop: Shop) -> None:
    shop.add(answer(None), "plain", match_images=("a.example", "b.example"))
    shop.add(answer(None), "token", match_images=("b.example",), token=BY_ACCOUNT)
    providers = shop.open()
    assert [providers.is_personal(f"{host}.example/x:1") for host in "abc"] == [False, True, False]


async def test_credentials_made_for_a_service_account_name_it(shop: Shop) -> None:
    shop.add(answer({"r.example": ("u", "p")}), token=BY_ACCOUNT)
    builder = AccountUse(uid="team/builder", namespace="team", name="builder")
    assert [one.origin for one in await shop.open().lookup("r.example/app", POD)] == [builder]
    assert await shop.open().find_account(POD) == builder
