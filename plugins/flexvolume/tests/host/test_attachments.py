"""The panel of storage attachments: rows of the records and garbage lists, from the storage agent over its socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from kubeletx_flexvolume.agent.calls import DriverCalls, DriverCapabilities
from kubeletx_flexvolume.agent.server import AgentServer
from kubeletx_flexvolume.attachments.garbage import item_of
from kubeletx_flexvolume.attachments.views import panel_rows
from kubeletx_flexvolume.host.status import FlexDriverStatus
from kubeletx_flexvolume.plugin import ATTACHMENTS, NAME, make_attachments
from kubeletx_flexvolume.values import DRIVER

from kubeletx.api import Panel, Table, Text, Unavailable
from kubeletx.testing import FakePluginHost
from kubeletx.testing.contract import PanelContract
from plugins.flexvolume.tests.agent.agent_model import Node
from plugins.flexvolume.tests.attachments.attachment_model import StorageModel, entry


class PanelNode:
    """A node with a driver and a storage agent. `hangs`, `fails`: what its records do."""

    def __init__(self, base: Path, kept_seconds: float = 0) -> None:
        self.storage = StorageModel("n1", "n2")
        self.hangs = self.fails = False
        self.driver = base / "kubeletx.io~storage" / "storage"
        self.driver.parent.mkdir()
        self.driver.touch()
        node = Node(base / "volumes")
        calls = DriverCalls(
            node.operations,
            node.tools,
            capabilities=DriverCapabilities(),
            state=dict,
            attachments=self._rows,
            records_seconds=0.2,
            kept_seconds=kept_seconds,
        )
        self.server = AgentServer(calls.answer)
        (base / ATTACHMENTS).mkdir()
        self.status = base / NAME / "drivers.json"
        self.panel = make_attachments(None, FakePluginHost(base / ATTACHMENTS))

    async def start(self) -> None:
        self.status.parent.mkdir()
        found = FlexDriverStatus(name=DRIVER, path=str(self.driver), state="ready")
        self.status.write_bytes(msgspec.json.encode([found]))
        await self.server.listen(self.driver.parent / ".agent", "plugins")

    async def text(self) -> str:
        shown = await self.panel.show()
        assert isinstance(shown, Text)
        return shown.text

    async def _rows(self) -> list[list[str]]:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise Unavailable("API server https://10.0.0.1:6443 does not answer")
        return await panel_rows(self.storage.stores)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[PanelNode]:
    one = PanelNode(tmp_path)
    yield one
    await one.server.close()


async def test_holders_and_garbage_lists_are_shown(node: PanelNode) -> None:
    await node.start()
    await node.storage.put(entry("n1", "web-0", device="/dev/loop0", read_only=True))
    stale = item_of("pv-2", entry("n2", "web-1"), why="node n2 has restarted", now=node.storage.clock.now())
    await node.storage.lists.add([stale])
    shown = await node.panel.show()
    assert isinstance(shown, Table)
    assert shown.columns == ("VOLUME", "NODE", "POD", "MODE", "DEVICE", "STATUS", "SINCE", "REASON")
    reason = "node n2 has restarted"
    assert shown.rows == (
        ("pv-2", "n2", "default/web-1", "ReadWrite", "", "Stale", stale.noted_at, reason),
        ("pv-1", "n1", "default/web-0", "ReadOnly", "/dev/loop0", "Attaching", "", ""),
    )


async def test_rows_that_do_not_fit_are_left_out(node: PanelNode) -> None:
    await node.start()
    for number in range(1000):
        await node.storage.put(entry("n1", device="/dev/loop0"), name=f"pv-{number:04}")
    shown = await node.panel.show()
    assert isinstance(shown, Table)
    *rows, last = shown.rows
    assert last == ("more: kubeletx-flexvolume attachments", *[""] * 7)
    assert len(rows) > 100


async def test_records_are_read_once_a_minute_for_a_page_that_asks_every_ten_seconds(tmp_path: Path) -> None:
    node = PanelNode(tmp_path, kept_seconds=60)
    await node.start()
    try:
        first = await node.panel.show()
        await node.storage.put(entry("n1"))
        assert await node.panel.show() == first
    finally:
        await node.server.close()


async def test_what_does_not_answer_is_named(node: PanelNode) -> None:
    assert await node.text() == f"No storage agent: driver {DRIVER} is not installed on this node."
    await node.start()
    node.hangs = True
    assert "the attachment records were not read within 0.2 s" in await node.text()
    node.hangs, node.fails = False, True
    assert "API server https://10.0.0.1:6443 does not answer" in await node.text()
    await node.server.stop_listening()
    assert "start 'kubeletx-flexvolume agent' on this node" in await node.text()


class TestPanelOfAttachments(PanelContract):
    @pytest.fixture
    def make_panel(self, tmp_path: Path) -> object:
        (tmp_path / ATTACHMENTS).mkdir()

        def make() -> Panel:
            return make_attachments(None, FakePluginHost(tmp_path / ATTACHMENTS))

        return make
