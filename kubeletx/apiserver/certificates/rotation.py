"""`CertificateRotation`: requests, stores and renews one certificate of the node.

    none, another subject, or after 70 to 90 % of its life ─► new key, request (`request`) ─► files
                                                                   │ denied, not approved, no server
                                                                   └──► again with back-off; the old one stays in use

The renewal time is chosen at random once for each certificate. The wall clock is read every minute, since it may jump
and the machine may sleep. A certificate that another process stored is used too. Readers of the files must notice new
ones themselves. If this machine's clock is ahead of the cluster's, a new certificate may seem expired when it arrives:
then each further request waits longer.

Source: client-go, util/certificate/certificate_manager.go.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime

import msgspec
import structlog

from kubeletx.api import Clock, KubeletxError
from kubeletx.api.backoff import Backoff
from kubeletx.api.counting import Durations, Metric, counter, gauge, histogram
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.backoff import server_backoff
from kubeletx.kube.client.errors import least_seconds

from .files import CertificateFiles
from .key_pairs import KeyPair, Subject, new_key
from .request import obtain

log = structlog.get_logger(__name__)

LOOK_SECONDS = 60.0
FIRST_SECONDS, CAP_SECONDS = 2.0, 120.0

_DAY = 24 * 3600.0
LIVES = (60.0, 3600.0, 4 * 3600.0, *(days * _DAY for days in (1, 7, 30, 90, 180, 360, 1440)))
"""Bucket bounds in seconds of the metric kubelet_certificate_manager_server_rotation_seconds."""


class Purpose(msgspec.Struct, frozen=True, kw_only=True):
    """Kind of certificate to request.

    `name`: client or server, for the log. `signer`, `usage`: fields of the CertificateSigningRequest.
    """

    name: str
    signer: str
    usage: str


class CertificateRotation:
    """Keeps one certificate of the node valid; `run` is its only task.

    `errors`: number of failed renewals. `lives`: seconds for which replaced certificates were in use. `current`: the
    certificate as last read from the files; None if there is none.
    """

    def __init__(
        self,
        client: KubeClient,
        files: CertificateFiles,
        subject: Callable[[], Subject],
        *,
        purpose: Purpose,
        clock: Clock,
        when_expired: Callable[[], Awaitable[None]] | None = None,
        draw: random.Random | None = None,
    ) -> None:
        """`subject`: returns the subject that the certificate must have now; another subject causes a new request.

        `when_expired`: called instead of requesting a new certificate if the present one has expired, because an
        expired client certificate cannot authenticate the request. None: a new certificate is requested in any case.
        """
        self._client = client
        self._files = files
        self._subject = subject
        self._purpose = purpose
        self._clock = clock
        self._when_expired = when_expired
        self._random = draw or random.Random()
        self._due: tuple[KeyPair, datetime] | None = None
        self._problem = ""
        self._is_clock_odd = False
        self.errors = 0
        self.lives = Durations(LIVES)
        self.current: KeyPair | None = None

    @property
    def ttl_seconds(self) -> float | None:
        """Seconds until the certificate expires: negative if it has expired, None if there is no certificate."""
        if self.current is None:
            return None
        return (self.current.not_after - self._clock.now()).total_seconds()

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of this certificate, by the kubelet's names; the failures have no suffix ``_total``."""
        kind, prefix = self._purpose.name, "kubelet_certificate_manager"
        word = {"client": "client", "server": "serving"}[kind]
        is_client = kind == "client"
        yield gauge(
            f"{prefix}_{kind}_ttl_seconds",
            f"Seconds until the {word} certificate expires; +Inf without a certificate.",
            lambda: math.inf if self.ttl_seconds is None else math.trunc(self.ttl_seconds),
        )
        yield counter(
            f"{prefix}_client_expiration_renew_errors"
            if is_client
            else "kubelet_server_expiration_renew_errors",
            f"Number of failed renewals of the {word} certificate.",
            lambda: self.errors,
        )
        if not is_client:
            yield histogram(
                f"{prefix}_server_rotation_seconds",
                "Age of a serving certificate when it was renewed.",
                self.lives,
            )

    async def run(self) -> None:
        """Request a certificate if none is valid for the subject, and renew it each time it is due, until cancelled."""
        backoff = server_backoff(first=FIRST_SECONDS, cap=CAP_SECONDS)
        while True:
            seconds = self._seconds_left()
            if seconds > 0:
                await self._clock.sleep(min(seconds, LOOK_SECONDS))
                continue
            try:
                await self._renew()
            except (KubeletxError, OSError) as error:
                self.errors += 1
                if str(error) != self._problem:
                    log.warning("Failed to renew a certificate", purpose=self._purpose.name, err=str(error))
                self._problem = str(error)
                least = least_seconds(error)
                await self._clock.sleep(backoff.next(self._clock.monotonic(), at_least=least))
            else:
                self._problem = ""
                await self._clock.sleep(self._rest(backoff))

    def _rest(self, backoff: Backoff) -> float:
        """Return the seconds to wait after a renewal, at least `FIRST_SECONDS`.

        The wait grows from renewal to renewal if the new certificate is due for renewal at once: then its lifetime is
        too short or a clock is wrong.
        """
        due, pair = self._seconds_left(), self.current
        if due > 0 or pair is None:
            backoff.reset()
            self._is_clock_odd = False
            return FIRST_SECONDS
        left = (pair.not_after - self._clock.now()).total_seconds()
        seconds = backoff.next(self._clock.monotonic())
        if left > 0:
            return min(seconds, max(FIRST_SECONDS, left / 2))
        if not self._is_clock_odd:
            self._is_clock_odd = True
            log.warning(
                "A new certificate has expired by this machine's clock, which may be wrong",
                purpose=self._purpose.name,
                until=pair.not_after.isoformat(),
            )
        return seconds

    def _seconds_left(self) -> float:
        """Read the certificate from the files and return the seconds until its renewal; 0 or less means now."""
        self.current = pair = self._files.load()
        if pair is None or not pair.is_for(self._subject()):
            return 0.0
        if self._due is None or self._due[0] != pair:
            self._due = (pair, pair.rotate_at(self._random.random()))
            log.info(
                "Loaded a certificate",
                purpose=self._purpose.name,
                until=pair.not_after.isoformat(),
                renewed_at=self._due[1].isoformat(),
            )
        return (self._due[1] - self._clock.now()).total_seconds()

    async def _renew(self) -> None:
        now = self._clock.now()
        if self._when_expired is not None and self.current is not None and self.current.not_after <= now:
            await self._when_expired()
            return
        key = new_key()
        pair = await obtain(
            self._client,
            key,
            self._subject(),
            signer=self._purpose.signer,
            usage=self._purpose.usage,
            clock=self._clock,
        )
        path = self._files.store(pair, self._clock.now())
        if self.current is not None:
            self.lives.add((self._clock.now() - self.current.not_before).total_seconds())
        log.info("Renewed a certificate", purpose=self._purpose.name, file=str(path))
