"""Applications of many pods in one process of the node: the SDK with the certificate of each pod.

python -m script.benchmarks.session_apps AGENT_ROOT POD_UID=NAMESPACE/NAME...
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kubeletx_session import AsyncSessionClient, Session, Settings


async def _opened(_session: Session) -> None:
    """Accept every session at once."""


async def main(root: Path, pods: dict[str, str]) -> None:
    """Serve the sessions of these pods, identifiers by UID, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for uid, pod_id in pods.items():
            settings = Settings(
                directory=root / "pods" / uid / "session",
                service=f"unix://{root}/sessions/socket/session.sock",
                pod_id=pod_id,
                longest_pause_seconds=0.5,
            )
            group.create_task(AsyncSessionClient(_opened, settings=settings).start(), name=pod_id)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), dict(one.split("=", 1) for one in sys.argv[2:])))
