"""The client of the cluster that the command line names."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kubeletx.api import Clock, SystemClock
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.kube.client.access import service_account_access


def client_of(options: argparse.Namespace, clock: Clock) -> KubeClient:
    """Return a client: by --kubeconfig, by $KUBECONFIG, or as the service account of this process's pod."""
    path = options.kubeconfig or os.environ.get("KUBECONFIG")
    access = load_kubeconfig(Path(path)) if path else service_account_access()
    return KubeClient(access, clock=clock, user_agent="kubeletx-remedy")


@asynccontextmanager
async def open_client(options: argparse.Namespace) -> AsyncIterator[KubeClient]:
    """Yield a client for one verb."""
    client = client_of(options, SystemClock())
    try:
        yield client
    finally:
        await client.close()
