"""Secrets of objects are hidden, everything else stays."""

from __future__ import annotations

import msgspec

from kubeletx.kube.masking import HIDDEN, masked, masked_pod
from kubeletx.kube.types.core import Pod

POD = b"""{
  "metadata": {"name": "web", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations":
    {"kubectl.kubernetes.io/last-applied-configuration": "hush", "a": "b"}},
  "spec": {
    "containers": [{"name": "main", "env": [
        {"name": "WORD", "value": "hush"},
        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
      "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": "hush"}]}}}],
    "virtualMachine": {"name": "vm", "userData": "hush", "cloudInitUserDataScript": "hush"},
    "volumes": [{"name": "v", "flexVolume": {"driver": "d", "options": {"password": "hush", "share": "s"}}},
      {"name": "t", "secret": {"secretName": "s"}}]}}"""


def test_a_masked_pod_has_no_values_and_stays_a_pod() -> None:
    pod = msgspec.json.decode(POD, type=Pod)
    shown = masked_pod(pod)
    assert "hush" not in str(shown)
    assert shown.metadata.annotations["a"] == "b"
    assert [each.value for each in shown.spec.containers[0].env] == [HIDDEN, None]
    assert shown.spec.volumes[1] == pod.spec.volumes[1]
    assert shown.metadata.creation_timestamp == pod.metadata.creation_timestamp


def test_passwords_of_settings_and_urls_are_hidden() -> None:
    settings = {
        "staticPodURL": "https://me:hush@host/pods",
        "kubeletx": {"plugins": {"store": {"apiKey": "hush", "count": 3, "tokens": ["x"], "retries": True}}},
    }
    assert masked(settings) == {
        "staticPodURL": f"https://{HIDDEN}@host/pods",
        "kubeletx": {
            "plugins": {"store": {"apiKey": HIDDEN, "count": 3, "tokens": [HIDDEN], "retries": True}}
        },
    }
