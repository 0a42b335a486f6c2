"""`CredentialProviders`: programs that return registry credentials, run and cached as by a kubelet.

    image ─► providers whose matchImages fit ─► cached? (image, registry, all) ─► program ─► entries of a keyring

With tokenAttributes a provider gets a token of the pod's service account, bound to the pod, and chosen annotations of
the account. Its answers are then cached for this account only or, with cacheType Token, for this token only. Concurrent
callers with the same request share one run of the program. A failure of a provider is logged, and the provider returns
no credentials. Nothing is stored on disk.
Source: kubelet v1.36, pkg/credentialprovider/plugin/plugin.go.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import structlog

from kubeletx.api import Clock, ClusterObjects, KubeletxError, NotFound, TokenParameters
from kubeletx.api.counting import Metric, counter, gauge, histogram

from ..handles.calls import CallCount
from .credentials import NodeCredentials, auth_of
from .keyring import RegistryEntry, fits, matching, repository_of
from .limits import Shared
from .provider_config import Provider, ProviderPlan, TokenAttributes
from .provider_program import PROVIDER_SECONDS, Login, ProviderFailed, ProviderResponse, Question, ask
from .verification import AccountUse, Credential, Puller

log = structlog.get_logger(__name__)

PURGE_SECONDS = 15 * 60.0
"""Interval in seconds at which expired cache entries are dropped."""

_Key = tuple[str, str, tuple[object, ...]]


class _Account(msgspec.Struct, frozen=True, kw_only=True):
    """Data about the pod's service account that a provider gets; all fields are empty if it gets none.

    `key`: part of the cache key, which separates answers for this account from others. `identity`: UID, namespace and
    name of the service account.
    """

    token: str = ""
    annotations: tuple[tuple[str, str], ...] = ()
    key: tuple[object, ...] = ()
    identity: tuple[str, str, str] | None = None

    def __repr__(self) -> str:
        return "_Account(...)"


class _Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """Cached answer of a provider. `until`: monotonic time at which it expires."""

    entries: tuple[RegistryEntry, ...]
    until: float


class CredentialProviders:
    """Finds registry credentials with the node's credential providers.

    `digest`: hash of the configuration files, see `ProviderPlan`.
    """

    def __init__(
        self,
        plan: ProviderPlan,
        *,
        cluster: Mapping[str, ClusterObjects],
        clock: Clock,
        seconds: float = PROVIDER_SECONDS,
    ) -> None:
        """`cluster`: API objects of the cluster behind each pod source, by source name, for service accounts.

        `seconds`: deadline of one run of a program.
        """
        self._digest = plan.digest
        self._cluster = cluster
        self._providers = tuple(_Provider(provider, cluster, clock, seconds) for provider in plan.providers)

    def metrics(self) -> Iterator[Metric]:
        """Yield the metrics of the providers' programs; none without a configuration of providers."""
        if not self._digest:
            return
        name = "kubelet_credential_provider_"
        counts = {provider.settings.name: provider.count for provider in self._providers}
        yield gauge(
            f"{name}config_info",
            "Hash of the configuration of credential providers; the value is 1.",
            {self._digest: 1},
            "hash",
        )
        yield counter(
            f"{name}plugin_errors_total",
            "Number of runs of a credential provider that failed.",
            lambda: [((plugin,), count.errors) for plugin, count in counts.items()],
            "plugin_name",
        )
        yield histogram(
            f"{name}plugin_duration",
            "Duration of one run of a credential provider in seconds.",
            lambda: [((plugin,), count.durations) for plugin, count in counts.items()],
            "plugin_name",
        )

    def is_personal(self, image: str) -> bool:
        """Return True if the credentials for the image may depend on the pod: a provider uses its service account."""
        repository = repository_of(image)
        return any(
            provider.settings.token is not None and provider.fits(repository) for provider in self._providers
        )

    async def lookup(self, image: str, puller: Puller | None) -> Sequence[Credential]:
        repository = repository_of(image)
        fitting = [provider for provider in self._providers if provider.fits(repository)]
        answers = await asyncio.gather(*(provider.entries(repository, puller) for provider in fitting))
        entries = matching((e for each in answers for e in each), image)
        return [Credential(auth=auth_of(entry, image), origin=_origin(entry)) for entry in entries]

    async def find_account(self, puller: Puller) -> AccountUse | None:
        """Read the pod's service account from the cluster.

        None if the pod has no service account or comes from a source without a cluster. Raises KubeletxError.
        """
        cluster = self._cluster.get(puller.source)
        if cluster is None or not puller.service_account:
            return None
        account = await cluster.find_service_account(puller.namespace, puller.service_account)
        if account is None:
            return None
        return AccountUse(uid=account.uid, namespace=puller.namespace, name=puller.service_account)

    def close(self) -> None:
        """Kill the programs that run at the moment."""
        for provider in self._providers:
            provider.close()


class _Provider:
    """One credential provider with its cached answers and counters."""

    def __init__(
        self, settings: Provider, cluster: Mapping[str, ClusterObjects], clock: Clock, seconds: float
    ) -> None:
        self.settings = settings
        self.count = CallCount()
        self._cluster = cluster
        self._clock = clock
        self._seconds = seconds
        self._remembered: dict[_Key, _Remembered] = {}
        self._purged_at = clock.monotonic()
        self._running: Shared[ProviderResponse] = Shared(f"credential provider {settings.name}")

    def fits(self, repository: str) -> bool:
        """Return True if one of the provider's patterns matches the repository."""
        return any(fits(pattern, repository) for pattern in self.settings.match_images)

    async def entries(self, repository: str, puller: Puller | None) -> tuple[RegistryEntry, ...]:
        """Return the provider's credentials for the image; empty if it has none or fails."""
        try:
            account = await self._account(puller)
            return await self._entries(repository, account) if account is not None else ()
        except (KubeletxError, ProviderFailed) as error:
            log.warning(
                "Failed to ask credential provider",
                provider=self.settings.name,
                image=repository,
                pod=f"{puller.namespace}/{puller.name}" if puller is not None else None,
                err=str(error),
            )
            return ()

    def close(self) -> None:
        """Kill the runs of the provider's program."""
        self._running.close()

    async def _entries(self, repository: str, account: _Account) -> tuple[RegistryEntry, ...]:
        self._purge()
        registry = repository.partition("/")[0]
        keys = {"Image": repository, "Registry": registry, "Global": ""}
        for kind, text in keys.items():
            known = self._remembered.get((kind, text, account.key))
            if known is not None and self._clock.monotonic() < known.until:
                return known.entries
        question = Question(image=repository, token=account.token, annotations=account.annotations)
        answer = await self._running.join(question, lambda: self._run(question))
        logins = answer.auth or {}
        self._check_echo(logins.values(), account)
        entries = tuple(
            RegistryEntry(
                server=server, username=login.username, password=login.password, account=account.identity
            )
            for server, login in logins.items()
        )
        seconds = answer.cache_seconds
        if seconds is None:
            seconds = self.settings.default_cache_seconds
        if seconds > 0:
            key = (answer.cache_key_type, keys[answer.cache_key_type], account.key)
            self._remembered[key] = _Remembered(entries=entries, until=self._clock.monotonic() + seconds)
        return entries

    async def _run(self, question: Question) -> ProviderResponse:
        began = self._clock.monotonic()
        self.count.calls += 1
        try:
            return await ask(self.settings, question, seconds=self._seconds)
        except ProviderFailed:
            self.count.errors += 1
            raise
        finally:
            self.count.durations.add(self._clock.monotonic() - began)

    def _check_echo(self, logins: Iterable[Login], account: _Account) -> None:
        token = self.settings.token
        if token is None or token.cache_type == "Token" or not account.token:
            return
        if any(login.password == account.token for login in logins):
            raise ProviderFailed(
                "it gave the token back as a password; set tokenAttributes.cacheType to Token"
            )

    async def _account(self, puller: Puller | None) -> _Account | None:
        """Read the data about the pod's service account; None if the provider must not run for the pod."""
        wanted = self.settings.token
        if wanted is None:
            return _Account()
        cluster = self._cluster.get(puller.source) if puller is not None else None
        if puller is None or cluster is None or not puller.service_account:
            return None if wanted.require_service_account else _Account()
        account = await cluster.find_service_account(puller.namespace, puller.service_account)
        if account is None:
            raise NotFound(f'service account "{puller.namespace}/{puller.service_account}" not found')
        annotations = _chosen(wanted, account.annotations)
        if annotations is None:
            return None
        token_wanted = TokenParameters(audience=wanted.service_account_token_audience)
        token = (await cluster.token(puller.uid, token_wanted)).decode()
        key: tuple[object, ...] = (puller.namespace, puller.service_account, account.uid, annotations)
        if wanted.cache_type == "Token":
            key = (*key, hashlib.sha256(token.encode()).hexdigest())
        identity = (account.uid, puller.namespace, puller.service_account)
        return _Account(token=token, annotations=annotations, key=key, identity=identity)

    def _purge(self) -> None:
        now = self._clock.monotonic()
        if now - self._purged_at >= PURGE_SECONDS:
            self._purged_at = now
            self._remembered = {key: answer for key, answer in self._remembered.items() if now < answer.until}


def _origin(entry: RegistryEntry) -> AccountUse | None:
    if entry.account is None:
        return None
    uid, namespace, name = entry.account
    return AccountUse(uid=uid, namespace=namespace, name=name)


def _chosen(wanted: TokenAttributes, annotations: Mapping[str, str]) -> tuple[tuple[str, str], ...] | None:
    """Return names and values of the annotations that the provider gets; None if a required one is missing."""
    required = wanted.required_service_account_annotation_keys
    if any(key not in annotations for key in required):
        return None
    keys = sorted({*required, *wanted.optional_service_account_annotation_keys})
    return tuple((key, annotations[key]) for key in keys if key in annotations)


class ImageCredentials:
    """All registry credentials of the node, in the kubelet's order; implements `store.RegistryCredentials`.

    For a pull, the pod's pull secrets come first (see `store.ImageStore.pull`), then the docker config and its helpers,
    then the credential providers. They are tried until one works. Source: kubelet, pkg/kubelet/images/image_manager.go.
    """

    def __init__(self, node: NodeCredentials, providers: CredentialProviders) -> None:
        self._node = node
        self._providers = providers

    def is_personal(self, image: str) -> bool:
        return self._providers.is_personal(image)

    async def lookup(self, image: str, puller: Puller | None) -> Sequence[Credential]:
        node = [Credential(auth=auth) for auth in await self._node.lookup(image)]
        return (*node, *await self._providers.lookup(image, puller))

    async def find_account(self, puller: Puller) -> AccountUse | None:
        return await self._providers.find_account(puller)
