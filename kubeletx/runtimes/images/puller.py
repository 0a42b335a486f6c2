"""`Puller`: the pod for which an image is pulled, on which credentials may depend."""

from __future__ import annotations

import msgspec

from kubeletx.api import PodUid


class Puller(msgspec.Struct, frozen=True, kw_only=True):
    """The pod for which an image is pulled.

    `service_account`: empty if the pod has none. `source`: name of the pod's source, such as ``api``.
    """

    uid: PodUid
    namespace: str = ""
    name: str = ""
    service_account: str = ""
    source: str = ""
