"""`ImageStore`: one store of images and all runtimes that use it (DECISIONS 20).

Several runtimes may share a store; each of them can list and remove its images. An image is pulled through the runtime
of the pod that needs it. Pods that need the same image at the same time share one pull.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

import msgspec
import structlog

from kubeletx.api import (
    Clock,
    ImageSpec,
    ImageStatus,
    Internal,
    KubeletxError,
    PullProgress,
    RuntimeName,
    SandboxSpec,
    SharedPulls,
    StoreId,
    StoreInfo,
    SupportsImages,
    TimedOut,
    Unavailable,
)
from kubeletx.api.names import POD_SOURCE

from ..handles.handle import RuntimeHandle
from .keyring import repository_of
from .limits import PullDelays, Shared, TokenBucket
from .records import ImageRecords
from .settings import PullSettings
from .verification import AccountUse, Credential, Origin, Puller

ERR_IMAGE_PULL = "ErrImagePull"
IMAGE_PULL_BACK_OFF = "ImagePullBackOff"


class PullFailed(Unavailable):
    """Raised if a pull failed. `retry_at`: monotonic time of the next try; earlier ones raise `PullBackOff`."""

    def __init__(self, message: str, *, retry_at: float, reason: str = ERR_IMAGE_PULL) -> None:
        """`reason`: reason of the error of the image service; ErrImagePull if it gave none."""
        super().__init__(message, reason=reason)
        self.retry_at = retry_at


class PullBackOff(PullFailed):
    """Raised instead of pulling, while the back-off after the last failure is not over."""

    def __init__(self, message: str, *, retry_at: float) -> None:
        """`retry_at`: monotonic time at which the back-off ends."""
        super().__init__(message, retry_at=retry_at, reason=IMAGE_PULL_BACK_OFF)


log = structlog.get_logger(__name__)
T = TypeVar("T")
OnProgress = Callable[[PullProgress], None]


class RegistryCredentials(Protocol):
    """Returns the node's registry credentials for an image; implemented by `ImageCredentials`."""

    def is_personal(self, image: str) -> bool:
        """Return True if credentials for the image may depend on the pod."""
        ...

    async def lookup(self, image: str, puller: Puller | None) -> Sequence[Credential]:
        """Return the credentials for the image, best first; empty to pull anonymously.

        `puller`: the pod that needs the image; None if the pull is not for a pod.
        """
        ...

    async def find_account(self, puller: Puller) -> AccountUse | None:
        """Read the pod's service account from the cluster; None if the pod has none. Raises KubeletxError."""
        ...


class PullCounts:
    """Counters of one store's pulls: number, failures, and total duration in seconds."""

    def __init__(self) -> None:
        self.pulls = 0
        self.errors = 0
        self.seconds = 0.0


class ImageStore:
    """One image store: finds, pulls and removes its images. Made by `ImageStores`.

    `members`: the runtimes that use the store, in the configured order.
    """

    def __init__(
        self,
        store_id: StoreId,
        *,
        clock: Clock,
        records: ImageRecords,
        credentials: RegistryCredentials,
        settings: PullSettings,
    ) -> None:
        self.id = store_id
        self.members: dict[RuntimeName, RuntimeHandle] = {}
        self.counts = PullCounts()
        self._clock = clock
        self._records = records
        self._credentials = credentials
        self._verification = settings.verification
        self._pulls: SharedPulls[ImageStatus] = SharedPulls()
        self._backoffs = PullDelays(settings.backoff_seconds, settings.backoff_cap_seconds)
        self._finding: Shared[ImageStatus | None] = Shared("find image")
        self._bucket = TokenBucket(clock, settings.qps, settings.burst)
        self._slots = asyncio.Semaphore(settings.at_once) if settings.at_once is not None else None

    def __repr__(self) -> str:
        return f"ImageStore({self.id}, {', '.join(self.members)})"

    # --- presence ---

    async def find(self, image: ImageSpec, via: RuntimeHandle | None = None) -> ImageStatus | None:
        """Return the image as it is in the store; None if it is not there. `via`: the runtime to query; None: any."""
        return await self._ask("find_image", lambda service: service.find_image(image), via)

    async def find_shared(self, image: ImageSpec, via: RuntimeHandle) -> ImageStatus | None:
        """Like `find`, but concurrent callers share one call.

        The call may have begun before this one, so it may miss a change that the caller has just made.
        """
        return await self._finding.join((via.name, msgspec.json.encode(image)), lambda: self.find(image, via))

    async def list(self) -> Sequence[ImageStatus]:
        """Return all images in the store, including images that other agents pulled."""
        return await self._ask("list_images", lambda service: service.list_images())

    async def info(self) -> StoreInfo:
        """Query the id and the file systems of the store."""
        return await self._ask("store_info", lambda service: service.store_info())

    async def remove(self, image: ImageStatus) -> None:
        """Remove the image with all its tags; succeeds if the store does not have it."""
        spec = ImageSpec(requested=image.tags[0] if image.tags else image.id, ref=image.ref or image.id)
        await self._ask("remove_image", lambda service: service.remove_image(spec))
        self._records.removed(self.id, image.id)

    async def may_use(
        self,
        image: ImageSpec,
        present: ImageStatus,
        *,
        credentials: Sequence[Credential] = (),
        puller: Puller | None = None,
    ) -> bool:
        """Return True if a pod may use an image that is present without a pull of its own (see `verification`).

        `image`: as in the pod. `present`: the same image in the store. `credentials`: of the pod's pull secrets.
        `puller`: the pod; None to ignore its service account.
        """
        access, repository = self._records.access, repository_of(image.requested)
        is_pulled = access.is_pulled(self.id, present.id, image.requested)
        if not self._verification.is_needed(image.requested, is_pulled=is_pulled):
            return True
        known = access.find(self.id, present.id, repository)
        if known is None:
            return False
        origins: list[Origin] = [credential.origin for credential in credentials]
        if known.accounts and puller is not None:
            with contextlib.suppress(KubeletxError):  # then the pod must pull the image itself
                origins.append(await self._credentials.find_account(puller))
        origin, is_open = known.find(origins)
        if origin is not None:
            access.add(self.id, present.id, repository, origin)
        return is_open

    # --- pulls ---

    @property
    def pulls(self) -> Collection[str]:
        """Keys of the running pulls. Up to the first ``|``, a key is the image's reference."""
        return self._pulls.keys

    async def pull(
        self,
        image: ImageSpec,
        *,
        via: RuntimeHandle,
        credentials: Sequence[Credential] = (),
        sandbox: SandboxSpec | None = None,
        on_progress: OnProgress | None = None,
        force: bool = False,
        puller: Puller | None = None,
        on_begin: Callable[[], None] | None = None,
    ) -> ImageStatus:
        """Pull the image, or wait for a running pull of it; return the image as it is in the store.

        - `via`: the runtime whose image service pulls.
        - `credentials`: from the pod's pull secrets, tried before the node's credentials.
        - `sandbox`: spec of the pod's sandbox, passed to the image service; None if the pull is not for a certain pod.
        - `force`: ignore the back-off, for an operator.
        - `puller`: the pod. Back-off is per pod, so that a recreated pod tries immediately.
        - `on_begin`: called when the pull begins, after the wait for other pulls; not called for a caller that joins a
          running pull.

        Raises PullFailed, or PullBackOff while the back-off after the last failure lasts. There is no deadline; the
        pull is cancelled when its last caller is cancelled.
        """
        key = f"{image.requested}|{image.handler}" if image.handler else image.requested
        owned = f"{puller.uid if puller is not None else ''}|{key}"
        shared = "|".join((key, *self._rights(image, credentials, sandbox, puller)))
        now = self._clock.monotonic()
        if (
            not force
            and shared not in self._pulls.keys
            and (delay := self._backoffs.find(owned, now)) is not None
        ):
            raise PullBackOff(
                f'Back-off pulling image "{image.requested}": {delay.message}', retry_at=delay.until
            )
        try:
            status = await self._pulls.join(
                shared,
                lambda report: self._fetch(image, via, credentials, sandbox, puller, report, on_begin),
                on_progress,
            )
        except _FetchFailed as failed:
            delay = self._backoffs.fail(owned, self._clock.monotonic(), failed.error.message)
            raise PullFailed(
                failed.error.message, retry_at=delay.until, reason=failed.error.reason or ERR_IMAGE_PULL
            ) from failed.error
        # Of this caller only: another pod's failure with other credentials keeps its own delay.
        self._backoffs.succeed(owned)
        return status

    async def close(self) -> None:
        """Cancel the running pulls."""
        self._finding.close()
        await self._pulls.close()

    # --- private ---

    def _rights(
        self,
        image: ImageSpec,
        credentials: Sequence[Credential],
        sandbox: SandboxSpec | None,
        puller: Puller | None,
    ) -> Iterator[str]:
        """Yield the parts of a pull's key that identify its credentials; callers share a pull only if these are equal.

        If they shared one, the failure of a caller without credentials would fail the others.
        """
        if sandbox is not None and (source := sandbox.annotations.get(POD_SOURCE)):
            yield source
        if credentials:
            yield f"{hash(tuple(credential.auth for credential in credentials)):x}"
        if puller is not None and self._credentials.is_personal(image.requested):
            yield str(puller.uid)

    async def _fetch(
        self,
        image: ImageSpec,
        via: RuntimeHandle,
        credentials: Sequence[Credential],
        sandbox: SandboxSpec | None,
        puller: Puller | None,
        report: OnProgress,
        on_begin: Callable[[], None] | None,
    ) -> ImageStatus:
        # Before taking a slot: a program that returns credentials may run for a minute, and no pull should wait for it.
        candidates = (*credentials, *await self._credentials.lookup(image.requested, puller))
        # A file of this node needs no server, so no server holds it up.
        is_local = image.requested.startswith(("/", "file://"))
        async with self._slots if self._slots is not None and not is_local else contextlib.nullcontext():
            await self._bucket.take()
            began = self._clock.monotonic()
            if on_begin is not None:
                on_begin()
            self.counts.pulls += 1
            try:
                before = await self.find(image, via)
                async with self._recorded(image, puller) as outcome:
                    outcome.origin = await self._pull_with_any(image, via, candidates, sandbox, report)
                    status = await self.find(image, via)
                    if status is None:
                        raise Internal(f"image {image.requested!r} is not in the store after its pull")
                    outcome.image_id = status.id
            except KubeletxError as error:
                self.counts.errors += 1
                raise _FetchFailed(error) from error
            finally:
                self.counts.seconds += self._clock.monotonic() - began
        if before is None or before.id != status.id:
            self._records.pulled(self.id, status.id, image.requested, self._clock.now())
        return status

    @contextlib.asynccontextmanager
    async def _recorded(self, image: ImageSpec, puller: Puller | None) -> AsyncIterator[_Outcome]:
        """Context that records the begin and the result of a pull for a pod.

        Nothing is recorded if `puller` is None: an image that an operator pulled counts as preloaded.
        """
        outcome = _Outcome()
        if puller is None:
            yield outcome
            return
        access, requested = self._records.access, image.requested
        await access.begin(self.id, requested)
        is_known_absent = False
        try:
            yield outcome
        except KubeletxError as error:
            # After a deadline the server may still complete the pull, so the record of its begin stays.
            is_known_absent = not isinstance(error, TimedOut)
            raise
        finally:
            if outcome.image_id:
                name = repository_of(requested)
                await access.succeed(self.id, outcome.image_id, name, requested, outcome.origin)
            else:
                access.fail(self.id, requested, is_known_absent=is_known_absent)

    async def _pull_with_any(
        self,
        image: ImageSpec,
        via: RuntimeHandle,
        candidates: Sequence[Credential],
        sandbox: SandboxSpec | None,
        report: OnProgress,
    ) -> Origin:
        """Pull with each credential until one works; without `candidates`, pull anonymously.

        Returns the origin of the credential that worked. Raises the last error if none did.
        """
        service = _service(via)
        failures: list[KubeletxError] = []
        for candidate in candidates or (Credential(),):
            try:
                await via.unlimited(
                    "pull_image", partial(service.pull_image, image, candidate.auth, sandbox, report)
                )
            except KubeletxError as error:
                # Servers answer 401, 403 or 404 for a wrong credential, so every error leads to the next one.
                failures.append(error)
            else:
                return candidate.origin
        raise failures[-1]

    async def _ask(
        self, method: str, call: Callable[[SupportsImages], Awaitable[T]], via: RuntimeHandle | None = None
    ) -> T:
        handle = via if via is not None else self._any_member()
        service = _service(handle)
        return await handle.ask(method, lambda: call(service))

    def _any_member(self) -> RuntimeHandle:
        for handle in self.members.values():
            if handle.state.reachable:
                return handle
        names = ", ".join(self.members) or "none"
        raise Unavailable(f"image store {self.id} does not answer; its runtimes: {names}")


class _Outcome:
    """Result of a pull. `image_id`: empty until the pull succeeded. `origin`: origin of the credential that worked."""

    def __init__(self) -> None:
        self.image_id = ""
        self.origin: Origin = None


class _FetchFailed(Exception):
    """Raised in all callers of a shared pull that failed; each of them computes its own back-off."""

    def __init__(self, error: KubeletxError) -> None:
        super().__init__(error.message)
        self.error = error


def _service(handle: RuntimeHandle) -> SupportsImages:
    service = handle.capability(SupportsImages)
    if service is None:
        raise Unavailable(f"runtime {handle.name} has no image store, or has not answered yet")
    return service
