"""Custom resources and their definitions. Source: apiextensions.k8s.io/v1 CustomResourceDefinition."""

from __future__ import annotations

from typing import Any

from .meta import ApiStruct, ListMeta, ObjectMeta


class CustomObject(ApiStruct, frozen=True, kw_only=True):
    """Object of any custom resource.

    Only its metadata, spec and status are read: define a type of your own for more.
    """

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class CustomObjectList(ApiStruct, frozen=True, kw_only=True):
    """One page of objects of one custom resource."""

    metadata: ListMeta = ListMeta()
    items: tuple[CustomObject, ...] = ()


class DefinitionCondition(ApiStruct, frozen=True, kw_only=True):
    """One condition of a definition, such as Established or NamesAccepted."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class DefinitionStatus(ApiStruct, frozen=True, kw_only=True):
    """Conditions of a definition, which show whether its resource is served."""

    conditions: tuple[DefinitionCondition, ...] = ()


class CustomResourceDefinition(ApiStruct, frozen=True, kw_only=True):
    """CustomResourceDefinition. Its spec is kept as it was written, without a type."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: DefinitionStatus = DefinitionStatus()

    def condition(self, type_: str) -> DefinitionCondition | None:
        """Return the condition of this type; None if the definition has none."""
        return next((one for one in self.status.conditions if one.type == type_), None)
