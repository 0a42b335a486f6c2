"""Block volumes of drivers that offer them: a capability of kubeletx, as FlexVolume has none for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api import InvalidPod, SourceKind, VolumeRequest
from plugins.flexvolume.tests.host.flex_model import OK, FlexNode, says

OFFERS = (
    '{"status": "Success", "capabilities": {"attach": false, "supportsMetrics": true, "blockVolumes": true}}'
)


@pytest.fixture
async def flex(tmp_path: Path):  # type: ignore[no-untyped-def]
    node = FlexNode(tmp_path)
    yield node
    await node.close()


def block_request(flex: FlexNode) -> VolumeRequest:
    """A request whose target does not exist, while its directory does."""
    request = flex.request(is_block=True)
    Path(request.target).rmdir()
    return request


async def test_a_driver_makes_the_target_a_device_itself(flex: FlexNode) -> None:
    flex.install_plain(
        init=says(OFFERS),
        mount=f'touch "$2"; add "$2" devtmpfs udev; {says(OK)}',
        unmount=f'drop "$2"; rm "$2"; {says(OK)}',
    )
    volumes, request = await flex.open(), block_request(flex)
    ready = await volumes.prepare(request)
    assert (ready.kind, ready.path) == (SourceKind.BLOCK_DEVICE, request.target)
    capabilities = ready.capabilities
    assert (capabilities.stats, capabilities.fs_group, capabilities.expand) == (False, False, False)
    await volumes.release(request)
    assert flex.commands() == ["mount", "unmount"]
    assert (flex.node.mounted, flex.journal(), Path(request.target).exists()) == ([], [], False)


@pytest.mark.parametrize("is_attaching", [False, True])
async def test_a_driver_that_does_not_offer_them_is_not_called(flex: FlexNode, is_attaching: bool) -> None:
    if is_attaching:
        flex.install_attaching(init=says(OFFERS.replace('"attach": false', '"attach": true')))
    else:
        flex.install_plain()
    volumes = await flex.open()
    with pytest.raises(InvalidPod, match=r"driver example\.com/ramdisk has no block volumes"):
        await volumes.prepare(block_request(flex))
    assert flex.commands() == []
