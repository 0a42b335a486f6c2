"""Pod templates of remedyConfigs: their short forms, and checks at load. Pure.

Short forms of a container, for a Job that needs credentials and settings:

    env: [NAME, ...]         a text is the name of a Secret, whose keys become variables: envFrom secretRef. Mappings stay variables.
    configmaps: [NAME, ...]  names of ConfigMaps, whose keys become variables (envFrom configMapRef) and files in
                             /etc/remedy/NAME
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kubeletx.kube.text.type_errors import explain
from kubeletx.kube.types.job import PodTemplate

from .fields import ConfigField

CONFIG_DIRECTORY: Final = "/etc/remedy"


def translate_template(template: ConfigField) -> dict[str, Any]:
    """Return the pod template without short forms and with restartPolicy Never. Raises InvalidConfig."""
    written = template.fields()
    spec = template.child("spec")
    policy = spec.child("restartPolicy")
    if policy.value not in (None, "Never"):
        raise policy.wrong("Never", "write Never: a remedy runs once for each operation")
    volumes: dict[str, Any] = {}
    made: dict[str, Any] = {"restartPolicy": "Never"}
    for kind in ("initContainers", "containers"):
        field = spec.child(kind)
        if kind == "containers" and not field.value:
            raise field.wrong("a list of containers", "write a container with name and image")
        if field.value is not None:
            made[kind] = [_container(item, volumes) for item in field.items()]
    given = spec.child("volumes")
    own = [item.value for item in given.items()] if given.value is not None else []
    if own or volumes:
        names = {volume.get("name") for volume in own if isinstance(volume, dict)}
        made["volumes"] = [*own, *(volume for name, volume in volumes.items() if name not in names)]
    result = {key: field.value for key, field in written.items()} | {"spec": {**spec.value, **made}}
    try:
        msgspec.convert(result, PodTemplate)
    except msgspec.ValidationError as error:
        path, problem, fix = explain(str(error), result)
        raise ConfigField(template.document, f"{template.path}.{path}", None).invalid(problem, fix) from error
    return result


def _container(container: ConfigField, volumes: dict[str, Any]) -> dict[str, Any]:
    """Return the container; volumes that it needs are added to `volumes`."""
    fields = container.fields()
    container.child("name").text("write the container's name")
    container.child("image").text("write an image")
    result: dict[str, Any] = {key: field.value for key, field in fields.items() if key != "configmaps"}
    sources: list[Mapping[str, Any]] = list(result.get("envFrom") or [])
    if "env" in fields and fields["env"].value is not None:
        items = fields["env"].items()
        sources += [{"secretRef": {"name": item.value}} for item in items if isinstance(item.value, str)]
        result["env"] = [item.value for item in items if not isinstance(item.value, str)]
        if not result["env"]:
            del result["env"]
    names = (
        [item.text("write the name of a ConfigMap") for item in fields["configmaps"].items()]
        if "configmaps" in fields
        else []
    )
    if names:
        sources += [{"configMapRef": {"name": name}} for name in names]
        mounts = list(result.get("volumeMounts") or [])
        for number, name in enumerate(names):
            volume = next((key for key, made in volumes.items() if made["configMap"]["name"] == name), "")
            volume = volume or f"remedy-config-{len(volumes)}"
            volumes[volume] = {"name": volume, "configMap": {"name": name}}
            if name not in names[:number]:
                mounts.append({"name": volume, "mountPath": f"{CONFIG_DIRECTORY}/{name}", "readOnly": True})
        result["volumeMounts"] = mounts
    if sources:
        result["envFrom"] = sources
    return result
