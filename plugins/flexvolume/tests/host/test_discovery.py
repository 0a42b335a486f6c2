"""Drivers are found, initialised, changed and removed without a restart."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from kubeletx_flexvolume.host import discovery
from structlog.testing import capture_logs

from kubeletx.api import Unavailable
from kubeletx.testing import FakeClock
from kubeletx_testing.waiting import until
from plugins.flexvolume.tests.agent.agent_model import at_once
from plugins.flexvolume.tests.host.flex_model import (
    DRIVER,
    NOT_SUPPORTED,
    OK,
    PLAIN,
    FixedHost,
    FlexNode,
    failure,
    mode_of,
    says,
)


def ready(flex: FlexNode) -> list[str]:
    return [name for name, driver in flex.drivers().items() if driver.state == "ready"]


async def until_ready(flex: FlexNode, *names: str) -> None:
    await until(lambda: ready(flex) == sorted(names))


async def test_drivers_are_found_by_their_layout(flex: FlexNode) -> None:
    flex.install_plain("example.com/one")
    flex.install_plain("plain")
    flex.install_plain("deep.example.com/a/b")
    flex.path_of("no.example.com/executable").parent.mkdir()
    flex.install_plain("not.example.com/executable").chmod(0o644)
    (flex.plugins / "file").write_text("x")
    (flex.plugins / ".hidden~driver").mkdir()
    shutil.copy(flex.path_of("plain"), flex.plugins / ".hidden~driver" / "driver")
    (flex.plugins / "dir.example.com~one" / "one").mkdir(parents=True)
    (flex.plugins / "..~x").mkdir()
    (flex.plugins / "a~..~x").mkdir()
    shutil.copy(flex.path_of("plain"), flex.plugins / "a~..~x" / "x")
    await flex.open()
    await until_ready(flex, "deep.example.com/a/b", "example.com/one", "plain")


async def test_a_driver_that_is_installed_later_is_found_by_its_file_event(flex: FlexNode) -> None:
    await flex.open()
    assert ready(flex) == []
    flex.install_plain()
    await until_ready(flex, DRIVER)
    flex.install_plain("example.com/other")
    await until_ready(flex, DRIVER, "example.com/other")


async def test_a_driver_that_is_written_slowly_is_initialised_when_it_is_complete(flex: FlexNode) -> None:
    volumes = await flex.open()
    path = flex.path_of()
    path.parent.mkdir()
    path.touch(mode=0o755)
    content = flex.install_plain("example.com/template").read_text()
    await until_ready(flex, "example.com/template")
    with path.open("w") as file:
        file.write(content[:50])
        file.flush()
        await volumes.prepare(flex.request(driver="example.com/template"))
        file.write(content[50:])
    await until_ready(flex, DRIVER, "example.com/template")


async def test_a_mode_that_is_set_later_makes_a_driver(flex: FlexNode) -> None:
    flex.install_plain().chmod(0o644)
    await flex.open()
    flex.path_of().chmod(0o755)
    await until_ready(flex, DRIVER)
    flex.path_of().chmod(0o644)
    await until_ready(flex)


async def test_a_removed_driver_is_dropped(flex: FlexNode) -> None:
    flex.install_plain()
    flex.install_plain("example.com/other")
    volumes = await flex.open()
    await until_ready(flex, DRIVER, "example.com/other")
    flex.path_of().unlink()
    await until_ready(flex, "example.com/other")
    shutil.rmtree(flex.path_of("example.com/other").parent)
    await until_ready(flex)
    with pytest.raises(Unavailable, match=f"driver {DRIVER}: no executable {flex.path_of()}; install"):
        await volumes.prepare(flex.request())


async def test_a_changed_driver_is_initialised_again(flex: FlexNode) -> None:
    flex.install_plain()
    await flex.open()
    await until_ready(flex, DRIVER)
    flex.install_attaching()
    await until(lambda: ready(flex) == [DRIVER] and "attach" in flex.drivers()[DRIVER].capabilities)


async def test_a_touched_driver_is_initialised_again(flex: FlexNode) -> None:
    flex.install_plain()
    await flex.open()
    await until_ready(flex, DRIVER)
    assert flex.drivers()[DRIVER].calls == 1
    os.utime(flex.path_of())
    await until(lambda: ready(flex) == [DRIVER] and flex.drivers()[DRIVER].calls == 2)


async def test_a_directory_that_is_removed_is_made_again_and_watched(flex: FlexNode) -> None:
    await flex.open()
    for _ in range(3):
        flex.install_plain()
        await until_ready(flex, DRIVER)
        shutil.rmtree(flex.plugins)
        await until_ready(flex)
    assert flex.plugins.is_dir()


async def test_a_missing_directory_is_made_with_mode_0755(tmp_path: Path) -> None:
    host, before = FixedHost(tmp_path), os.umask(0o077)
    host.directory = tmp_path / "a" / "exec"
    looker = discovery.Discovery(host, at_once, lambda found: None)
    try:
        await looker.look()
    finally:
        os.umask(before)
        looker.close()
    assert mode_of(tmp_path / "a" / "exec") == 0o755


async def test_a_directory_that_cannot_be_made_is_found_when_another_program_makes_it(flex: FlexNode) -> None:
    host = FixedHost(flex.host.state_directory)
    host.directory = flex.directory / "mounted" / "exec"
    flex.host = host
    (flex.directory / "mounted").symlink_to(flex.directory / "later")  # dangling, so that mkdir fails
    with capture_logs() as logs:
        volumes = await flex.open()
    assert [one["event"] for one in logs] == ["Found no directory of drivers, and cannot make it"]
    with pytest.raises(Unavailable, match="no executable"):
        await volumes.prepare(flex.request())
    (flex.directory / "later").mkdir()
    flex.install_plain()
    await until_ready(flex, DRIVER)


async def test_a_failed_init_is_tried_again_without_a_file_event(flex: FlexNode) -> None:
    marker = flex.directory / "server-is-there"
    flex.install_plain(init=f"if [ -e {marker} ]; then {says(PLAIN)}; fi; {says(failure('no server'), 1)}")
    volumes = await flex.open()
    with pytest.raises(Unavailable, match=r"not ready: .*init failed: 'no server'"):
        await volumes.prepare(flex.request())
    clock = flex.host.clock
    assert isinstance(clock, FakeClock)
    await until(lambda: clock.sleepers >= 2)  # the next look, and the next init
    marker.touch()
    clock.advance(1.2)
    await until_ready(flex, DRIVER)
    await volumes.prepare(flex.request())


async def test_an_init_that_is_not_supported_is_not_a_driver(flex: FlexNode) -> None:
    flex.install_plain(init=says(NOT_SUPPORTED))
    volumes = await flex.open()
    with pytest.raises(Unavailable, match="init answered: Not supported"):
        await volumes.prepare(flex.request())


async def test_a_driver_that_cannot_be_executed_is_failed_and_named(flex: FlexNode) -> None:
    flex.install_text("#!/no/such/interpreter\n")
    volumes = await flex.open()
    with pytest.raises(Unavailable, match=r"cannot be started: No such file or directory; .*interpreter"):
        await volumes.prepare(flex.request())


async def test_a_release_does_not_need_init(flex: FlexNode) -> None:
    flex.install_plain()
    request = flex.request()
    await (await flex.open()).prepare(request)
    flex.install_plain(init=says(failure("no server"), 1))
    after = await flex.open()
    await after.release(request)
    assert flex.node.mounted == []


async def test_without_file_events_there_is_a_look_every_five_seconds(
    flex: FlexNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(discovery, "Inotify", refuse)  # the user's other processes share the limit
    with capture_logs() as logs:
        volumes = await flex.open()
        flex.install_plain("example.com/wanted")
        await volumes.prepare(flex.request(driver="example.com/wanted"))  # looks at once
        flex.install_plain()
        clock = flex.host.clock
        assert isinstance(clock, FakeClock)
        await until(lambda: clock.sleepers == 1)
        clock.advance(5.1)
        await until_ready(flex, DRIVER, "example.com/wanted")
        await until(lambda: clock.sleepers == 1)
        clock.advance(5.1)
        await until(lambda: clock.sleepers == 1)
    assert [one["event"] for one in logs].count("Failed to watch drivers, looking at intervals") == 1


async def test_the_replies_of_init_are_not_those_of_other_calls(flex: FlexNode) -> None:
    flex.install_plain(mount=f'add "$2"; {says(OK)}')
    volumes = await flex.open()
    await volumes.prepare(flex.request())
    await until_ready(flex, DRIVER)
    assert "attach" not in flex.drivers()[DRIVER].capabilities
