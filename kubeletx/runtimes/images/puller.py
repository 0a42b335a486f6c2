"""Identity of a pull's requester, on which credentials may depend."""

from __future__ import annotations

import msgspec

from kubeletx.api import PodUid


class Puller(msgspec.Struct, frozen=True, kw_only=True):
    """The pod that a pull is for. `service_account` empty: it has none. `source`: the pod's source."""

    uid: PodUid
    namespace: str = ""
    name: str = ""
    service_account: str = ""
    source: str = ""
