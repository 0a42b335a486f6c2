"""Output of ``describe configmap``, ``describe secret`` and ``describe persistentvolumeclaim``."""

from __future__ import annotations

from kubeletx.api.names import CONFIG_SOURCE

from ..output.object_kinds import Item, keys_of
from .sheet import Sheet


def describe_object(item: Item) -> list[str]:
    """Return the lines that describe one object, as the agent shows it: of a secret, only the sizes of the values."""
    metadata = item["metadata"]
    notes = {key: text for key, text in metadata.get("annotations", {}).items() if key != CONFIG_SOURCE}
    sheet = Sheet().add("Name", metadata["name"]).add("Namespace", metadata["namespace"])
    sheet.add_map("Labels", metadata.get("labels", {})).add_map("Annotations", notes, ": ")
    sheet.add_if("Source", metadata.get("annotations", {}).get(CONFIG_SOURCE))
    if item["kind"] == "PersistentVolumeClaim":
        status, spec = item["status"], item["spec"]
        sheet.add("Status", status["phase"]).add("Capacity", status["capacity"]["storage"])
        sheet.add("Access Modes", ",".join(spec.get("accessModes", ())))
        sheet.add_if("StorageClass", spec.get("storageClassName")).add_if("Path", status.get("path"))
        return sheet.lines()
    if item["kind"] == "Secret":
        sheet.add("Type", item.get("type", "Opaque"))
    sheet.add("Immutable", "yes" if item.get("immutable") else "no")
    data = sheet.nest("Data")
    for key in sorted(keys_of(item)):
        value = item.get("data", {}).get(key)
        data.add(key, value.split("\n") if value is not None else "(binary)")
    return sheet.lines()
