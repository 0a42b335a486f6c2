"""Custom resources and their definitions. Source: apiextensions.k8s.io/v1 CustomResourceDefinition."""

from __future__ import annotations

from typing import Any

from .meta import ApiStruct, ListMeta, ObjectMeta


class CustomObject(ApiStruct, frozen=True, kw_only=True):
    """Object of any custom resource.

    Only metadata, spec and status are decoded. To read other top-level fields, define another Struct.
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
    """One condition of a CustomResourceDefinition, such as Established or NamesAccepted."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class DefinitionStatus(ApiStruct, frozen=True, kw_only=True):
    """Status of a CustomResourceDefinition. The conditions show whether the API server serves its resource."""

    conditions: tuple[DefinitionCondition, ...] = ()


class CustomResourceDefinition(ApiStruct, frozen=True, kw_only=True):
    """Definition of a custom resource. `spec`: plain JSON values, as the API server sends them."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: DefinitionStatus = DefinitionStatus()

    def condition(self, type_: str) -> DefinitionCondition | None:
        """Return the condition of type `type_`; None if the definition has no such condition."""
        return next((condition for condition in self.status.conditions if condition.type == type_), None)
