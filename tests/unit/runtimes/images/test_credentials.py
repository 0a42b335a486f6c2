"""The node's docker config and credential helpers."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from kubeletx.api import KubeletxError, TimedOut, Unavailable
from kubeletx.runtimes.images.credentials import NodeCredentials, default_paths, pull_secret_auths


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    return directory


def helper(programs: Path, name: str, script: str) -> None:
    path = programs / f"docker-credential-{name}"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


async def test_the_first_file_that_can_be_read_counts(tmp_path: Path) -> None:
    bad = tmp_path / "a.json"
    bad.write_text("{not json")
    good = write(tmp_path / "b.json", {"auths": {"r.io": {"auth": encoded("user:pass:word")}}})
    third = write(tmp_path / "c.json", {"auths": {"r.io": {"username": "other", "password": "x"}}})
    found = await NodeCredentials([tmp_path / "none", bad, good, third]).lookup("r.io/app")
    assert [(a.username, a.password, a.server_address) for a in found] == [("user", "pass:word", "")]


async def test_a_bad_file_is_reported_once_and_does_not_undo_what_helpers_said(
    tmp_path: Path, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "a.json"
    bad.write_text("{not json")
    good = write(tmp_path / "b.json", {"credsStore": "box"})
    helper(programs, "box", f"""echo x >> {tmp_path}/calls; echo '{{"Username":"u","Secret":"s"}}'""")
    credentials = NodeCredentials([bad, good])
    for _ in range(3):
        assert [a.username for a in await credentials.lookup("r.io/x")] == ["u"]
    assert (tmp_path / "calls").read_text() == "x\n"
    assert capsys.readouterr().out.count("cannot be read") == 1


async def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "config.json", {"auths": {"r.io": {"username": "a", "password": "1"}}})
    credentials = NodeCredentials([path])
    assert [a.username for a in await credentials.lookup("r.io/x")] == ["a"]
    write(path, {"auths": {"r.io": {"username": "longer", "password": "1"}}})
    assert [a.username for a in await credentials.lookup("r.io/x")] == ["longer"]
    path.unlink()
    assert await credentials.lookup("r.io/x") == []


async def test_the_old_format_and_tokens_are_understood(tmp_path: Path) -> None:
    path = write(
        tmp_path / ".dockercfg", {"r.io": {"identitytoken": "t"}, "x.io": {"auth": "***"}, "y.io": {}}
    )
    credentials = NodeCredentials([path])
    assert [a.identity_token for a in await credentials.lookup("r.io/x")] == ["t"]
    assert await credentials.lookup("x.io/x") == []
    assert await credentials.lookup("y.io/x") == []


async def test_helpers_are_asked_for_their_registry_and_the_store_for_the_rest(
    tmp_path: Path, programs: Path
) -> None:
    helper(programs, "one", 'read server; echo "{\\"Username\\":\\"u-$server\\",\\"Secret\\":\\"s\\"}"')
    helper(programs, "all", 'read server; echo "{\\"Username\\":\\"<token>\\",\\"Secret\\":\\"t-$server\\"}"')
    path = write(tmp_path / "config.json", {"credHelpers": {"r.io": "one"}, "credsStore": "all"})
    credentials = NodeCredentials([path])
    assert [a.username for a in await credentials.lookup("r.io/x")] == ["u-r.io"]
    assert [a.identity_token for a in await credentials.lookup("other.io/x")] == ["t-other.io"]


async def test_a_helper_that_fails_hangs_or_is_missing_is_passed_over(tmp_path: Path, programs: Path) -> None:
    helper(programs, "fails", "echo broken; exit 1")
    helper(programs, "none", "echo credentials not found in native keychain; exit 1")
    helper(programs, "hangs", "sleep 100")
    helper(programs, "babbles", "echo hello")
    names = ("fails", "none", "hangs", "babbles", "absent")
    path = write(tmp_path / "config.json", {"credHelpers": {f"{n}.io": n for n in names}})
    credentials = NodeCredentials([path], helper_seconds=0.1)
    for name in names:
        assert await credentials.lookup(f"{name}.io/x") == []


@pytest.mark.parametrize(("retry_seconds", "calls"), [(0.0, 2), (600.0, 1)])
@pytest.mark.parametrize("failure", [TimedOut("box did not end within 10 s"), Unavailable("no route")])
async def test_a_failure_of_a_helper_is_an_answer_only_for_a_short_time(
    tmp_path: Path,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: KubeletxError,
    retry_seconds: float,
    calls: int,
) -> None:
    run_program = AsyncMock(side_effect=[failure, failure])
    monkeypatch.setattr("kubeletx.runtimes.images.credentials.run_program", run_program)
    helper(programs, "box", "")
    path = write(tmp_path / "config.json", {"credsStore": "box"})
    credentials = NodeCredentials([path], retry_seconds=retry_seconds)
    for _ in range(2):
        assert await credentials.lookup("r.io/x") == []
    assert run_program.await_count == calls


def test_the_kubelets_places_in_its_order() -> None:
    paths = [str(p) for p in default_paths(Path("/root-dir"), {"HOME": "/home/me"})]
    assert paths == [
        "/root-dir/config.json",
        "config.json",
        "/home/me/.docker/config.json",
        "/.docker/config.json",
        "/root-dir/.dockercfg",
        ".dockercfg",
        "/home/me/.dockercfg",
        "/.dockercfg",
    ]


def test_a_pull_secret_is_read_the_same_way() -> None:
    data = json.dumps({"auths": {"r.io": {"username": "u", "password": "p"}}}).encode()
    assert [a.username for a in pull_secret_auths(data, "r.io/x")] == ["u"]
    assert pull_secret_auths(data, "other.io/x") == ()


@pytest.mark.parametrize(
    ("server", "image", "address"),
    [
        ("r.io", "r.io/x:1", ""),
        ("r.io", "oci:r.io/x:1", ""),
        ("r.io", "https://r.io/x", "https://r.io"),
        ("https://r.io", "r.io/x.QCOW2#sha256=00", "https://r.io"),
        ("*.r.io", "https://files.r.io/x", "https://files.r.io"),
        ("r.io:8080", "http://r.io:8080/x", "https://r.io:8080"),  # not sent: it was not given for http
        ("http://r.io:8080", "http://r.io:8080/x", "http://r.io:8080"),
    ],
)
def test_credentials_for_a_file_behind_a_url_name_its_server(server: str, image: str, address: str) -> None:
    data = json.dumps({"auths": {server: {"username": "u", "password": "p"}}}).encode()
    assert [one.server_address for one in pull_secret_auths(data, image)] == [address]
