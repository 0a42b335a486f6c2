"""docs/virtual-machines.md: its manifests are accepted, and its words are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from kubeletx_libvirt.cloudinit import NETWORK_CONFIG
from kubeletx_libvirt.config import Settings
from kubeletx_libvirt.images.reference import HttpImage, LocalImage, OciImage, parse

from kubeletx.agent.config.load import load_config
from kubeletx.api import names
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.manifests.load import load_pods
from kubeletx.kube.manifests.machine_form import machine_of
from kubeletx.kube.manifests.static_refs import refused_references
from kubeletx.kube.types.core import Nic, Pod, VirtualMachine
from kubeletx.kube.validation import validate_pod
from kubeletx.pods.workloads.machine.spec import build_machine
from tests.unit.docs.pages import DOCS, ROOT, first_words, named_blocks, rows, section, words

PAGE = (DOCS / "virtual-machines.md").read_text()
BLOCKS = named_blocks(PAGE)
PODS = sorted(BLOCKS.keys() - {"config"})
OTHERS = {"trustedImageCertificate", "powerSpec", "shutdownBehavior"}
"""Fields of `VirtualMachine` that the page names without their parent."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """What the page's configuration says of the plugin."""
    file = tmp_path / "config.yaml"
    file.write_text("".join(BLOCKS["config"]))
    config = load_config(root_dir=tmp_path, config_file=file)
    return msgspec.convert(config.runtimes.plugins["libvirt"], Settings)


def pod_of(name: str) -> Pod:
    (pod,) = load_pods("".join(BLOCKS[name]).encode(), name)
    return set_defaults(pod)


def test_every_manifest_has_a_name_and_so_a_test() -> None:
    assert PAGE.count("```yaml") == len(BLOCKS) == len(PODS) + 1


@pytest.mark.parametrize("name", PODS)
def test_every_manifest_is_a_valid_machine_that_needs_no_api_server(name: str, settings: Settings) -> None:
    pod = pod_of(name)
    assert validate_pod(pod, name) == ()
    assert refused_references(pod, name) == ()
    machine = machine_of(pod)
    assert machine is not None
    assert build_machine(pod, machine).hostname == pod.name
    parse(machine.image, settings.image_aliases)
    assert {nic.subnet_name for nic in pod.spec.nics} <= {None, *settings.networks}
    assert machine.key_pair_name in {None, *settings.key_pairs}


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("https://HOST/Path.x?q=1", HttpImage),
        ("http://host:8080/path", HttpImage),
        ("host/path.qcow2", HttpImage),
        ("host/path.img.xz", HttpImage),
        ("/path", LocalImage),
        ("file:///path", LocalImage),
        ("oci:registry.example/name:tag", OciImage),
        ("registry.example/name:tag", OciImage),
    ],
)
def test_the_forms_of_images_mean_what_the_table_says(written: str, kind: type) -> None:
    assert isinstance(parse(written, {}), kind)


def test_every_annotation_that_is_named_exists() -> None:
    known = {
        value for name, value in vars(names).items() if name.startswith("VM_") and isinstance(value, str)
    }
    reported = set(re.findall(r"kubeletx\.io/vm-[\w-]+", PAGE))
    assert reported <= known | {NETWORK_CONFIG}


def test_every_field_of_a_machine_is_named_and_no_other() -> None:
    fields = set(VirtualMachine.__struct_encode_fields__)
    reported = set(re.findall(r"`virtualMachine\.(\w+)", PAGE))
    assert reported <= fields
    shown = reported | set(re.findall(r"^    (\w+):", PAGE, re.MULTILINE)) | OTHERS
    assert fields - shown == {"resourcesAllocated", "resizePolicy", "imagePullPolicy"}
    assert all(f"`{word}" in PAGE for word in OTHERS)
    assert set(re.findall(r"`(subnetName|portId|ipAddress)`", PAGE)) <= set(Nic.__struct_encode_fields__)


def test_every_setting_that_is_named_exists() -> None:
    fields = set(Settings.__struct_encode_fields__)
    reported = {
        word
        for word in words(PAGE)
        if re.fullmatch(r"image[A-Z]\w+|keyPairs|networks|ports|unknown\w+", word)
    }
    assert reported - {"imagePullPolicy"} <= fields


def test_the_plugins_page_lists_every_setting() -> None:
    page = (ROOT / "plugins" / "libvirt" / "README.md").read_text()
    table = section(page, "Settings").partition("| `accelerator`")
    assert sorted(first_words(table[1] + table[2])) == sorted(Settings.__struct_encode_fields__)


@pytest.mark.parametrize("title", ["Coming from Virtlet", "Coming from KubeVirt"])
def test_both_tables_of_fields_have_an_answer_for_each(title: str) -> None:
    table = rows(section(PAGE, title))
    assert len(table) >= 12
    assert all(len(row) == 2 and all(row) for row in table)
