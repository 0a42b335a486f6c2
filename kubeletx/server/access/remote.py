"""`KubeletAccess`: TLS, authentication and authorization of the kubelet's API, for its own server and for programs of this node.

A program beside the agent, such as kubeletx-web, makes its TLS context from `KubeletAccess.files` and asks for each request
with `KubeletAccess.decide`. So the same users have the same rights, and no second client reviews tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..views import AccessDecision, AccessFiles, AccessRequest
from .authentication import Authenticator
from .authorization import PROXY, Authorizer, refusal_of
from .ciphers import openssl_ciphers
from .self_signed import Pair
from .tls import TlsPlan


class KubeletAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Access to the kubelet's API. Implements `AccessVerbs`.

    `pair`: returns the paths of certificate and key; may raise InvalidConfig.
    """

    plan: TlsPlan
    pair: Callable[[], Pair]
    authenticator: Authenticator
    authorizer: Authorizer

    def files(self) -> AccessFiles:
        pair, authority = self.pair(), self.plan.client_ca
        return AccessFiles(
            certificate_file=str(pair.certificate),
            key_file=str(pair.key),
            client_ca_file=str(authority) if authority is not None else None,
            min_version=self.plan.min_version,
            ciphers=openssl_ciphers(self.plan.ciphers),
        )

    async def decide(self, asked: AccessRequest) -> AccessDecision:
        user = await self.authenticator.find_user({"subject": asked.subject}, asked.authorization)
        status, message = await refusal_of(user, "get", (PROXY,), self.authorizer) or (200, "")
        name = user.name if user is not None else ""
        return AccessDecision(allowed=status == 200, user=name, status=status, message=message)
