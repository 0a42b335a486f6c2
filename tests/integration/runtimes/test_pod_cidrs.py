"""containerd makes its CNI configuration from a template and the pod CIDR that it gets through CRI."""

from __future__ import annotations

import json
from pathlib import Path

from kubeletx.api import SupportsNetworkConfig
from kubeletx.cri import ContainerdRuntime
from kubeletx.testing import FakeClock, FakeHost, endpoint
from kubeletx_testing.lab import Lab, PrivateContainerd

TEMPLATE = """{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "ipam": {
 "type": "host-local", "ranges": [{{range $i, $range := .PodCIDRRanges}}{{if $i}}, {{end}}[{"subnet": "{{$range}}"}]{{end}}]}}]}
"""


class TemplatedContainerd(PrivateContainerd):
    """A containerd without a CNI configuration, with a template for one."""

    def config(self) -> str:
        bin_dir = f'    bin_dir = "{self.cni_bin_dir}"\n'
        template = self.directory / "cni.template"
        template.write_text(TEMPLATE)
        return super().config().replace(bin_dir, f'{bin_dir}    conf_template = "{template}"\n')


async def test_containerd_makes_its_network_of_the_ranges_of_pods(lab: Lab, tmp_path: Path) -> None:
    conf_dir = tmp_path / "net.d"
    conf_dir.mkdir()
    with TemplatedContainerd(
        "containerd-t",
        lab.base_dir,
        cni_conf_dir=conf_dir,
        cni_bin_dir=lab.network.bin_dir,
        registry_address=lab.registry.address,
    ) as daemon:
        host = FakeHost(tmp_path, clock=FakeClock(auto_advance=True))
        runtime = ContainerdRuntime(endpoint(daemon.endpoint), None, host)
        await runtime.open()
        try:
            assert not (await runtime.health()).network_ready
            network = runtime.capability(SupportsNetworkConfig)
            assert network is not None
            await network.set_pod_cidrs(["192.0.2.0/24", "2001:db8:1::/64"])
            (made,) = conf_dir.iterdir()
            (plugin,) = json.loads(made.read_text())["plugins"]
            subnets = [one["subnet"] for (one,) in plugin["ipam"]["ranges"]]
            assert subnets == ["192.0.2.0/24", "2001:db8:1::/64"]
        finally:
            await runtime.close()
