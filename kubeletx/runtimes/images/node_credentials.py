"""`ImageCredentials`: all registry credentials of the node, in the kubelet's order.

For a pull, the pod's pull secrets come first (see `store.ImageStore.pull`), then the docker config and its helpers,
then the credential providers. They are tried until one works. Source: kubelet, pkg/kubelet/images/image_manager.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from .credentials import NodeCredentials
from .providers import CredentialProviders
from .puller import Puller
from .verification import AccountUse, Credential


class ImageCredentials:
    """Combines the docker config's credentials and the credential providers; implements `store.RegistryCredentials`."""

    def __init__(self, node: NodeCredentials, providers: CredentialProviders) -> None:
        self._node = node
        self._providers = providers

    def is_personal(self, image: str) -> bool:
        return self._providers.is_personal(image)

    async def lookup(self, image: str, puller: Puller | None) -> Sequence[Credential]:
        node = [Credential(auth=one) for one in await self._node.lookup(image)]
        return (*node, *await self._providers.lookup(image, puller))

    async def find_account(self, puller: Puller) -> AccountUse | None:
        return await self._providers.find_account(puller)
