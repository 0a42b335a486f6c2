"""Check of the pod templates of remedyConfigs at load. Pure. `actions.pod_template` translates their short forms."""

from __future__ import annotations

from typing import Any

import msgspec

from kubeletx.kube.text.type_errors import explain
from kubeletx.kube.types.job import PodTemplate

from .fields import ConfigField


def check_template(template: ConfigField) -> None:
    """Raise InvalidConfig if a Job cannot be made of the template."""
    spec = template.child("spec")
    policy = spec.child("restartPolicy")
    if policy.value not in (None, "Never"):
        raise policy.wrong("Never", "write Never: a remedy runs once for each operation")
    containers = spec.child("containers")
    if not containers.value:
        raise containers.wrong("a list of containers", "write a container with name and image")
    plain = {"containers": [_plain(item) for item in containers.items()]}
    more = spec.child("initContainers")
    if more.value is not None:
        plain["initContainers"] = [_plain(item) for item in more.items()]
    whole = {**template.value, "spec": {**spec.value, **plain}}
    try:
        msgspec.convert(whole, PodTemplate)
    except msgspec.ValidationError as error:
        path, problem, fix = explain(str(error), whole)
        raise ConfigField(template.document, f"{template.path}.{path}", None).invalid(problem, fix) from error


def _plain(container: ConfigField) -> dict[str, Any]:
    """Return the container without its short forms."""
    container.child("name").text("write the container's name")
    container.child("image").text("write an image")
    plain: dict[str, Any] = dict(container.value)
    for key in ("env", "configmaps"):
        field = container.child(key)
        items = field.items() if field.value is not None else []
        for item in items:
            if key == "configmaps" or not isinstance(item.value, dict):
                item.text("write the name of a Secret or ConfigMap")
        plain[key] = [item.value for item in items if isinstance(item.value, dict)]
    del plain["configmaps"]
    return plain
