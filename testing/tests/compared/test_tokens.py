"""Tokens of service accounts, and the reviews of tokens and rights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubeletx_testing.apiserver import ApiClient, Grant, StatusError
from kubeletx_testing.waiting import block_until
from testing.tests.compared.api_cluster import NodeUnderTest, pod, refusal, wait_until_allowed


def token_path(namespace: str, account: str = "default") -> str:
    return f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"


@pytest.fixture
def reference(admin: ApiClient, node: NodeUnderTest, namespace: str) -> dict[str, Any]:
    """A reference to a pod on the node, from the moment the node may read it."""
    uid = admin.create("pods", pod("one", nodeName=node.name), namespace)["metadata"]["uid"]
    wait_until_allowed(node, "pods", "one", namespace)
    wait_until_allowed(node, "configmaps", "kube-root-ca.crt", namespace)
    return {"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": uid}


def ask(client: ApiClient, namespace: str, **spec: Any) -> dict[str, Any]:
    return client.ask("POST", token_path(namespace), {"spec": spec})


def test_a_node_gets_tokens_for_its_pods(
    admin: ApiClient, node: NodeUnderTest, namespace: str, reference: dict[str, Any]
) -> None:
    made = ask(node.client, namespace, boundObjectRef=reference, expirationSeconds=3607)
    assert made["spec"]["expirationSeconds"] == 3607
    assert made["status"]["expirationTimestamp"].endswith("Z")
    token = made["status"]["token"]
    assert token.count(".") == 2
    assert ask(node.client, namespace, boundObjectRef=reference)["status"]["token"] != token

    reviewed = review(node.client, token)["status"]
    assert reviewed["authenticated"] is True
    assert reviewed["user"]["username"] == f"system:serviceaccount:{namespace}:default"
    assert "system:authenticated" in reviewed["user"]["groups"]
    assert reviewed["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["one"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (None, "node requested token not bound to a pod"),
        ({"uid": ""}, "node requested token with a pod binding without a uid"),
    ],
)
def test_a_node_names_the_pod_and_its_uid(
    node: NodeUnderTest, namespace: str, reference: dict[str, Any], change: Any, problem: str
) -> None:
    spec = {} if change is None else {"boundObjectRef": {**reference, **change}}
    with pytest.raises(StatusError) as error:
        ask(node.client, namespace, **spec)
    assert refusal(error)[0] == 403
    assert problem in error.value.message


def test_a_node_gets_audiences_that_the_pod_names_or_that_it_has_a_right_to(
    server: Any, admin: ApiClient, node: NodeUnderTest, namespace: str, reference: dict[str, Any]
) -> None:
    with pytest.raises(StatusError) as error:
        ask(node.client, namespace, boundObjectRef=reference, audiences=["one", "two"])
    assert "node may only request 0 or 1 audiences" in error.value.message
    with pytest.raises(StatusError) as error:
        ask(node.client, namespace, boundObjectRef=reference, audiences=["registry"])
    assert refusal(error)[0] == 403
    assert (
        f'audience "registry" not found in pod spec volume, system:node:{node.name} is not authorized to '
        "request tokens for this audience"
    ) in error.value.message
    source = {"serviceAccountToken": {"path": "t", "audience": "registry", "expirationSeconds": 600}}
    volumes = [{"name": "t", "projected": {"sources": [source]}}]
    named = admin.create("pods", pod("two", nodeName=node.name, volumes=volumes), namespace)
    wait_until_allowed(node, "pods", "two", namespace)
    second = {**reference, "name": "two", "uid": named["metadata"]["uid"]}
    assert ask(node.client, namespace, boundObjectRef=second, audiences=["registry"])["status"]["token"]
    server.grant(
        Grant(
            subject="system:nodes",
            verbs=("request-serviceaccounts-token-audience",),
            resources=("registry",),
            namespaces=(namespace,),
        )
    )
    wait_until(lambda: gets_token(node, namespace, reference, "registry"))


def gets_token(node: NodeUnderTest, namespace: str, reference: dict[str, Any], audience: str) -> bool:
    try:
        ask(node.client, namespace, boundObjectRef=reference, audiences=[audience])
    except StatusError as error:
        if error.code != 403:
            raise
        return False
    return True


def wait_until(is_so: Callable[[], bool]) -> None:
    """A real authorizer hears of a right a moment later."""
    block_until(is_so)


def test_a_token_lives_ten_minutes_at_least(admin: ApiClient, namespace: str) -> None:
    with pytest.raises(StatusError) as error:
        ask(admin, namespace, expirationSeconds=5)
    assert refusal(error)[0] == 422
    assert "may not specify a duration less than 10 minutes" in error.value.message


def test_a_token_needs_an_account(admin: ApiClient, namespace: str) -> None:
    with pytest.raises(StatusError) as error:
        admin.ask("POST", token_path(namespace, "nobody"), {"spec": {}})
    assert error.value.code == 404


def test_a_token_dies_with_its_pod(admin: ApiClient, namespace: str, reference: dict[str, Any]) -> None:
    token = ask(admin, namespace, boundObjectRef=reference)["status"]["token"]
    with pytest.raises(StatusError) as error:
        ask(admin, namespace, boundObjectRef={**reference, "uid": "other"})
    assert refusal(error)[0] == 409
    assert review(admin, token)["status"]["authenticated"] is True


@pytest.mark.parametrize(("token", "audiences"), [("bad", None), ("", ["other"])])
def test_a_review_says_no(admin: ApiClient, namespace: str, token: str, audiences: list[str] | None) -> None:
    token = token or ask(admin, namespace)["status"]["token"]
    status = review(admin, token, audiences)["status"]
    assert not status.get("authenticated")
    assert "invalid bearer token" in status["error"]


def review(client: ApiClient, token: str, audiences: list[str] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"token": token} | ({"audiences": audiences} if audiences else {})
    return client.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec})


@pytest.mark.parametrize(
    ("subject", "allowed"),
    [
        ({"user": "bob"}, False),
        ({"user": "bob", "groups": ["system:masters"]}, True),
    ],
)
def test_a_node_asks_who_may_use_it(node: NodeUnderTest, subject: dict[str, Any], allowed: bool) -> None:
    attributes = {"verb": "get", "resource": "nodes", "subresource": "proxy", "name": node.name}
    body = {"spec": {**subject, "resourceAttributes": attributes}}
    answer = node.client.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    assert answer["status"]["allowed"] is allowed


def test_an_account_is_a_user_without_rights(server: Any, admin: ApiClient, namespace: str) -> None:
    token = ask(admin, namespace)["status"]["token"]
    with pytest.raises(StatusError) as error:
        server.client(token).list("pods", namespace)
    assert error.value.code == 403
    assert f'User "system:serviceaccount:{namespace}:default" cannot list' in error.value.message
