"""Custom resources and their definitions. Source: apiextensions.k8s.io/v1 CustomResourceDefinition."""

from __future__ import annotations

from typing import Any

from .meta import ApiStruct, ListMeta, ObjectMeta


class CustomObject(ApiStruct, frozen=True, kw_only=True):
    """An object of any custom resource. Fields beside spec and status are not read: take a type of your own for them."""

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
    """One condition, such as Established or NamesAccepted."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class DefinitionStatus(ApiStruct, frozen=True, kw_only=True):
    """The part of the status that tells whether the resource is served."""

    conditions: tuple[DefinitionCondition, ...] = ()


class CustomResourceDefinition(ApiStruct, frozen=True, kw_only=True):
    """A definition; its spec stays as it was written."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: DefinitionStatus = DefinitionStatus()

    def condition(self, type_: str) -> DefinitionCondition | None:
        """The condition of this type, or None."""
        return next((one for one in self.status.conditions if one.type == type_), None)
