"""Files and programs that credentials come from, while they change."""

from __future__ import annotations

import base64
import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kubeletx.api import InvalidConfig, PermissionDenied
from kubeletx.kube.client import ClusterAccess
from kubeletx.kube.client.access import ExecCredential
from kubeletx.kube.client.credentials import LOOK_AGAIN_SECONDS, ClientCredentials
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import CertificateAuthority
from kubeletx_testing.apiserver.ca import encrypt_key

SERVER = "https://127.0.0.1:1"
NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Reader:
    """Credentials and the clock that they look at."""

    def __init__(self, **access: object) -> None:
        self.clock = FakeClock(start=NOW)
        self.credentials = ClientCredentials(ClusterAccess(server=SERVER, **access), self.clock)  # type: ignore[arg-type]

    async def later(self, seconds: float = LOOK_AGAIN_SECONDS) -> str:
        """What a request carries after so long."""
        self.clock.advance(seconds)
        await self.credentials.refresh()
        return self.credentials.headers.get("Authorization", "")


async def test_a_token_that_changes_is_read_again_and_at_once_after_a_refusal(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    reader = Reader(token_file=token)
    assert await reader.later() == "Bearer one"
    token.write_text("three")
    assert await reader.later(1) == "Bearer one", "not at each request"
    assert await reader.later() == "Bearer three"
    token.write_text("4444")
    reader.credentials.forget()
    assert await reader.later(0) == "Bearer 4444"


async def test_a_token_behind_a_link_that_is_swapped_is_read_again(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(name)
    link = tmp_path / "..data"
    link.symlink_to("first")
    reader = Reader(token_file=link / "token")
    assert await reader.later() == "Bearer first"
    other = tmp_path / "tmp"
    other.symlink_to("second")
    other.replace(link)
    assert await reader.later() == "Bearer second"


@pytest.mark.parametrize("bad", [None, b"", b" \n", b"\xff\xfe", b"one\ntwo"])
async def test_a_token_that_is_gone_or_none_leaves_the_last_one(tmp_path: Path, bad: bytes | None) -> None:
    token = tmp_path / "token"
    token.write_text("good")
    reader = Reader(token_file=token)
    assert await reader.later() == "Bearer good"
    if bad is None:
        token.unlink()
    else:
        token.write_bytes(bad)
    with capture_logs() as logs:
        for _ in range(3):
            assert await reader.later() == "Bearer good", "nobody becomes anonymous by a bad file"
    assert [one["event"] for one in logs] == ["Kept the credentials; the new ones cannot be used"]
    assert "good" not in str(logs)
    token.write_text("better")
    assert await reader.later() == "Bearer better"


async def test_without_any_good_token_nothing_is_sent(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch()
    with pytest.raises(InvalidConfig, match="holds no token"):
        await Reader(token_file=token).later()


async def test_a_certificate_that_is_half_written_leaves_the_last_one(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    pair = authority.client("system:node:one", ["system:nodes"])
    reader = Reader(ca=authority.ca_file, certificate=pair.cert_file, key=pair.key_file)
    await reader.later()
    first = reader.credentials.tls
    whole = pair.cert_file.read_bytes()
    pair.cert_file.write_bytes(whole[:100])
    await reader.later()
    assert reader.credentials.tls is first
    authority.client("system:node:one", ["system:nodes"])  # certificate and key are others now
    await reader.later()
    assert reader.credentials.tls is not first


async def test_a_refusal_alone_makes_no_new_connections(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    pair = authority.client("system:node:one", ["system:nodes"])
    reader = Reader(ca=authority.ca_file, certificate=pair.cert_file, key=pair.key_file)
    await reader.later()
    first = reader.credentials.tls
    reader.credentials.forget()
    await reader.later(0)
    assert reader.credentials.tls is first
    authority.client("system:node:one", ["system:nodes"])
    reader.credentials.forget()
    await reader.later(0)
    assert reader.credentials.tls is not first


async def test_a_key_with_a_passphrase_is_refused_and_no_one_is_asked(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    pair = authority.client("system:node:one", ["system:nodes"])
    encrypt_key(pair.key_file)
    reader = Reader(ca=authority.ca_file, certificate=pair.cert_file, key=pair.key_file)
    with pytest.raises(InvalidConfig, match=r"does not hold a certificate and its key, without a passphrase"):
        await reader.later()


PROGRAM = """#!/bin/sh
echo run >> {log}
printf '{{"status": {{"token": "t", "expirationTimestamp": "%s"}}}}' {until}
"""


@pytest.mark.parametrize("ahead", [timedelta(), timedelta(hours=2)])
async def test_a_program_is_not_run_for_each_request_whatever_the_clock_says(
    tmp_path: Path, ahead: timedelta
) -> None:
    log, program = tmp_path / "log", tmp_path / "program"
    until = NOW - ahead + timedelta(hours=1)
    program.write_text(PROGRAM.format(log=log, until=until.strftime("%Y-%m-%dT%H:%M:%SZ")))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    reader = Reader(exec=ExecCredential(command=str(program)))
    for _ in range(5):
        assert await reader.later(1) == "Bearer t"
    assert log.read_text().count("run") == 1
    await reader.later(LOOK_AGAIN_SECONDS)
    assert log.read_text().count("run") == (2 if ahead else 1)
    reader.credentials.forget()
    await reader.later(0)
    assert log.read_text().count("run") == (3 if ahead else 2)


async def test_a_program_that_fails_is_reported_without_what_it_printed(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho s3cret\necho no luck >&2\nexit 3\n")
    program.chmod(0o700)
    with pytest.raises(PermissionDenied, match="ended with 3: no luck") as caught:
        await Reader(exec=ExecCredential(command=str(program))).later()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("is_reported", [False, True])
async def test_a_program_hears_of_the_cluster_when_it_is_to(tmp_path: Path, is_reported: bool) -> None:
    authority = CertificateAuthority(tmp_path)
    program, heard = tmp_path / "program", tmp_path / "heard"
    program.write_text(
        f"""#!/bin/sh\nprintf %s "$KUBERNETES_EXEC_INFO" > {heard}\nprintf '{{"status": {{"token": "t"}}}}'\n"""
    )
    program.chmod(0o700)
    asked = ExecCredential(
        command=str(program), is_told_cluster=is_reported, cluster_config={"audience": "a"}
    )
    assert await Reader(exec=asked, ca=authority.ca_file).later() == "Bearer t"
    data = base64.b64encode(authority.ca_file.read_bytes()).decode()
    cluster = {"server": SERVER, "certificate-authority-data": data, "config": {"audience": "a"}}
    spec = {"interactive": False, **({"cluster": cluster} if is_reported else {})}
    assert json.loads(heard.read_text())["spec"] == spec


async def test_a_token_that_no_header_may_carry_is_refused_without_showing_it(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("""#!/bin/sh\nprintf '{"status": {"token": "s3cret\\\\nX-Evil: 1"}}'\n""")
    program.chmod(0o700)
    with pytest.raises(PermissionDenied, match="printed a token that is not one line") as caught:
        await Reader(exec=ExecCredential(command=str(program))).later()
    assert "s3cret" not in str(caught.value)
