"""The output of ``kubeletx-flexvolume manifests``: YAML documents, as the files of ``deploy/storage`` have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kubeletx.kube.text.yaml import dump_yaml

from .definitions import CLUSTERS, NAMESPACE, Json, cluster_resource, definitions, rights


def manifests_text(namespace: str = NAMESPACE, resources: Sequence[str] = ()) -> str:
    """Return the custom resources, and the identity of the agents. `resources`: see `rights_text`."""
    return f"{definitions_text()}---\n{rights_text(namespace, resources)}"


def definitions_text() -> str:
    """Return the custom resources."""
    return _documents(definitions())


def rights_text(namespace: str = NAMESPACE, resources: Sequence[str] = ()) -> str:
    """Return the identity of the agents and its rights.

    `resources`: storage clusters that agents are started with; none: the resource of this distribution. Raises
    InvalidConfig for a text that is not GROUP/VERSION/PLURAL.
    """
    clusters = [cluster_resource(one) for one in resources] or [CLUSTERS]
    return _documents(rights(namespace, clusters))


def _documents(values: Iterable[Json]) -> str:
    plain = (msgspec.json.decode(msgspec.json.encode(one)) for one in values)  # without shared parts
    return "---\n".join(dump_yaml(one) for one in plain)
