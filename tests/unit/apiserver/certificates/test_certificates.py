"""Certificates of a node: asked for, kept in files, renewed, and the first of them by a bootstrap."""

from __future__ import annotations

import asyncio
import os
import random
import stat
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubeletx.api import InvalidConfig, PermissionDenied, SystemClock, TimedOut
from kubeletx.apiserver.certificates.bootstrap import KEY_FILE, Bootstrap, joined, kubeconfig_text
from kubeletx.apiserver.certificates.files import CLIENT, SERVER, CertificateFiles
from kubeletx.apiserver.certificates.key_pairs import KeyPair, Subject, new_key, parse_pair
from kubeletx.apiserver.certificates.request import obtain
from kubeletx.apiserver.certificates.rotation import CertificateRotation, Purpose
from kubeletx.kube.client import ClusterAccess, KubeClient, load_kubeconfig
from kubeletx.kube.client.resources import NODES
from kubeletx.kube.types.certificates import CLIENT_SIGNER, SERVING_SIGNER
from kubeletx.kube.types.node import Node, NodeList
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.waiting import let_others_work, until

GUARD_SECONDS = 60
NODE = "certified"
SUBJECT = Subject(node_name=NODE)
SERVING = Subject(node_name=NODE, dns_names=(NODE,), addresses=("192.0.2.7", "2001:db8::7"))
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def client_for(api: ApiServerDouble, kubeconfig: Path | None = None) -> KubeClient:
    return KubeClient(load_kubeconfig(kubeconfig or api.node_kubeconfig(NODE)), clock=SystemClock())


async def ask(api: ApiServerDouble, subject: Subject = SUBJECT, signer: str = CLIENT_SIGNER) -> KeyPair:
    client = client_for(api)
    usage = "client auth" if signer == CLIENT_SIGNER else "server auth"
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            return await obtain(
                client, new_key(), subject, signer=signer, usage=usage, clock=FakeClock(auto_advance=True)
            )
    finally:
        await client.close()


async def held_up(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def requests(api: ApiServerDouble) -> list[str]:
    return [one["metadata"]["name"] for one in api.admin.list("certificatesigningrequests")["items"]]


async def test_the_cluster_signs_a_client_certificate_of_the_node(api: ApiServerDouble) -> None:
    pair = await ask(api)
    assert pair.is_for(SUBJECT)
    assert pair.is_valid_at(datetime.now(UTC))


async def test_a_serving_certificate_has_the_nodes_names_and_addresses(api: ApiServerDouble) -> None:
    pair = await ask(api, SERVING, SERVING_SIGNER)
    assert pair.is_for(SERVING)
    assert not pair.is_for(Subject(node_name=NODE, dns_names=(NODE,), addresses=("192.0.2.8",)))


async def test_a_denied_request_is_an_error_that_says_why(api: ApiServerDouble) -> None:
    api.settings.auto_approve = False
    task = asyncio.create_task(ask(api))
    await until(lambda: requests(api))
    request = api.admin.get("certificatesigningrequests", requests(api)[0])
    denied = {"type": "Denied", "status": "True", "reason": "No", "message": "not this node"}
    api.admin.replace(
        "certificatesigningrequests", {**request, "status": {"conditions": [denied]}}, "approval"
    )
    with pytest.raises(PermissionDenied, match="denied: not this node"):
        await task


async def test_no_one_approves_and_the_error_says_how(api: ApiServerDouble) -> None:
    api.settings.auto_approve = False
    with pytest.raises(TimedOut, match="kubectl certificate approve node-csr-"):
        await ask(api)


async def test_files_are_for_their_owner_only_and_a_link_names_the_newest(
    api: ApiServerDouble, tmp_path: Path
) -> None:
    files = CertificateFiles(tmp_path / "pki", CLIENT)
    assert files.load() is None
    first, second = await ask(api), await ask(api)
    files.store(first, NOW)
    files.store(second, NOW + timedelta(days=1))
    assert files.load() == second
    assert os.readlink(files.current) == "kubelet-client-2030-01-02-00-00-00.pem"
    modes = {stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "pki").glob("*.pem")}
    assert modes == {0o600}


async def test_a_certificate_with_another_key_is_refused(api: ApiServerDouble) -> None:
    pair = await ask(api)
    certificate = pair.pem[: pair.pem.index(b"-----BEGIN EC")]
    with pytest.raises(InvalidConfig, match="belongs to another key"):
        parse_pair(certificate + new_key(), "somewhere")


def test_a_file_that_is_cut_short_counts_as_none(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path, SERVER)
    files.current.write_text("-----BEGIN CERTIFICATE-----\nMIIB")
    assert files.load() is None


@pytest.mark.parametrize(("draw", "share"), [(0.0, 0.7), (0.5, 0.8), (1.0, 0.9)])
def test_renewal_is_due_between_70_and_90_percent_of_the_life(draw: float, share: float) -> None:
    life = timedelta(days=100)
    pair = KeyPair(pem=b"", common_name="c", not_before=NOW, not_after=NOW + life)
    assert abs(pair.rotate_at(draw) - (NOW + life * share)) < timedelta(seconds=1)


def test_no_key_is_shown() -> None:
    pair = KeyPair(pem=b"SECRET", common_name="c", not_before=NOW, not_after=NOW)
    assert "SECRET" not in repr(pair)


def rotation(
    api: ApiServerDouble,
    files: CertificateFiles,
    clock: FakeClock,
    client: KubeClient,
    subject: Callable[[], Subject] = lambda: SUBJECT,
    *,
    when_expired: Callable[[], Awaitable[None]] | None = None,
) -> CertificateRotation:
    is_serving = files.current.name.startswith(SERVER)
    purpose = Purpose(
        name="test",
        signer=SERVING_SIGNER if is_serving else CLIENT_SIGNER,
        usage="server auth" if is_serving else "client auth",
    )
    return CertificateRotation(
        client, files, subject, purpose=purpose, clock=clock, when_expired=when_expired, draw=random.Random(1)
    )


async def test_a_certificate_is_renewed_when_its_time_comes_and_not_before(
    api: ApiServerDouble, tmp_path: Path
) -> None:
    api.settings.certificate_seconds = 100_000
    files, clock = CertificateFiles(tmp_path, CLIENT), FakeClock(start=datetime.now(UTC))
    client = client_for(api)
    made = rotation(api, files, clock, client)
    task = asyncio.create_task(made.run())
    try:
        await until(files.load)
        first = files.load()
        assert first is not None
        clock.jump(60_000)
        await clock.run_for(130.0)
        assert len(requests(api)) == 1
        assert made.ttl_seconds is not None
        assert 39_000 < made.ttl_seconds < 40_000
        clock.jump(30_000)
        await clock.run_for(70.0)
        await until(lambda: files.load() != first)
        assert sum(made.lives.counts) == 1
        assert made.lives.sum_seconds > 70_000
    finally:
        await held_up(task)
        await client.close()


async def test_another_address_makes_another_serving_certificate(
    api: ApiServerDouble, tmp_path: Path
) -> None:
    files, clock = CertificateFiles(tmp_path, SERVER), FakeClock(start=datetime.now(UTC))
    client, subjects = client_for(api), [SERVING]
    task = asyncio.create_task(rotation(api, files, clock, client, lambda: subjects[-1]).run())
    try:
        await until(files.load)
        subjects.append(Subject(node_name=NODE, dns_names=(NODE,), addresses=("192.0.2.99",)))
        await clock.run_for(70.0)
        await until(lambda: (pair := files.load()) is not None and pair.is_for(subjects[-1]))
    finally:
        await held_up(task)
        await client.close()


async def test_an_expired_certificate_is_replaced_by_a_bootstrap(
    api: ApiServerDouble, tmp_path: Path
) -> None:
    files = CertificateFiles(tmp_path, CLIENT)
    old = await ask(api)
    files.store(old, NOW)
    clock = FakeClock(start=old.not_after + timedelta(hours=1))
    asked = asyncio.Event()

    async def again() -> None:
        asked.set()

    client = client_for(api)
    task = asyncio.create_task(rotation(api, files, clock, client, when_expired=again).run())
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            await asked.wait()
    finally:
        await held_up(task)
        await client.close()


@pytest.mark.parametrize("days_ahead", [0.7, 30])
async def test_by_a_clock_that_is_ahead_certificates_are_not_asked_for_without_end(
    api: ApiServerDouble, tmp_path: Path, days_ahead: float
) -> None:
    api.settings.certificate_seconds = 80_000
    clock = FakeClock(start=datetime.now(UTC) + timedelta(days=days_ahead))
    files, client = CertificateFiles(tmp_path, CLIENT), client_for(api)
    task = asyncio.create_task(rotation(api, files, clock, client).run())
    try:
        await until(files.load)
        for _ in range(60):  # ten minutes by that clock
            await clock.run_for(10.0)
            await let_others_work()
        assert len(requests(api)) <= 9
        clock.jump(-days_ahead * 86_400)  # it was put right
        for _ in range(30):
            await clock.run_for(10.0)
            await let_others_work()
        settled = len(requests(api))
        await clock.run_for(600.0)
        assert len(requests(api)) == settled
    finally:
        await held_up(task)
        await client.close()


async def test_a_bootstrap_ends_when_the_clock_says_again_that_the_certificate_is_good(
    api: ApiServerDouble, tmp_path: Path
) -> None:
    first, files, kubeconfig = bootstrap(api, tmp_path)
    async with asyncio.timeout(GUARD_SECONDS):
        await first.run()
    clock = FakeClock(start=datetime.now(UTC) + timedelta(days=30))

    def over() -> ClusterAccess:
        raise PermissionDenied("the bootstrap token is over")

    again = Bootstrap(over, SUBJECT, files=files, kubeconfig=kubeconfig, clock=clock)
    task = asyncio.create_task(again.run())
    await clock.run_for(100.0)
    assert not task.done()
    clock.jump(-30 * 86_400)
    await clock.run_for(100.0)
    async with asyncio.timeout(GUARD_SECONDS):
        await task


def bootstrap(api: ApiServerDouble, root: Path) -> tuple[Bootstrap, CertificateFiles, Path]:
    token = api.bootstrap_kubeconfig()
    files, kubeconfig = CertificateFiles(root / "pki", CLIENT), root / "kubeconfig"
    clock = SystemClock()
    made = Bootstrap(lambda: load_kubeconfig(token), SUBJECT, files=files, kubeconfig=kubeconfig, clock=clock)
    return made, files, kubeconfig


async def test_a_bootstrap_ends_with_a_kubeconfig_that_works(api: ApiServerDouble, tmp_path: Path) -> None:
    made, files, kubeconfig = bootstrap(api, tmp_path)
    async with asyncio.timeout(GUARD_SECONDS):
        await made.run()
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600
    assert load_kubeconfig(kubeconfig).certificate == files.current
    assert not (tmp_path / "pki" / KEY_FILE).exists()
    assert "token" not in kubeconfig.read_text()
    client = client_for(api, kubeconfig)
    try:
        found = await client.create(NODES.path(), {"metadata": {"name": NODE}}, Node)
    finally:
        await client.close()
    assert found.metadata.name == NODE


async def test_an_agent_that_starts_again_does_not_ask_twice(api: ApiServerDouble, tmp_path: Path) -> None:
    api.settings.auto_approve = False
    made, _, _ = bootstrap(api, tmp_path)
    task = asyncio.create_task(made.run())
    await until(lambda: requests(api))
    await held_up(task)
    made, files, _ = bootstrap(api, tmp_path)
    task = asyncio.create_task(made.run())
    (name,) = requests(api)
    request = api.admin.get("certificatesigningrequests", name)
    approved = {"type": "Approved", "status": "True", "reason": "Yes", "message": ""}
    api.admin.replace(
        "certificatesigningrequests", {**request, "status": {"conditions": [approved]}}, "approval"
    )
    async with asyncio.timeout(GUARD_SECONDS):
        await task
    assert files.load() is not None
    assert requests(api) == [name]


async def test_a_running_client_uses_the_new_certificate(api: ApiServerDouble, tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path, CLIENT)
    files.store(await ask(api), NOW)
    clock = FakeClock()
    client = KubeClient(joined(load_kubeconfig(api.node_kubeconfig(NODE)), files.current), clock=clock)
    try:
        await client.get(NODES.path(), NodeList, params={"fieldSelector": f"metadata.name={NODE}"})
        newer = await ask(api)
        files.store(newer, NOW + timedelta(days=1))
        before = client._connections.credentials.tls
        await clock.run_for(11.0)
        await client.get(NODES.path(), NodeList, params={"fieldSelector": f"metadata.name={NODE}"})
        assert client._connections.credentials.tls is not before
    finally:
        await client.close()


def test_the_kubeconfig_says_everything_about_the_cluster(tmp_path: Path) -> None:
    access = ClusterAccess(
        server="https://api.example:6443",
        ca=b"PEM",
        tls_server_name="api",
        proxy_url="http://p:1",
        token="secret",
    )
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig_text(joined(access, tmp_path / "c.pem")))
    read = load_kubeconfig(path)
    assert (read.server, read.ca, read.tls_server_name, read.proxy_url) == (
        "https://api.example:6443",
        b"PEM",
        "api",
        "http://p:1",
    )
    assert (read.token, read.certificate, read.key) == ("", tmp_path / "c.pem", tmp_path / "c.pem")
