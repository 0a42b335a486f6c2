"""docs/storage.md: its manifests are valid, and its options, commands, events and numbers are those of the code."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml
from kubeletx_flexvolume.agent import background, options, server
from kubeletx_flexvolume.agent.installer import DEFAULT_PLUGIN_DIRECTORY, KNOWN_PLUGIN_DIRECTORIES
from kubeletx_flexvolume.agent.main import main
from kubeletx_flexvolume.agent.paths import TargetPath
from kubeletx_flexvolume.attachments import definitions, events, proofs
from kubeletx_flexvolume.attachments.decision import BreakPolicy
from kubeletx_flexvolume.backends.backend import Backend
from kubeletx_flexvolume.backends.directory import DirectoryBackend
from kubeletx_flexvolume.backends.fuse import FuseBackend
from kubeletx_flexvolume.backends.loop import LoopBackend
from kubeletx_flexvolume.backends.loop_devices import LoopDevices
from kubeletx_flexvolume.backends.nbd import NbdBackend
from kubeletx_flexvolume.backends.nfs import NfsBackend
from kubeletx_flexvolume.backends.pools import Pool, Pools
from kubeletx_flexvolume.backends.rbd import RbdBackend
from kubeletx_flexvolume.backends.registry import Backends
from kubeletx_flexvolume.cleanup import cleaner, finalizers
from kubeletx_flexvolume.cleanup.sequence import CleanupStep
from kubeletx_flexvolume.commands import Commands
from kubeletx_flexvolume.config import FlexSettings
from kubeletx_flexvolume.device import MAKE_OPTIONS
from kubeletx_flexvolume.driver import program
from kubeletx_flexvolume.host import driver
from kubeletx_flexvolume.plugin import PANEL
from kubeletx_flexvolume.values import DRIVER, AccessMode

from kubeletx.agent.config.tree import BY_FLAG
from kubeletx.api import SystemClock
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.manifests.load import load_pods
from kubeletx.kube.manifests.static_refs import refused_references
from kubeletx.kube.types.objects import PersistentVolume
from kubeletx.kube.validation import validate_pod
from tests.unit.docs.pages import DOCS, ROOT, named_blocks, rows, words

PAGE = (DOCS / "storage.md").read_text()
README = (ROOT / "plugins" / "flexvolume" / "README.md").read_text()
BLOCKS = named_blocks(PAGE)
KINDS: tuple[type[Backend], ...] = (
    LoopBackend,
    DirectoryBackend,
    FuseBackend,
    NfsBackend,
    RbdBackend,
    NbdBackend,
)
BACKENDS = {one.name: one.parameters for one in KINDS}
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]+)")
OF_OTHERS = {"no-block", "target"}
"""Flags of systemctl."""


def part(title: str, page: str = PAGE) -> str:
    """The text of a section, with its subsections."""
    text = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert text, title
    return text


def table(name: str) -> list[list[str]]:
    """The rows of the table below a comment."""
    text = PAGE.partition(f"<!-- {name} -->\n\n")[2].partition("\n\n")[0]
    return rows(text)


def flags(command: click.Command) -> set[str]:
    return {
        text.removeprefix("--")
        for one in command.params
        if isinstance(one, click.Option)
        for text in (*one.opts, *one.secondary_opts)
    }


def test_the_pod_of_the_page_is_valid_without_a_cluster(tmp_path: Path) -> None:
    (text,) = BLOCKS["counter"]
    (pod,) = load_pods(text.encode(), "counter.yaml")
    assert validate_pod(set_defaults(pod), "counter.yaml") == ()
    assert refused_references(pod, "counter.yaml") == ()
    check_volume(yaml.safe_load(text)["spec"]["volumes"][0]["flexVolume"], tmp_path)


def test_the_persistent_volume_of_the_page_is_one(tmp_path: Path) -> None:
    (text,) = BLOCKS["persistent-volume"]
    content = yaml.safe_load(text)
    volume = msgspec.convert(content, PersistentVolume)
    assert volume.metadata.name == "shop-data"
    check_volume(content["spec"]["flexVolume"], tmp_path)
    assert "kubeletx.io/storage" in text.partition("secretRef")[2]


def check_volume(source: dict[str, Any], pool: Path) -> None:
    """Let the agent read the options, as a kubelet would send them."""
    assert source["driver"] == DRIVER
    sent = {
        "kubernetes.io/fsType": source.get("fsType", ""),
        "kubernetes.io/readwrite": "rw",
        "kubernetes.io/pvOrVolumeName": "data",
        "kubernetes.io/pod.name": "web",
        "kubernetes.io/pod.namespace": "default",
        "kubernetes.io/pod.uid": "u1",
        **source["options"],
    }
    commands = Commands(pool)
    made = (
        LoopBackend(
            Pools({"default": Pool(name="default", directory=str(pool))}),
            LoopDevices(commands, SystemClock()),
            asyncio.to_thread,
            boot_id="b",
        ),
        RbdBackend(commands),
    )
    target = TargetPath(kubelet_root="/k", pod_uid="u1", name="data")
    request = options.parse_options(json.dumps(sent), target, Backends(made))
    assert request.volume.backend == source["options"]["backend"]


def test_every_option_of_the_driver_is_in_the_table_with_its_backends() -> None:
    found = {words(row[0])[0]: row[1] for row in table("options")}
    special = {name for parameters in BACKENDS.values() for name in parameters}
    assert set(found) == options._OPTIONS | special
    for name in special:
        assert set(found[name].split(", ")) == {one for one, has in BACKENDS.items() if name in has}, name
    for one in MAKE_OPTIONS:
        assert f"`{one}`" in part("Options of a volume")
    assert f"default `{options.DEFAULT_FS_TYPE}`" in part("Options of a volume")


def test_every_backend_is_in_the_table_and_says_whether_it_ran() -> None:
    found = {words(row[0])[0]: row[3] for row in table("backends")}
    assert set(found) == set(BACKENDS)
    for kind in KINDS:
        is_recorded = "Recorded contract" in (inspect.getmodule(kind).__doc__ or "")
        assert ("recorded contract" in found[kind.name]) == is_recorded, kind.name


def test_every_access_mode_and_policy_is_explained() -> None:
    assert [row[0] for row in rows(part("Access modes"))] == [mode.value for mode in AccessMode]
    head = PAGE.partition("<!-- policies -->\n\n")[2].partition("\n")[0]
    assert words(head) == [policy.value for policy in BreakPolicy]
    assert all(len(row) == 3 and all(row) for row in table("policies"))


def test_the_proofs_are_those_of_the_code() -> None:
    text = part("Breaking a lock")
    assert text.count(proofs.OUT_OF_SERVICE) >= 2
    decision = (DOCS / "decisions" / "0014-storage-agent.md").read_text()
    assert len(rows(text.partition("`--break-policy`")[0])) == 5
    assert proofs.OUT_OF_SERVICE in decision


def test_every_command_is_explained_and_no_other() -> None:
    named = set(re.findall(r"kubeletx-flexvolume ([a-z]+)\b", PAGE))
    assert named == set(main.commands)
    listed = {words(row[0])[0].split()[1] for row in rows(part("Attachment records"))}
    assert listed == set(main.commands) - {"agent"}


def test_every_flag_exists() -> None:
    known = {one for command in main.commands.values() for one in flags(command)} | BY_FLAG.keys() | OF_OTHERS
    named = set(FLAG.findall(PAGE + README))
    assert named - known == set()


def test_every_option_of_the_agent_is_explained_in_the_plugins_page() -> None:
    text = part("Options of the agent", README)
    hidden = {"boot-id", "help"}
    listed = {flag for row in rows(text) for flag in FLAG.findall(row[0])}
    assert listed == flags(main.commands["agent"]) - hidden
    for one in main.commands["agent"].params:
        assert isinstance(one, click.Option)
        if one.show_default and isinstance(one.default, str | Path | float):
            value = f"{one.default:g}" if isinstance(one.default, float) else str(one.default)
            (row,) = [row for row in rows(text) if f"`{one.opts[0]}" in row[0]]
            assert value in row[1], one.opts


def test_the_plugins_page_lists_every_setting() -> None:
    listed = [words(row[0])[0] for row in rows(part("Settings", README))]
    assert listed == list(FlexSettings.__struct_encode_fields__)


def test_every_capability_is_done_or_missing_or_impossible() -> None:
    found = rows(part("Capabilities", README))
    assert len(found) > 10
    for row in found:
        assert row[1] in ("done", "missing", "not applicable"), row
        assert row[2], row


def test_the_plugin_directories_are_those_of_the_code() -> None:
    assert [Path(words(row[0])[0]) for row in table("plugin-directories")] == list(KNOWN_PLUGIN_DIRECTORIES)
    assert f"`{DEFAULT_PLUGIN_DIRECTORY}`" in PAGE


@pytest.mark.parametrize("page", ["storage.md", "reference.md"])
def test_every_event_is_named_and_no_other(page: str) -> None:
    text = (DOCS / page).read_text()
    if page == "reference.md":
        text = text.partition("\n### Events of the storage agent\n")[2].partition("\n## ")[0]
    known = {
        events.LOCK_BROKEN,
        events.ENTRY_REMOVED,
        events.NOT_REMOVED,
        finalizers.WAITING,
        cleaner.BLOCKED,
    }
    known |= {reason for reason, _ in cleaner._WORDS.values()}
    for reason in known:
        assert f"`{reason}`" in text, reason
    if page == "reference.md":
        assert {word for row in rows(text) for word in words(row[0])} == known


def test_the_steps_of_a_clean_up_have_the_order_of_the_code() -> None:
    listed = [words(row[1])[0] for row in rows(part("Storage clusters"))]
    order = [step for step in CleanupStep if step is not CleanupStep.DONE]
    assert listed == [cleaner._WORDS[step][0] for step in order]


def test_the_custom_resources_have_these_names() -> None:
    made = {one["metadata"]["name"]: one["spec"]["names"] for one in definitions.definitions()}
    text = part("Attachment records")
    assert made["volumeattachments.storage.kubeletx.io"]["shortNames"] == ["kva"]
    assert made["staleattachments.storage.kubeletx.io"]["shortNames"] == ["kstale"]
    for word in ("volumeattachments.storage.kubeletx.io", "short: kva", "staleattachments", "short: kstale"):
        assert word in text


def test_numbers_are_those_of_the_code() -> None:
    security = part("Security")
    assert f"at most {server.MAX_CONNECTIONS} connections, {server.REQUEST_SECONDS:g} s" in security
    assert f"{program.MAX_REQUEST // 1024} KiB" in security
    others = part("Third-party drivers")
    assert f"| {driver.MOST_CALLS}, of one driver {driver.MOST_OF_ONE_DRIVER} |" in others
    assert f"{FlexSettings().timeout_seconds:g} s together (`timeoutSeconds`)" in others
    assert f"panel {PANEL}" in others.replace("\n", " ")
    assert (background.LIST_SECONDS, background.CHECK_SECONDS) == (600, 60)
    assert "every ten minutes" in PAGE
    assert "each minute" in PAGE


def test_the_driver_is_what_the_page_says() -> None:
    assert inspect.getsource(program).startswith("#!/usr/bin/python3 -IS\n")
    assert "`python3 -I -S`" in PAGE


def test_the_files_of_the_deployment_exist() -> None:
    for name in re.findall(r"deploy/storage/[\w.-]+", PAGE):
        assert (ROOT / name).exists(), name
