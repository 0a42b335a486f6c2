"""Which certificate a node begins with: the newest good one, whatever its clock says while it starts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubeletx.agent.cluster.access import cert_directory, node_access
from kubeletx.agent.config.tree import AgentConfig, ClusterSettings
from kubeletx.apiserver.certificates.files import CLIENT, CertificateFiles
from kubeletx.apiserver.certificates.key_pairs import KeyPair, parse_pair
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import CertificateAuthority, write_kubeconfig

NODE = "one"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Machine:
    """Files of a node: the kubeconfig's own certificate, and perhaps a rotated one."""

    def __init__(self, root: Path, own_life: timedelta, rotated_life: timedelta | None) -> None:
        self.authority = CertificateAuthority(root / "ca")
        self.config = AgentConfig(root_dir=root, cluster=ClusterSettings(rotate_certificates=True))
        user, groups = f"system:node:{NODE}", ["system:nodes"]
        own = self.authority.client(user, groups, life=own_life, file_name="own")
        self.kubeconfig = write_kubeconfig(
            root / "kubeconfig", "https://127.0.0.1:1", self.authority.ca_file, own
        )
        self.own = parse_pair(own.cert_file.read_bytes() + b"\n" + own.key_file.read_bytes(), "own")
        self.files = CertificateFiles(cert_directory(self.config), CLIENT)
        self.rotated: KeyPair | None = None
        if rotated_life is not None:
            pair = self.authority.client(user, groups, life=rotated_life, file_name="rotated")
            self.rotated = parse_pair(pair.cert_file.read_bytes() + pair.key_file.read_bytes(), "rotated")
            self.files.store(self.rotated, datetime.now(UTC))

    def start(self, skew: timedelta = timedelta()) -> KeyPair | None:
        """What the agent shows to the API server."""
        access = node_access(
            self.config, self.kubeconfig, NODE, FakeClock(start=datetime.now(UTC) + skew)
        ).access
        assert access.certificate == self.files.current
        return self.files.load()


def test_the_first_one_is_the_kubeconfigs(tmp_path: Path) -> None:
    machine = Machine(tmp_path, own_life=DAY, rotated_life=None)
    assert machine.start() == machine.own


@pytest.mark.parametrize("skew", [timedelta(), -2 * DAY, -4000 * DAY])
def test_a_rotated_one_is_kept_also_by_a_clock_that_is_behind(tmp_path: Path, skew: timedelta) -> None:
    machine = Machine(tmp_path, own_life=365 * DAY, rotated_life=DAY)
    assert machine.start(skew) == machine.rotated


def test_one_that_is_over_gives_way_to_one_that_is_not(tmp_path: Path) -> None:
    machine = Machine(tmp_path, own_life=DAY, rotated_life=-HOUR)
    assert machine.start() == machine.own


def test_by_a_clock_that_is_ahead_the_one_that_ends_last_is_taken(tmp_path: Path) -> None:
    machine = Machine(tmp_path, own_life=HOUR, rotated_life=DAY)
    assert machine.start(30 * DAY) == machine.rotated


def test_a_kubeconfig_that_was_made_after_the_last_rotation_counts(tmp_path: Path) -> None:
    machine = Machine(tmp_path, own_life=DAY, rotated_life=365 * DAY)
    user, groups = f"system:node:{NODE}", ["system:nodes"]
    since = timedelta(seconds=1)
    fresh = machine.authority.client(user, groups, life=DAY, file_name="fresh", since=since)
    write_kubeconfig(machine.kubeconfig, "https://127.0.0.1:1", machine.authority.ca_file, fresh)
    machine.own = parse_pair(fresh.cert_file.read_bytes() + b"\n" + fresh.key_file.read_bytes(), "fresh")
    assert machine.start() == machine.own
    assert machine.start() == machine.own, "and stays until it is rotated"


def test_a_kubeconfig_of_someone_else_leaves_a_rotated_certificate(tmp_path: Path) -> None:
    machine = Machine(tmp_path, own_life=DAY, rotated_life=365 * DAY)
    other = machine.authority.client("admin", file_name="admin", since=timedelta(seconds=1))
    write_kubeconfig(machine.kubeconfig, "https://127.0.0.1:1", machine.authority.ca_file, other)
    assert machine.start() == machine.rotated
