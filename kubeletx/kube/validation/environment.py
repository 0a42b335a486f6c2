"""Rules for environment variables and field references. Source: kubernetes, pkg/apis/core/validation."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from ..text.expansion import (
    MAX_PATH_BYTES,
    MAX_POD_BYTES,
    MAX_STRING_BYTES,
    MAX_TOTAL_BYTES,
    least_size,
    size_of,
)
from ..types.container import Container, EnvFromSource, EnvVar, ObjectFieldSelector, ResourceFieldSelector
from ..types.core import PodSpec
from . import words
from .problems import Problems, alternatives, show

ENV_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
VOLUME_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels",
    "metadata.annotations",
)
_ENTRY: Final = re.compile(r"metadata\.(labels|annotations)\['(?P<key>.+)'\]")
_RESOURCE: Final = re.compile(r"(?:limits|requests)\.(?:cpu|memory|ephemeral-storage|hugepages-.+)")
_CPU_DIVISORS: Final = ("1m", "1")
_SIZE_DIVISORS: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SOURCES: Final = {
    "field_ref": "fieldRef",
    "resource_field_ref": "resourceFieldRef",
    "config_map_key_ref": "configMapKeyRef",
    "secret_key_ref": "secretKeyRef",
    "file_key_ref": "fileKeyRef",
}


def check_environment(field: str, container: Container, volumes: Collection[str], problems: Problems) -> None:
    """Check the environment variables of a container (envFrom and env), and sizes after expansion.

    `field`: path of the container. `volumes`: names of the pod's volumes.
    """
    for index, source in enumerate(container.env_from):
        _check_set(f"{field}.envFrom[{index}]", source, problems)
    for index, variable in enumerate(container.env):
        _check_variable(f"{field}.env[{index}]", variable, volumes, problems)
    _check_sizes(field, container, problems)


def check_pod_size(spec: PodSpec, problems: Problems) -> None:
    """Check the size of the arguments and variables of all containers together, with $(NAME) references expanded."""
    total = 0
    for container in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers):
        total += _check_sizes("", container, Problems(""))
        if total > MAX_POD_BYTES:
            problem = f"command, args and env of all containers have more than {MAX_POD_BYTES} bytes together"
            problems.add("spec.containers", problem, "shorten them, or use files in a volume")
            return


def _check_sizes(field: str, container: Container, problems: Problems) -> int:
    """Check the sizes of arguments and variables against the kernel's limits, with $(NAME) references expanded.

    Return their size together, without texts that are too long. A short text can expand to a huge one, since each reference may double it. Values from other objects
    (valueFrom, envFrom) count as empty here; `kubeletx.pods` measures again with the real values.
    """
    sizes: dict[str, int] = {}
    total = 0

    def check(where: str, text: str, at_most: int) -> int:
        size = min(least_size(text, sizes), MAX_TOTAL_BYTES + 1)
        if size <= at_most:
            return size
        problem = f"{show(text)} has more than {at_most} bytes with its $(NAME) references replaced"
        problems.add(where, problem, "shorten it, or use a file in a volume")
        return 0  # texts that refer to this one do not report it again

    for index, variable in enumerate(container.env):
        room = MAX_STRING_BYTES - size_of(variable.name) - len("=\0")
        size = check(f"{field}.env[{index}].value", variable.value or "", room)
        total += size - sizes.get(variable.name, 0)
        sizes[variable.name] = size
    for word, texts in (("command", container.command), ("args", container.args)):
        for index, text in enumerate(texts):
            total += check(f"{field}.{word}[{index}]", text, MAX_STRING_BYTES - 1)
    for index, mount in enumerate(container.volume_mounts):
        check(f"{field}.volumeMounts[{index}].subPathExpr", mount.sub_path_expr or "", MAX_PATH_BYTES)
    if total > MAX_TOTAL_BYTES:
        problem = f"command, args and env have more than {MAX_TOTAL_BYTES} bytes together"
        problems.add(field, problem, "shorten them, or use files in a volume")
    return total


def check_field_ref(
    field: str, ref: ObjectFieldSelector, allowed: tuple[str, ...], problems: Problems
) -> None:
    """Check a fieldRef, which must name one of `allowed`, or one label or annotation. `field`: path of the fieldRef."""
    path = ref.field_path
    if ref.api_version and ref.api_version != "v1":
        problems.add(f"{field}.apiVersion", f"{show(ref.api_version)} is not known", "use v1")
    if not problems.required(f"{field}.fieldPath", path):
        return
    if entry := _ENTRY.fullmatch(path):
        problems.word(f"{field}.fieldPath", entry["key"].lower(), words.qualified_name)
    elif path not in allowed:
        fix = f"use one of {', '.join(allowed)}, metadata.labels['KEY'] or metadata.annotations['KEY']"
        problems.add(f"{field}.fieldPath", f"{show(path)} cannot be read here", fix)


def check_resource_ref(field: str, ref: ResourceFieldSelector, problems: Problems) -> None:
    """Check a resourceFieldRef and its divisor. `field`: path of the resourceFieldRef."""
    if not problems.required(f"{field}.resource", ref.resource):
        return
    if not _RESOURCE.fullmatch(ref.resource):
        problems.add(
            f"{field}.resource",
            f"{show(ref.resource)} cannot be read here",
            "use limits. or requests. with cpu, memory, ephemeral-storage or hugepages-SIZE",
        )
    divisor = problems.quantity(f"{field}.divisor", ref.divisor)
    allowed = _CPU_DIVISORS if ref.resource.endswith(".cpu") else _SIZE_DIVISORS
    if divisor is not None and divisor.nanos != 0 and str(divisor) not in allowed:
        problems.add(f"{field}.divisor", f"{show(ref.divisor)} is not known", f"use {alternatives(allowed)}")


def _check_set(field: str, source: EnvFromSource, problems: Problems) -> None:
    if source.prefix:
        problems.word(f"{field}.prefix", source.prefix, words.env_name)
    refs = {"configMapRef": source.config_map_ref, "secretRef": source.secret_ref}
    given = {word: ref for word, ref in refs.items() if ref is not None}
    problems.exactly_one(field, list(given), refs, "source")
    for word, ref in given.items():
        problems.name(f"{field}.{word}.name", ref.name, words.dns_subdomain)


def _check_variable(field: str, variable: EnvVar, volumes: Collection[str], problems: Problems) -> None:
    problems.name(f"{field}.name", variable.name, words.env_name)
    if variable.value is not None and "\0" in variable.value:
        problems.add(f"{field}.value", "holds a NUL character", "remove it")
    source = variable.value_from
    if source is None:
        return
    if variable.value:
        problems.add(field, f"has both value {show(variable.value)} and valueFrom", "keep one of them")
    given = [word for attribute, word in _SOURCES.items() if getattr(source, attribute) is not None]
    problems.exactly_one(f"{field}.valueFrom", given, _SOURCES.values(), "source")
    if source.field_ref is not None:
        check_field_ref(f"{field}.valueFrom.fieldRef", source.field_ref, ENV_FIELDS, problems)
    if source.resource_field_ref is not None:
        check_resource_ref(f"{field}.valueFrom.resourceFieldRef", source.resource_field_ref, problems)
    for word, ref in (
        ("configMapKeyRef", source.config_map_key_ref),
        ("secretKeyRef", source.secret_key_ref),
    ):
        if ref is not None:
            problems.name(f"{field}.valueFrom.{word}.name", ref.name, words.dns_subdomain)
            problems.name(f"{field}.valueFrom.{word}.key", ref.key, words.config_key)
    if source.file_key_ref is not None:
        ref_field = f"{field}.valueFrom.fileKeyRef"
        volume = source.file_key_ref.volume_name
        if problems.required(f"{ref_field}.volumeName", volume) and volume not in volumes:
            problems.add(
                f"{ref_field}.volumeName", f"{show(volume)} is not a volume of this pod", "correct it"
            )
        problems.name(f"{ref_field}.path", source.file_key_ref.path, words.relative_path)
        problems.name(f"{ref_field}.key", source.file_key_ref.key, words.env_name)
