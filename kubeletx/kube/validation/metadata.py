"""Rules for a pod's metadata. Source: apimachinery, pkg/api/validation/objectmeta.go."""

from __future__ import annotations

from typing import Final

from ..types.meta import ObjectMeta
from . import words
from .problems import INT64_MAX, Problems, show

MAX_ANNOTATIONS_BYTES: Final = 256 * 1024


def check_metadata(metadata: ObjectMeta, problems: Problems) -> None:
    """Check a pod's metadata except for what only an API server writes."""
    problems.name("metadata.name", metadata.name, words.dns_subdomain)
    problems.name("metadata.namespace", metadata.namespace, words.dns_label)
    problems.word("metadata.uid", metadata.uid, words.uid)
    problems.word("metadata.generateName", metadata.generate_name, words.name_prefix)
    problems.between("metadata.generation", metadata.generation, 0, INT64_MAX)
    _check_owners(metadata, problems)
    for index, finalizer in enumerate(metadata.finalizers):
        problems.name(f"metadata.finalizers[{index}]", finalizer, words.finalizer)
    check_labels("metadata.labels", metadata.labels, problems)
    size = 0
    for key, value in metadata.annotations.items():
        size += len(key.encode()) + len(value.encode())
        _check_key("metadata.annotations", key, key.lower(), problems)
    if size > MAX_ANNOTATIONS_BYTES:
        problems.add(
            "metadata.annotations", f"hold {size} bytes", f"use at most {MAX_ANNOTATIONS_BYTES} bytes in all"
        )


def _check_owners(metadata: ObjectMeta, problems: Problems) -> None:
    for index, owner in enumerate(metadata.owner_references):
        field = f"metadata.ownerReferences[{index}]"
        for word, value in (
            ("apiVersion", owner.api_version),
            ("kind", owner.kind),
            ("name", owner.name),
            ("uid", owner.uid),
        ):
            problems.required(f"{field}.{word}", value)
        if owner.api_version.count("/") > 1:
            problems.add(
                f"{field}.apiVersion", f"{show(owner.api_version)} is not GROUP/VERSION", "correct it"
            )
    if sum(bool(owner.controller) for owner in metadata.owner_references) > 1:
        problems.add("metadata.ownerReferences", "has more than one controller", "keep one of them")


def check_labels(field: str, labels: dict[str, str], problems: Problems) -> None:
    """Check the keys and values of labels or of a node selector. `field`: path of the map."""
    for key, value in labels.items():
        _check_key(field, key, key, problems)
        if problem := words.label_value(value):
            problems.add(f"{field}[{key}]", f"{show(value)} {problem}", "correct the value")


def _check_key(field: str, key: str, checked: str, problems: Problems) -> None:
    if problem := words.qualified_name(checked):
        problems.add(field, f"key {show(key)} {problem}", "correct the key")
