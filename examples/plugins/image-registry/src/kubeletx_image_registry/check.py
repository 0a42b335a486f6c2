"""The check: every image of a pod begins with one of the allowed prefixes."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kubeletx.api import Allow, PluginHost, Refuse


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The section ``kubeletx.plugins.image-registry`` of the configuration."""

    allowed: tuple[str, ...] = ()
    """Beginnings of image names, such as ``registry.example/team/``; empty: every image is allowed."""


class ImageRegistry:
    """Refuses pods with images from other registries. Implements `kubeletx.api.AdmissionCheck`."""

    def __init__(self, settings: Settings, host: PluginHost) -> None:
        """Keep the allowed prefixes; no I/O here, as in every factory."""
        self._allowed = settings.allowed

    async def review(self, pod: Mapping[str, Any]) -> Allow | Refuse:
        """Refuse the pod if one of its images begins with none of the allowed prefixes."""
        for field, image in images(pod):
            if self._allowed and not image.startswith(self._allowed):
                return Refuse(
                    reason="ImageRegistryRefused",
                    message=f"{field}: {image!r} begins with none of: {', '.join(self._allowed)}",
                )
        return Allow()


def images(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each field of the pod that names an image, such as ``spec.containers[0].image``, with the image."""
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(pod["spec"].get(kind, ())):
            if image := container.get("image"):
                yield f"spec.{kind}[{number}].image", image
