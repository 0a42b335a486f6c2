"""The table of kinds: registration and settings."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeletx.api import AlreadyExists, InvalidConfig
from kubeletx.runtimes.endpoints.kinds import KindTable, RuntimeKind


class Settings(msgspec.Struct, frozen=True, rename="camel"):
    """Two settings."""

    pool_size: int = 4
    image_directories: list[str] = []


def make(*_args: Any) -> Any:
    return None


def table() -> KindTable:
    kinds = KindTable()
    register = kinds.registrar("plugin-one")
    register("one", make, workload_types=("container",), schemes=("unix",), settings=Settings)
    register("two", make, workload_types=("vm",), schemes=("qemu",), settings=Settings)
    register("plain", make, workload_types=("odd",), schemes=("odd",))
    return kinds


def test_a_kind_is_registered_once() -> None:
    kinds = table()
    with pytest.raises(
        AlreadyExists, match="'one' of plugin other is registered already by plugin plugin-one"
    ):
        kinds.add(RuntimeKind(name="one", factory=make, workload_types=(), schemes=(), plugin="other"))


def test_known_workload_types_include_what_plugins_declare() -> None:
    assert table().workload_types() == ("container", "odd", "vm")


def test_settings_are_decoded_and_missing_sections_get_defaults() -> None:
    decoded = table().decode_settings({"one": {"poolSize": 9}})
    assert decoded == {"one": Settings(pool_size=9), "two": Settings()}


def test_all_bad_sections_are_named_in_one_message() -> None:
    with pytest.raises(InvalidConfig) as caught:
        table().decode_settings(
            {"one": {"poolSize": "many"}, "two": {"colour": 1}, "plain": {}, "absent": {}}, "/etc/k.yaml"
        )
    message = str(caught.value)
    assert message.startswith("4 problems")
    for words in (
        "/etc/k.yaml: kubeletx.plugins.one: Expected `int`, got `str` - at `$.poolSize`",
        "kubeletx.plugins.two: unknown field 'colour'; known: imageDirectories, poolSize",
        "kubeletx.plugins.plain: 'plain' has no settings; remove the section",
        "kubeletx.plugins.absent: no plugin registers 'absent'",
    ):
        assert words in message


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidConfig, match=r"no plugin registers kind 'x'.*one, plain, two"):
        table().get("x")
