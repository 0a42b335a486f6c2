"""Objects: identity, versions, conflicts, what is dropped."""

from __future__ import annotations

import pytest

from kubeletx_testing.apiserver import ApiClient, StatusError
from testing.tests.compared.api_cluster import pod, refusal


def test_a_new_object_gets_an_identity(admin: ApiClient, namespace: str) -> None:
    metadata = admin.create("configmaps", {"metadata": {"name": "one", "uid": "mine"}}, namespace)["metadata"]
    assert metadata["namespace"] == namespace
    assert len(metadata["uid"]) == 36
    assert metadata["creationTimestamp"].endswith("Z")
    assert int(metadata["resourceVersion"]) > 0
    assert "generation" not in metadata


def test_a_name_is_taken_once(admin: ApiClient, namespace: str) -> None:
    admin.create("configmaps", {"metadata": {"name": "one"}}, namespace)
    with pytest.raises(StatusError) as error:
        admin.create("configmaps", {"metadata": {"name": "one"}}, namespace)
    assert refusal(error) == (409, "AlreadyExists", 'configmaps "one" already exists')
    assert error.value.details == {"name": "one", "kind": "configmaps"}


def test_an_absent_object_is_not_found(admin: ApiClient, namespace: str) -> None:
    with pytest.raises(StatusError) as error:
        admin.get("leases", "one", namespace)
    assert refusal(error) == (404, "NotFound", 'leases.coordination.k8s.io "one" not found')
    assert error.value.details == {"name": "one", "group": "coordination.k8s.io", "kind": "leases"}


def test_a_namespace_must_exist(admin: ApiClient) -> None:
    with pytest.raises(StatusError) as error:
        admin.create("configmaps", {"metadata": {"name": "one"}}, "nowhere")
    assert refusal(error) == (404, "NotFound", 'namespaces "nowhere" not found')


def test_a_name_may_be_generated(admin: ApiClient, namespace: str) -> None:
    made = admin.create("configmaps", {"metadata": {"generateName": "a-"}}, namespace)
    assert made["metadata"]["name"].startswith("a-")
    assert len(made["metadata"]["name"]) == 7


def test_a_name_is_needed(admin: ApiClient, namespace: str) -> None:
    with pytest.raises(StatusError) as error:
        admin.create("pods", {"spec": {"containers": [{"name": "c", "image": "x"}]}}, namespace)
    assert refusal(error) == (
        422,
        "Invalid",
        'Pod "" is invalid: metadata.name: Required value: name or generateName is required',
    )


def test_an_old_version_is_a_conflict(admin: ApiClient, namespace: str) -> None:
    old = admin.create("configmaps", {"metadata": {"name": "one"}}, namespace)
    admin.patch("configmaps", "one", {"data": {"a": "b"}}, namespace)
    with pytest.raises(StatusError) as error:
        admin.replace("configmaps", {**old, "data": {"a": "c"}})
    assert refusal(error)[:2] == (409, "Conflict")
    assert error.value.message.endswith(
        "the object has been modified; please apply your changes to the latest version and try again"
    )


def test_a_put_with_another_uid_is_a_conflict(admin: ApiClient, namespace: str) -> None:
    made = admin.create("configmaps", {"metadata": {"name": "one"}}, namespace)
    with pytest.raises(StatusError) as error:
        admin.replace("configmaps", {**made, "metadata": {**made["metadata"], "uid": "other"}})
    assert refusal(error)[:2] == (409, "Conflict")


def test_a_patch_with_another_uid_is_invalid(admin: ApiClient, namespace: str) -> None:
    admin.create("pods", pod("one"), namespace)
    with pytest.raises(StatusError) as error:
        admin.patch("pods", "one", {"metadata": {"uid": "other"}}, namespace, "status")
    assert refusal(error)[0] == 422
    assert "field is immutable" in error.value.message


def test_a_write_that_changes_nothing_makes_no_version(admin: ApiClient, namespace: str) -> None:
    made = admin.create("configmaps", {"metadata": {"name": "one"}, "data": {"a": "b"}}, namespace)
    again = admin.patch("configmaps", "one", {"data": {"a": "b"}}, namespace)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_a_lease_may_be_created_by_put_and_needs_its_version_later(admin: ApiClient, namespace: str) -> None:
    lease = {"metadata": {"name": "one", "namespace": namespace}, "spec": {"holderIdentity": "me"}}
    made = admin.replace("leases", lease)
    assert made["metadata"]["uid"]
    with pytest.raises(StatusError) as error:
        admin.replace("leases", lease)
    assert refusal(error) == (
        422,
        "Invalid",
        'leases.coordination.k8s.io "one" is invalid: metadata.resourceVersion: Invalid value: 0: must be '
        "specified for an update",
    )


def test_an_absent_object_is_not_created_by_put(admin: ApiClient, namespace: str) -> None:
    with pytest.raises(StatusError) as error:
        admin.replace("pods", {**pod("one"), "metadata": {"name": "one", "namespace": namespace}})
    assert error.value.code == 404


def test_texts_of_secrets_become_data(admin: ApiClient, namespace: str) -> None:
    made = admin.create("secrets", {"metadata": {"name": "one"}, "stringData": {"a": "b"}}, namespace)
    assert (made["type"], made["data"]) == ("Opaque", {"a": "Yg=="})
    assert "stringData" not in made


def test_another_kind_is_refused(admin: ApiClient, namespace: str) -> None:
    with pytest.raises(StatusError) as error:
        admin.create("pods", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}, namespace)
    assert refusal(error)[:2] == (400, "BadRequest")


@pytest.mark.parametrize(
    ("body", "kind", "code"), [(b"{", "application/json", 400), (b"{}", "text/plain", 415)]
)
def test_a_bad_body_is_refused(admin: ApiClient, namespace: str, body: bytes, kind: str, code: int) -> None:
    reply = admin.send("POST", f"/api/v1/namespaces/{namespace}/pods", body, kind)
    assert reply.code == code
    assert reply.json["kind"] == "Status"


def test_a_dry_run_leaves_nothing(admin: ApiClient, namespace: str) -> None:
    made = admin.create("pods", pod("one"), namespace, dryRun="All")
    assert made["spec"]["restartPolicy"] == "Always"
    assert admin.list("pods", namespace)["items"] == []


def test_a_wrong_token_is_401_and_no_token_is_anonymous(server, namespace: str) -> None:  # type: ignore[no-untyped-def]
    path = f"/api/v1/namespaces/{namespace}/pods"
    wrong = server.client("wrong").send("GET", path)
    assert (wrong.code, wrong.json["reason"]) == (401, "Unauthorized")
    nobody = server.client(None).send("GET", path)
    assert nobody.code == 403
    assert 'User "system:anonymous" cannot list resource "pods"' in nobody.json["message"]


def test_an_expired_certificate_is_401(server, namespace: str) -> None:  # type: ignore[no-untyped-def]
    from datetime import timedelta

    pair = server.authority.client("late", ["system:masters"], life=timedelta(minutes=-5))
    assert server.client(pair).send("GET", f"/api/v1/namespaces/{namespace}/pods").code == 401


def test_an_event_is_of_the_namespace_of_its_object(admin: ApiClient, namespace: str) -> None:
    about = {"kind": "Pod", "name": "one", "namespace": "other"}
    with pytest.raises(StatusError) as error:
        admin.create("events", {"metadata": {"name": "e"}, "involvedObject": about}, namespace)
    assert error.value.code == 422


def test_an_event_counts_on_by_a_patch(admin: ApiClient, namespace: str) -> None:
    about = {"kind": "Pod", "name": "one", "namespace": namespace}
    made = admin.create("events", {"metadata": {"name": "e"}, "involvedObject": about, "count": 1}, namespace)
    assert made["lastTimestamp"] is None
    patched = admin.patch("events", "e", {"count": 2}, namespace)
    assert patched["count"] == 2
    events = admin.list("events", namespace, fieldSelector="involvedObject.name=one,involvedObject.kind=Pod")
    assert len(events["items"]) == 1
