"""Fixtures of the volume driver suite, and `Volumes`, which calls drivers as the agent does."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from kubeletx.api import ReadyVolume, SourceKind, VolumeDriver, VolumePod, VolumeRequest
from kubeletx.linux.mounts import mounts_below, read_mounts
from kubeletx.volumes.mounting import LinuxMounter

from ...specs import volume_request as make_volume_request
from ..calls import PluginCalls, PluginFault, short
from ..failures import explained
from ..shared import Maker, NewObject, SuiteBase, answer_of

FILE = "file"


class VolumeDriverBase(SuiteBase):
    """Base class of the suite's test classes, with the fixtures and properties that authors define or override."""

    keeps_data = False
    """The files of a volume survive its release. False: a volume is empty when it is prepared again."""
    shared_by_pods = False
    """Two pods of the node may use one persistent volume with access mode ReadWriteMany at the same time."""
    serves_block = False
    """The driver serves block volumes (`VolumeRequest.is_block`). False: it refuses them."""
    expanded_bytes = 64 << 20
    """Size to which a volume is expanded, in bytes, if the driver declares `VolumeCapabilities.expand`."""

    @pytest.fixture
    def make_driver(self) -> Callable[[], VolumeDriver]:
        """Function that returns a new driver, as the plugin's factory does. You must override this.

        A test calls the function again to simulate a restart of the agent, so all drivers that it returns must
        use the same backend. At the start of a test the backend has no data of an earlier test.
        """
        # A fixture cannot be abstract: pytest would leave a class with one uncollected and say nothing.
        raise NotImplementedError("override the fixture make_driver in your subclass of VolumeDriverContract")

    @pytest.fixture
    def volume_fields(self) -> Mapping[str, Any]:
        """Fields of `VolumeRequest` that all requests have, such as `source`, `driver` and `options`."""
        return {}

    @pytest.fixture
    def volume_request(
        self, tmp_path: Path, volume_fields: Mapping[str, Any]
    ) -> Callable[..., VolumeRequest]:
        """Function from a volume's name and other fields to its request, as `kubeletx.testing.volume_request`.

        The agent's root directory is in the temporary directory of the test.
        """

        def make(name: str = "data", **changes: Any) -> VolumeRequest:
            return make_volume_request(tmp_path.resolve() / "root", name, **{**volume_fields, **changes})

        return make

    @pytest.fixture
    def refused_options(self) -> Sequence[Mapping[str, Any]]:
        """Options that the driver refuses, each with InvalidPod; empty: it refuses none."""
        return ()

    @pytest.fixture
    def grow(self) -> Callable[[VolumeRequest, int], None]:
        """Function that makes the device behind a volume as large as the given number of bytes, before `expand`.

        It is called on a thread. The default does nothing.
        """
        return lambda _request, _size_bytes: None

    @pytest.fixture
    def new_driver(self, make_driver: Callable[[], VolumeDriver], maker: Maker) -> NewObject[VolumeDriver]:
        """The function of `make_driver`; calls of its drivers have time limits."""
        return maker.of(make_driver, VolumeDriver)

    @pytest_asyncio.fixture
    async def volumes(
        self,
        new_driver: NewObject[VolumeDriver],
        volume_request: Callable[..., VolumeRequest],
        tmp_path: Path,
    ) -> AsyncIterator[Volumes]:
        """Opens drivers and calls them. After the test they are closed, and what is still mounted is unmounted."""
        made = Volumes(new_driver, volume_request, tmp_path)
        try:
            yield made
            with explained("the driver closes after the test", made.calls, "close"):
                await made.close()
        finally:
            await asyncio.to_thread(unmount_all, made.directory)


class Volumes:
    """Calls drivers under test as the agent does, and examines the node."""

    def __init__(
        self,
        new_driver: NewObject[VolumeDriver],
        request: Callable[..., VolumeRequest],
        directory: Path,
    ) -> None:
        """`request`: makes requests. `directory`: the directory that contains the agent's root directory."""
        self.calls: PluginCalls = new_driver.calls
        self.request = request
        self._new_driver = new_driver
        self.directory = directory.resolve()
        self._opened: list[VolumeDriver] = []

    async def open(self) -> VolumeDriver:
        """Return a new driver, opened, as after a start of the agent."""
        driver = self._new_driver()
        try:
            with explained("the driver opens", self.calls, "open"):
                await driver.open()
        except BaseException:
            self._new_driver.give_up()
            raise
        self._opened.append(driver)
        return driver

    async def close(self) -> None:
        """Close all drivers that were opened."""
        while self._opened:
            await self._opened.pop().close()

    async def prepare(self, driver: VolumeDriver, request: VolumeRequest) -> Path:
        """Prepare the volume and return its path. Raises PluginFault for a result that breaks the contract."""
        ready = await self.ready(driver, request)
        path = Path(ready.path or request.target)
        mode = (await asyncio.to_thread(path.stat)).st_mode
        is_block = stat.S_ISBLK(mode)
        assert is_block == (ready.kind is SourceKind.BLOCK_DEVICE), (
            f"kind is {ready.kind}, but {path} is {'a' if is_block else 'no'} block device"
        )
        return path

    async def ready(self, driver: VolumeDriver, request: VolumeRequest) -> ReadyVolume:
        """Prepare the volume and return the driver's answer. Raises PluginFault if that breaks the contract."""
        await self.make_target(request)
        with unchanged("prepare", request):
            answer = await driver.prepare(request)
        return checked_ready(answer)

    async def release(self, driver: VolumeDriver, request: VolumeRequest) -> None:
        """Release the volume, and fail the test if something of it is left."""
        await self.only_release(driver, request)
        left = await asyncio.to_thread(self.left_of, request)
        assert not left, f"after the release there is still {' and '.join(left)}"

    async def only_release(self, driver: VolumeDriver, request: VolumeRequest) -> None:
        """Release the volume: the request has no secrets, and its empty directory is removed afterwards."""
        request = replace(request, secrets={})
        release: Callable[..., Awaitable[object]] = driver.release
        with unchanged("release", request):
            answer_of("release", await release(request), type(None))
        with contextlib.suppress(OSError):
            await asyncio.to_thread(Path(request.target).rmdir)

    async def make_target(self, request: VolumeRequest) -> None:
        """Make the directory of the volume; for a block volume only the directory that contains it."""
        target = Path(request.target)
        made = target.parent if request.is_block else target
        await asyncio.to_thread(made.mkdir, parents=True, exist_ok=True)

    def left_of(self, request: VolumeRequest) -> list[str]:
        """Return what is left at the target of a released volume. Blocks."""
        target = Path(request.target)
        left = [f"a mount on {mount.target}" for mount in mounts_below(read_mounts(), target)]
        if left:
            return left
        if target.is_dir():
            return [f"{path} in the target" for path in sorted(target.iterdir())]
        return [f"{target}"] if target.exists() or target.is_symlink() else []


def lost_journal(request: VolumeRequest) -> VolumeRequest:
    """Return the request that the agent makes from the directory of a volume whose journal is lost."""
    name = PurePosixPath(request.target).name
    return VolumeRequest(
        pod=VolumePod(uid=request.pod.uid, name="", namespace=""),
        name=name,
        persistent_volume=name,
        source=request.source,
        driver=request.driver,
        target=request.target,
        is_block=request.is_block,
    )


def checked_ready(answer: object) -> ReadyVolume:
    """Return the result of `prepare`. Raises PluginFault if it is none, as the agent would."""
    ready: ReadyVolume = answer_of("prepare", answer, ReadyVolume)
    check_fields("prepare", ready)
    path = PurePosixPath(ready.path or "/")
    if not path.is_absolute() or ".." in path.parts or "\0" in ready.path:
        raise PluginFault(f"prepare returned the path {ready.path!r}, which is not absolute and plain")
    return ready


def check_fields(method: str, answer: msgspec.Struct) -> None:
    """Raise PluginFault if a field of the result has a wrong type, such as a Path instead of a string."""
    try:
        msgspec.convert(msgspec.to_builtins(answer), type(answer))
    except (TypeError, msgspec.ValidationError) as error:
        raise PluginFault(f"{method} returned a field of a wrong type: {error}; {short(answer)}") from error


@contextlib.contextmanager
def unchanged(method: str, request: VolumeRequest) -> Iterator[None]:
    """Context manager that raises PluginFault if the block changes the request: the agent stores it."""
    before = copy.deepcopy(request)
    yield
    if request != before:
        raise PluginFault(f"{method} changed the request; copy `options` before you change them")


async def write(path: Path, text: str) -> None:
    """Write a file in the volume at `path`."""
    await asyncio.to_thread((path / FILE).write_text, text)


async def read(path: Path) -> str | None:
    """Return the content of the file in the volume; None if it does not exist."""
    try:
        return await asyncio.to_thread((path / FILE).read_text)
    except FileNotFoundError:
        return None


def unmount_all(directory: Path) -> None:
    """Unmount all mounts in the directory, the last one first; mounts in use are left. Blocks."""
    for mount in reversed(mounts_below(read_mounts(), directory)):
        with contextlib.suppress(OSError):
            LinuxMounter().unmount(Path(mount.target))
