"""Mutations of manifests: one value, key or byte of a valid pod becomes what a hostile or careless author writes."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

SEPARATORS = ["\u2028", "\u2029", "\x0b", "\x0c", "\r", "\x1c", "\x1d", "\x1e", "\x85"]
TEXTS: tuple[str, ...] = (
    "",
    " ",
    "/",
    "..",
    "../../../../etc/passwd",
    "a/../../b",
    "//",
    "a" * 64,
    "a" * 300,
    "A" * 70_000,
    "x" * 300_000,
    "\ud800",
    "\x00",
    "\x1b[2J",
    "\u202e",
    "é" * 200,
    "$(A)$(A)",
    "$(",
    "$$(POD)",
    "%s%n",
    "{{.}}",
    "true",
    "null",
    "-1",
    "1e400",
    "9" * 400,
    "100%",
    "1Ei",
    "-5Mi",
    "0x10",
    "10000000000000000000h",
    *(f"a{separator}b" for separator in SEPARATORS),
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    65536,
    2**31,
    2**63,
    -(2**63) - 1,
    10**30,
    1.5,
    float("nan"),
    float("inf"),
    [],
    {},
    [None],
    [[]],
    {"": ""},
    ["a"] * 5000,
    {f"k{number}": "v" for number in range(5000)},
)
DEEP = "@deep@"
"""Placeholder that becomes deeply nested lists when the manifest is written."""
DEPTHS = (10, 500, 5000, 100_000)
KEYS = ("", "Name", "spec", "$(A)", "\ud800", "a" * 5000, "kubeletx.io/", "x/y/z", "\u2028")


def environment_bomb(levels: int) -> list[dict[str, str]]:
    """Make `levels` variables; each has the previous one twice as its value, so the last one expands to a huge text."""
    first = {"name": "A0", "value": "x" * 10}
    return [first, *({"name": f"A{n}", "value": f"$(A{n - 1})" * 2} for n in range(1, levels))]


def base_pod(name: str, runtime: str) -> dict[str, Any]:
    """A valid pod that uses many fields of a manifest, as a base for mutations."""
    probe = {
        "httpGet": {"path": "/", "port": 1, "host": "127.0.0.1"},
        "periodSeconds": 5,
        "failureThreshold": 100,
    }
    main = {
        "name": "main",
        "image": "registry.invalid/app:1",
        "command": ["app", "$(A)"],
        "args": ["--name=$(NAME)"],
        "workingDir": "/work",
        "env": [
            {"name": "A", "value": "1"},
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        ],
        "ports": [{"name": "web", "containerPort": 8080, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "10m", "memory": "8Mi"}},
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/scratch", "subPath": "a/b"},
            {"name": "scratch", "mountPath": "/other", "subPathExpr": "$(NAME)"},
            {"name": "about", "mountPath": "/about", "readOnly": True},
        ],
        "livenessProbe": probe,
        "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
        "securityContext": {
            "runAsUser": 1,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    about = {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "a"}, "annotations": {"note": "text"}},
        "spec": {
            "runtimeServiceName": runtime,
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Always",
            "hostname": "one",
            "hostAliases": [{"ip": "127.0.0.2", "hostnames": ["two"]}],
            "dnsConfig": {"nameservers": ["127.0.0.1"], "options": [{"name": "ndots", "value": "2"}]},
            "securityContext": {"fsGroup": 2000, "supplementalGroups": [3000]},
            "tolerations": [{"operator": "Exists"}],
            "initContainers": [
                {"name": "side", "image": "registry.invalid/side:1", "restartPolicy": "Always"}
            ],
            "containers": [main],
            "volumes": [
                {"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}},
                {"name": "about", "downwardAPI": about},
            ],
        },
    }


def mutate(rng: random.Random, pod: dict[str, Any]) -> bytes:
    """Apply one to four random mutations to a copy of the pod; returns the bytes of its manifest."""
    pod = copy.deepcopy(pod)
    for _ in range(rng.randint(1, 4)):
        _mutate_once(rng, pod)
    _keep_on_this_machine(pod)
    levels = rng.choice(DEPTHS)
    nested = b"[" * levels + b"]" * levels
    data = json.dumps(pod).encode().replace(json.dumps(DEEP).encode(), nested)
    return _damage(rng, data) if rng.random() < 0.2 else data


def _mutate_once(rng: random.Random, pod: dict[str, Any]) -> None:
    holder, key = rng.choice(list(_places(pod)))
    action = rng.choice(("text", "text", "value", "delete", "repeat", "rename", "bomb"))
    if action == "text":
        holder[key] = rng.choice(TEXTS)
    elif action == "value":
        holder[key] = copy.deepcopy(rng.choice((*VALUES, DEEP)))
    elif action == "delete":
        del holder[key]
    elif action == "rename" and isinstance(holder, dict):
        holder[rng.choice(KEYS)] = holder.pop(key)
    elif action == "repeat" and isinstance(holder, list):
        holder.extend(copy.deepcopy(holder[key]) for _ in range(rng.choice((1, 200))))
    elif action == "bomb":
        _plant_bomb(rng, pod)


def _plant_bomb(rng: random.Random, pod: dict[str, Any]) -> None:
    spec = pod.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if isinstance(containers, list) and containers and isinstance(containers[0], dict):
        containers[0]["env"] = environment_bomb(rng.choice((12, 26, 40)))


def _places(value: Any) -> Any:
    """Yield every (container, key or index) in a manifest, at any depth."""
    if isinstance(value, dict):
        for key in list(value):
            yield value, key
            yield from _places(value[key])
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield value, index
            yield from _places(item)


def _keep_on_this_machine(value: Any) -> None:
    """Remove what could reach beyond the test: host paths, NFS volumes, and hosts in probes and hooks."""
    if isinstance(value, dict):
        value.pop("hostPath", None)
        value.pop("nfs", None)
        for key in ("httpGet", "tcpSocket"):
            if isinstance(value.get(key), dict):
                value[key]["host"] = "127.0.0.1"
        for item in value.values():
            _keep_on_this_machine(item)
    elif isinstance(value, list):
        for item in value:
            _keep_on_this_machine(item)


def _damage(rng: random.Random, data: bytes) -> bytes:
    """Cut the bytes off, change some, insert some, or repeat them all."""
    at = rng.randrange(len(data))
    kind = rng.choice(("cut", "change", "insert", "repeat"))
    if kind == "cut":
        return data[:at]
    if kind == "change":
        return data[:at] + rng.randbytes(rng.randint(1, 8)) + data[at + 1 :]
    if kind == "insert":
        return (
            data[:at]
            + rng.choice((b"\x00", b"\xff\xfe", b"&a [*a]", b"\n---\n", b"\t", b"{" * 3000))
            + data[at:]
        )
    return data * 3
