"""Run inside a private network and mount namespace by test_cni_network: attach pods with real CNI plugins.

Writes one JSON object with what was seen to DIR/seen.json. Nothing outlives the namespaces.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from kubeletx.api import PodUid, SystemClock
from kubeletx.runtimes.cni import CniPodNetwork

CONFIG = {
    "name": "kxtest",
    "cniVersion": "1.0.0",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "kxtest0",
            "isGateway": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]]},
        }
    ],
}


def ip(*args: str) -> str:
    return subprocess.run(["ip", *args], check=True, capture_output=True, text=True).stdout


def connects(client: str, server: str, address: str) -> bool:
    """Whether a process in the one pod reaches a listener in the other."""
    listen = "import socket; s = socket.create_server(('', 9999)); print('up', flush=True); s.accept()"
    with subprocess.Popen(
        ["ip", "netns", "exec", server, sys.executable, "-c", listen], stdout=subprocess.PIPE
    ) as listener:
        assert listener.stdout is not None
        listener.stdout.readline()
        connect = f"import socket; socket.create_connection(({address!r}, 9999), 3)"
        done = subprocess.run(
            ["ip", "netns", "exec", client, sys.executable, "-c", connect], check=False, timeout=20
        )
        if done.returncode != 0:
            listener.kill()
    return done.returncode == 0


def make(root: Path) -> CniPodNetwork:
    return CniPodNetwork(
        conf_dir=root / "net.d",
        bin_dirs=[Path(sys.argv[2])],
        state_dir=root / "state",
        owner="test",
        clock=SystemClock(),
    )


async def main(root: Path) -> dict[str, object]:
    ip("link", "set", "lo", "up")
    (root / "net.d").mkdir()
    CONFIG["plugins"][0]["ipam"]["dataDir"] = str(root / "ipam")  # type: ignore[index]
    (root / "net.d" / "10-test.conflist").write_text(json.dumps(CONFIG))
    network = make(root)
    uids = [PodUid(f"pod-{number}") for number in range(6)]
    for uid in uids:
        ip("netns", "add", uid)
    # The first pod alone: a bridge without an address takes the lowest MAC of its ports. Of plugins that run at that moment,
    # `bridge` reports a MAC that its own CHECK does not find later (v1.1.1).
    first = await network.add(uids[0], uids[0], "default", f"/run/netns/{uids[0]}", [])
    others = (network.add(uid, uid, "default", f"/run/netns/{uid}", []) for uid in uids[1:])
    addresses = [first, *await asyncio.gather(*others)]
    again = await make(root).add(uids[0], uids[0], "default", f"/run/netns/{uids[0]}", [])
    target = addresses[1].ips[0].partition("/")[0]
    reached = connects(uids[0], uids[1], target)
    checked = await network.check(uids[0])
    ip("netns", "exec", uids[2], "ip", "link", "del", "eth0")
    damaged = await network.check(uids[2])
    ip("netns", "del", uids[3])
    for uid in uids:
        await network.delete(uid)
    left = [path.name for path in (root / "ipam" / "kxtest").iterdir() if path.name.startswith("10.")]
    return {
        "ips": [a.ips[0] for a in addresses],
        "same": again == addresses[0],
        "reached": reached,
        "checked": checked,
        "damaged": damaged,
        "left": left,
        "journal": [path.name for path in (root / "state").iterdir()],
    }


(Path(sys.argv[1]) / "seen.json").write_text(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
