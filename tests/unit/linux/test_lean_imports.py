"""aiohttp without the system's certificates, until a client needs them."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubeletx.server.access.self_signed import Pair, ensure_pair

GET = """
import asyncio, ssl, sys
from kubeletx.linux.lean_imports import import_aiohttp
import_aiohttp()
import aiohttp
from aiohttp import connector, web

CERTIFICATE, KEY = sys.argv[1:]

async def main():
    print(connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509"])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERTIFICATE, KEY)
    runner = web.ServerRunner(web.Server(lambda request: answer()))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server)
    await site.start()
    port = runner.addresses[0][1]
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"https://127.0.0.1:{port}/") as response:
                print(response.status)
        except aiohttp.ClientConnectorCertificateError:
            print("refused")
    await runner.cleanup()
    print(connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509"])
    print(type(ssl.create_default_context()).__name__)

async def answer():
    return web.Response()

asyncio.run(main())
"""


def pair_in(directory: Path) -> Pair:
    return ensure_pair(directory, "node", ("127.0.0.1",), datetime.now(UTC))


@pytest.mark.parametrize(
    ("trusted", "answer"), [(True, "200"), (False, "refused")], ids=["trusted", "untrusted"]
)
def test_a_client_reads_the_system_s_certificates_at_its_first_connection(
    tmp_path: Path, trusted: bool, answer: str
) -> None:
    served = pair_in(tmp_path / "served")
    known = served if trusted else pair_in(tmp_path / "other")
    done = subprocess.run(
        [sys.executable, "-c", GET, str(served.certificate), str(served.key)],
        env={**os.environ, "SSL_CERT_FILE": str(known.certificate), "SSL_CERT_DIR": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["0", answer, "1", "SSLContext"]
