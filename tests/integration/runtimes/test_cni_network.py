"""The pod network with the real bridge and host-local plugins, in namespaces of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from kubeletx_testing.lab.tools import get_cni_bin_dir


def test_pods_get_their_own_addresses_reach_each_other_and_give_them_back(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "support" / "cni_pods.py"
    inside = (
        f"mount -t tmpfs tmpfs /run && exec {sys.executable} -W error {script} {tmp_path} {get_cni_bin_dir()}"
    )
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", inside],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert len(set(seen["ips"])) == 6
    assert all(address.startswith("10.99.0.") for address in seen["ips"])
    assert seen["same"]
    assert seen["reached"]
    assert seen["checked"]
    assert not seen["damaged"]
    assert seen["left"] == []
    assert seen["journal"] == []
