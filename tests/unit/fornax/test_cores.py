"""Addresses of cores, and what each of them may do."""

from __future__ import annotations

import pytest

from kubeletx.api import InvalidConfig
from kubeletx.fornax.cores import Cores, Role, parse_address, parse_owners, parse_seeds
from kubeletx.fornax.stubs import fornaxcore_pb2 as pb


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("core:1234", "core:1234"),
        ("192.0.2.1", "192.0.2.1:18001"),
        ("::1", "[::1]:18001"),
        ("[2001:db8::1]:99", "[2001:db8::1]:99"),
        ("[::1]", "[::1]:18001"),
    ],
)
def test_an_address_is_read(text: str, address: str) -> None:
    assert parse_address(text, "f") == address


@pytest.mark.parametrize(
    "text", ["", ":18001", "core:", "core:0", "core:70000", "core:x", "http://core:1", "a b:1"]
)
def test_an_invalid_address_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(InvalidConfig, match="f"):
        parse_address(text, "f")


def owners(primary: str, *standbys: str) -> pb.FornaxCoreConfiguration:
    return pb.FornaxCoreConfiguration(
        primary=pb.FornaxCore(ip=primary, identifier="one"),
        standbys=[pb.FornaxCore(ip=one) for one in standbys],
    )


def test_owners_without_a_primary_or_with_a_wrong_address_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="primary"):
        parse_owners(pb.FornaxCoreConfiguration())
    with pytest.raises(InvalidConfig, match=r"standby\.ip"):
        parse_owners(owners("a:1", "b:x"))


def test_every_seed_may_command_until_an_owner_is_known() -> None:
    cores = Cores(parse_seeds(["a:1", "b:1", "a:1"]))
    assert list(cores.wanted(with_seeds=False)) == ["a:1", "b:1"]
    assert cores.may_command("a:1")
    assert not cores.may_command("c:1")


def test_only_the_primary_may_command_once_it_is_known() -> None:
    cores = Cores(parse_seeds(["a:1", "b:1"]))
    cores.owners = parse_owners(owners("c:1", "b:1", "c:1"))
    assert {a: core.role for a, core in cores.wanted(with_seeds=False).items()} == {
        "c:1": Role.PRIMARY,
        "b:1": Role.STANDBY,
    }
    assert [one for one in "abc" if cores.may_command(f"{one}:1")] == ["c"]
    assert cores.wanted(with_seeds=True)["a:1"].role is Role.SEED
    assert cores.wanted(with_seeds=True)["b:1"].role is Role.STANDBY
