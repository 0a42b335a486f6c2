"""Field selectors as kubectl takes them: ``metadata.name=web,status.phase!=Running``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kubeletx.api import InvalidConfig

if TYPE_CHECKING:
    from .kinds import ObjectKind

_METADATA: Final = ("metadata.name", "metadata.namespace")
_FIELDS: Final = {
    "pod": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
    ),
    "event": (
        *(
            f"involvedObject.{name}"
            for name in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")
        ),
        "reason",
        "type",
        "reportingComponent",
    ),
    "secret": ("type",),
}
"""Fields besides the object's name and namespace, by kind. Source: kubernetes, the field labels of each kind."""
_TERM: Final = re.compile(r"\s*(?P<field>[\w.]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^,]*?)\s*")


class FieldRequirement(NamedTuple):
    """One term of a field selector. `equal` False: the field must not have this value."""

    field: str
    value: str
    equal: bool

    def matches(self, item: Any, kind: ObjectKind) -> bool:
        """Return True if the object has, or has not, this value; a field that is not set is an empty text."""
        return (self._found(item, kind) == self.value) is self.equal

    def _found(self, item: Any, kind: ObjectKind) -> str:
        if self.field in _METADATA:
            return (kind.name if self.field == "metadata.name" else kind.namespace)(item)
        for name in self.field.split("."):
            snake = re.sub(r"(?<=[a-z])[A-Z]+", lambda match: f"_{match[0].lower()}", name)
            item = item.get(name) if isinstance(item, dict) else getattr(item, snake, None)
        return "" if item is None else str(item)


def parse_field_selector(text: str, kind: ObjectKind) -> tuple[FieldRequirement, ...]:
    """Parse a field selector for objects of a kind. Raises InvalidConfig, which names the error."""
    known = (*_METADATA, *_FIELDS.get(kind.singular, ()))
    terms = []
    for part in text.split(",") if text.strip() else ():
        match = _TERM.fullmatch(part)
        if match is None or match["field"] not in known:
            raise InvalidConfig(
                field="--field-selector",
                problem=f"{part!r} is not understood"
                if match is None
                else f"{kind.plural} have no field {match['field']!r}",
                fix=f"write FIELD=VALUE or FIELD!=VALUE with one of {', '.join(known)}",
            )
        terms.append(FieldRequirement(match["field"], match["value"], match["operator"] != "!="))
    return tuple(terms)
