"""Config maps, secrets and claims of the node, as ``get`` shows them. They are JSON objects: the agent hides values."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from kubeletx.api.names import CONFIG_SOURCE
from kubeletx.kube.text.human import age

from .printers import Column

Item = dict[str, Any]


def _age(item: Item, now: datetime) -> str:
    created = item["metadata"].get("creationTimestamp")
    return age(datetime.fromisoformat(created) if created else None, now)


def keys_of(item: Item) -> dict[str, Any]:
    """Return the values of a config map or secret by key; of a secret's values, the agent shows only sizes."""
    return {**item.get("data", {}), **item.get("binaryData", {})}


_NAME: Final = Column("NAME", lambda item, _: item["metadata"]["name"])
_DATA: Final = Column("DATA", lambda item, _: str(len(keys_of(item))))
_AGE: Final = Column("AGE", _age)
_SOURCE: Final = Column(
    "SOURCE", lambda item, _: item["metadata"].get("annotations", {}).get(CONFIG_SOURCE, ""), wide=True
)
CONFIG_MAP: Final = (_NAME, _DATA, _AGE, _SOURCE)
SECRET: Final = (_NAME, Column("TYPE", lambda item, _: item.get("type", "Opaque")), _DATA, _AGE, _SOURCE)
CLAIM: Final = (
    _NAME,
    Column("STATUS", lambda item, _: item["status"]["phase"], state=True),
    Column("CAPACITY", lambda item, _: item["status"]["capacity"]["storage"]),
    Column("ACCESS MODES", lambda item, _: ",".join(item["spec"].get("accessModes", ()))),
    Column("STORAGECLASS", lambda item, _: item["spec"].get("storageClassName", "")),
    _AGE,
    Column("PATH", lambda item, _: item["status"].get("path", ""), wide=True),
    _SOURCE,
)
