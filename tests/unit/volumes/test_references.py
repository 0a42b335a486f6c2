"""What a pod refers to."""

from __future__ import annotations

from kubeletx.volumes.references import claims_of, object_user, tokens_of
from tests.unit.volumes.volume_doubles import make_pod

POD = make_pod(
    {
        "serviceAccountName": "worker",
        "imagePullSecrets": [{"name": "registry"}, {}],
        "initContainers": [
            {
                "name": "i",
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s-env", "key": "k"}}}],
            }
        ],
        "containers": [
            {
                "name": "c",
                "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m-env", "key": "k"}}}],
                "envFrom": [{"configMapRef": {"name": "m-from"}}, {"secretRef": {"name": "s-from"}}],
            }
        ],
        "volumes": [
            {"name": "a", "configMap": {"name": "m-volume"}},
            {"name": "b", "secret": {"secretName": "s-volume"}},
            {
                "name": "c",
                "projected": {
                    "sources": [
                        {"configMap": {"name": "m-projected"}},
                        {"secret": {"name": "s-projected"}},
                        {"serviceAccountToken": {"path": "t", "audience": "vault", "expirationSeconds": 600}},
                    ]
                },
            },
            {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "f", "emptyDir": {}},
        ],
    }
)


def test_every_config_map_and_secret_is_found_wherever_it_is_named() -> None:
    user = object_user(POD)
    assert user.config_maps == {"m-env", "m-from", "m-volume", "m-projected"}
    assert user.secrets == {"s-env", "s-from", "s-volume", "s-projected", "registry"}
    assert (user.uid, user.name, user.namespace, user.service_account) == ("u1", "web", "default", "worker")


def test_a_pod_without_a_service_account_has_the_default_one() -> None:
    assert object_user(make_pod()).service_account == "default"


def test_the_claim_of_a_template_is_the_pods_own() -> None:
    assert object_user(POD).own_claims == {"web-e"}


def test_claims_are_those_of_volumes_and_of_templates() -> None:
    assert claims_of(POD) == ["data", "web-e"]


def test_tokens_have_an_audience_and_a_life() -> None:
    assert list(tokens_of(POD)) == [("vault", 600)]
