"""``kubeletx setup`` below an empty root, and ``kubeletx man``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml
from click.testing import CliRunner, Result

from kubeletx.agent.config.load import load_config
from kubeletx.cli.commands import COMMANDS
from kubeletx.cli.main import cli
from kubeletx.cli.setup.files import wanted_files
from kubeletx.cli.setup.found import KNOWN, KnownRuntime, find_runtimes, free_subnet
from kubeletx.cli.setup.install import SetupFiles, SetupStep

Setup: TypeAlias = Callable[..., Result]

CONFIG = "etc/kubeletx/config.yaml"
NETWORK = "etc/cni/net.d/99-kubeletx.conflist"
UNIT = "etc/systemd/system/kubeletx.service"
RECORD = "etc/kubeletx/.setup.json"
WRITTEN = {
    CONFIG,
    NETWORK,
    UNIT,
    "usr/local/share/bash-completion/completions/kubeletx",
    "usr/local/share/zsh/site-functions/_kubeletx",
    "usr/local/share/fish/vendor_completions.d/kubeletx.fish",
    "usr/local/share/man/man1/kubeletx.1",
    "usr/local/share/man/man8/kubeletx-agent.8",
}
ROUTES = """\
Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0  00000000    0202A8C0 0003 0 0 0 00000000 0 0 0
eth0  0002A8C0    00000000 0001 0 0 0 00FFFFFF 0 0 0
cni0  {cni0}      00000000 0001 0 0 0 0000FFFF 0 0 0
"""


def files_below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a file system with containerd's program and nothing else."""
    program = tmp_path / "usr/bin/containerd"
    program.parent.mkdir(parents=True)
    program.touch()
    return tmp_path


@pytest.fixture
def setup(root: Path) -> Setup:
    def run(*flags: str) -> Result:
        return CliRunner().invoke(cli, ["setup", "--root", str(root), *flags], prog_name="kubeletx")

    return run


def verbs(result: Result) -> dict[str, str]:
    """Return the printed verb of each path, without the slash at the beginning."""
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    return {row[1][1:]: row[0] for row in rows if row[0] in ("write", "renew", "keep", "remove")}


def test_setup_writes_what_is_missing_and_prints_it_before(root: Path, setup: Setup) -> None:
    dry = setup("--dry-run")
    assert files_below(root) == {"usr/bin/containerd"}
    assert set(verbs(dry)) == WRITTEN | {"etc/kubeletx/manifests"}
    assert max(map(len, dry.stdout.splitlines())) <= 80
    assert verbs(setup()) == verbs(dry)
    assert files_below(root) == WRITTEN | {"usr/bin/containerd", "etc/kubeletx/.setup.json"}
    assert {oct((root / path).stat().st_mode & 0o777) for path in WRITTEN} == {"0o644"}
    config = load_config(config_file=root / CONFIG)
    assert config.runtimes.endpoints[0].text.startswith("container:containerd:unix:///run/")
    assert config.sources.pod_manifest_path == Path("/etc/kubeletx/manifests")
    assert config.network.cni_conf_dir == Path("/etc/cni/net.d"), "machines have no network without it"
    assert not config.unused
    bridge, _ = json.loads((root / NETWORK).read_text())["plugins"]
    assert bridge["bridge"] == "kubeletx0"
    assert "/opt/kubeletx" not in (root / UNIT).read_text()
    assert "ExecStart=/" in (root / UNIT).read_text()


def test_a_second_setup_writes_nothing_and_a_lost_file_again(root: Path, setup: Setup) -> None:
    setup()
    before = {path: (root / path).stat().st_mtime_ns for path in files_below(root)}
    again = setup()
    assert set(verbs(again).values()) == {"keep"}
    assert {path: (root / path).stat().st_mtime_ns for path in files_below(root)} == before
    (root / UNIT).unlink()
    assert [path for path, verb in verbs(setup()).items() if verb == "write"] == [UNIT]


def test_setup_renews_the_files_of_an_earlier_version_but_not_changed_ones(root: Path, setup: Setup) -> None:
    setup()
    record, text = json.loads((root / RECORD).read_text()), (root / UNIT).read_text()
    for path in (UNIT, CONFIG):
        record["files"][f"/{path}"] = hashlib.sha256(b"earlier").hexdigest()
        (root / path).write_text("earlier" if path == UNIT else "by hand")
    (root / RECORD).write_text(json.dumps(record))
    result = setup()
    assert [path for path, verb in verbs(result).items() if verb != "keep"] == [UNIT]
    assert [line.split()[1] for line in result.stdout.splitlines() if line.endswith("was changed")] == [
        f"/{CONFIG}"
    ]
    assert [(root / path).read_text() for path in (UNIT, CONFIG)] == [text, "by hand"]
    (root / UNIT).write_text("earlier")  # as if setup had been killed before it wrote
    assert verbs(setup())[UNIT] == "renew"
    assert [path for path, verb in verbs(setup("--remove")).items() if verb == "keep"] == [CONFIG]


def test_settings_and_pod_network_are_not_renewed_if_the_node_differs_later(root: Path) -> None:
    def steps(routes: str, runtimes: list[KnownRuntime], executable: str) -> list[SetupStep]:
        subnet = free_subnet(routes)
        return SetupFiles(root).plan(
            wanted_files(cli, executable=executable, runtimes=runtimes, subnet=subnet)
        )

    SetupFiles(root).write(steps(ROUTES.format(cni0="0000580A"), list(KNOWN), "/opt/old/kubeletx"))
    again = steps(ROUTES.format(cni0="0000F40A"), [KNOWN[0]], "/opt/new/kubeletx")
    verbs = {step.path[1:]: (step.verb, step.reason) for step in again}
    assert verbs[NETWORK] == verbs[CONFIG] == ("keep", "not renewed")
    assert [path for path, (verb, _) in verbs.items() if verb != "keep"] == [UNIT]
    assert "10.89.0.0/16" in (root / NETWORK).read_text()


def test_remove_leaves_nothing_of_setup(root: Path, setup: Setup) -> None:
    setup()
    assert set(verbs(setup("--remove", "--dry-run"))) == WRITTEN
    assert files_below(root) > WRITTEN
    assert set(verbs(setup("--remove")).values()) == {"remove"}
    assert sorted(root.rglob("*")) == [root / "usr", root / "usr/bin", root / "usr/bin/containerd"]
    assert "Setup wrote no files" in setup("--remove").stdout


def test_a_changed_file_is_kept_and_named(root: Path, setup: Setup) -> None:
    setup()
    (root / CONFIG).write_text("changed")
    (root / NETWORK).unlink()
    (root / NETWORK).symlink_to("elsewhere")
    shown = verbs(setup("--remove"))
    assert [path for path, verb in shown.items() if verb == "keep"] == [CONFIG, NETWORK]
    assert (root / CONFIG).read_text() == "changed"
    assert files_below(root) == {CONFIG, NETWORK, "usr/bin/containerd"}


def test_existing_files_are_not_overwritten(root: Path, setup: Setup) -> None:
    (root / CONFIG).parent.mkdir(parents=True)
    (root / CONFIG).write_text("mine")
    (root / "etc/cni/net.d").mkdir(parents=True)
    (root / "etc/cni/net.d/10-flannel.conflist").write_text("{}")
    (root / "usr/lib/systemd/system").mkdir(parents=True)
    (root / "usr/lib/systemd/system/kubeletx.service").write_text("of a package")
    result = setup()
    shown = verbs(result)
    assert shown[CONFIG] == "keep"
    assert "not overwritten" in result.stdout
    assert shown["etc/cni/net.d/10-flannel.conflist"] == "keep"
    assert shown["usr/lib/systemd/system/kubeletx.service"] == "keep"
    assert not {NETWORK, UNIT} & files_below(root)
    assert (root / CONFIG).read_text() == "mine"
    assert CONFIG not in verbs(setup("--remove"))


def test_an_enabled_service_is_not_removed(root: Path, setup: Setup) -> None:
    setup()
    link = root / "etc/systemd/system/multi-user.target.wants/kubeletx.service"
    link.parent.mkdir()
    link.symlink_to("/etc/systemd/system/kubeletx.service")
    result = setup("--remove")
    assert result.exit_code == 2
    assert "systemctl disable --now kubeletx.service" in result.output
    assert files_below(root) > WRITTEN


def test_a_link_that_leads_out_of_the_root_is_refused(
    root: Path, setup: Setup, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (root / "usr/local").symlink_to(outside)
    result = setup()
    assert result.exit_code == 1
    assert "leads out of" in result.output
    assert list(outside.iterdir()) == []


def test_start_is_refused_for_another_root(setup: Setup) -> None:
    assert setup("--start").exit_code == 2


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="would start a service of this machine")
def test_start_is_refused_without_systemd() -> None:
    result = CliRunner().invoke(cli, ["setup", "--start"])
    assert result.exit_code == 1
    assert "systemd does not run" in result.output


def test_runtimes_without_a_plugin_are_named(tmp_path: Path) -> None:
    for trace in ("run/containerd/containerd.sock", "usr/sbin/libvirtd"):
        (tmp_path / trace).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / trace).touch()
    found, missing = find_runtimes(tmp_path, {"containerd", "quark"})
    assert [runtime.name for runtime in found] == ["containerd", "quark"]
    assert found[1].endpoint.endswith("?plugin=quark"), (
        "else containerd serves it while quark is not installed"
    )
    assert missing == ["libvirt"]
    assert [runtime.name for runtime in find_runtimes(tmp_path, {"libvirt"})[0]] == ["libvirt-qemu"]


@pytest.mark.parametrize(
    ("cni0", "subnet"),
    [("00000B0A", "10.88.0.0/16"), ("0000580A", "10.89.0.0/16"), ("0000590A", "10.88.0.0/16")],
)
def test_the_pod_network_overlaps_no_route(cni0: str, subnet: str) -> None:
    assert free_subnet(ROUTES.format(cni0=cni0)) == subnet


def test_the_pod_network_ignores_its_own_bridge_and_may_not_exist() -> None:
    assert free_subnet(ROUTES.format(cni0="0000580A").replace("cni0", "kubeletx0")) == "10.88.0.0/16"
    everything = "x 00000000 0 1 0 0 0 00000080 0 0 0\nx 00000080 0 1 0 0 0 00000080 0 0 0\n"
    assert free_subnet(ROUTES.format(cni0="00000B0A") + everything) is None


def test_man_pages_have_every_command_and_every_flag_of_the_agent(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["man", str(tmp_path / "man")])
    assert result.stdout.split() == [
        str(tmp_path / "man" / name) for name in ("kubeletx.1", "kubeletx-agent.8")
    ]
    page = (tmp_path / "man/kubeletx.1").read_text().replace("\\-", "-")
    assert [name for name in COMMANDS if f'.SS "kubeletx {name}"' not in page] == ["agent"]
    assert "fish: kubeletx completion fish | source\n" in page
    assert "\b" not in page
    agent = (tmp_path / "man/kubeletx-agent.8").read_text().replace("\\-", "-")
    assert "\n  --node-ip A,B,..." in agent


def test_the_settings_name_every_runtime_that_is_found(root: Path, setup: Setup) -> None:
    (root / "run/crio").mkdir(parents=True)
    (root / "run/crio/crio.sock").touch()
    assert "containerd, cri-o" in setup().stdout
    endpoints = yaml.safe_load((root / CONFIG).read_text())["kubeletx"]["containerRuntimeEndpoints"]
    assert "container:cri-o:unix:///run/crio/crio.sock" in endpoints
