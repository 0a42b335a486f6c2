"""The walks, each from the first command to the first success and to an end that leaves nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.lab import LabError, image_ref
from kubeletx_testing.lab.machines import load_machine_image
from script.demonstration import machine

from .quickstart import ROOT, read_steps
from .walk import LIMIT_SECONDS, Walk

_STEPS: Final = read_steps()
_ANSWER: Final = "hello\n"
_DISK: Final = "/var/lib/libvirt/images/debian-12-generic-amd64.qcow2"
_POD_OF_PLUGIN: Final = """\
apiVersion: v1
kind: Pod
metadata: {name: first}
spec:
  runtimeServiceName: tea
  hostNetwork: true
  containers:
    - {name: main, image: none, command: [sh, -c, "while :; do sleep 1; done"]}
"""


def operator(walk: Walk) -> None:
    """An operator of one box: install, set up, doctor, first pod, look inside, delete, remove all."""
    walk.say("building the packages")
    walk.run(f"{ROOT}/script/package --out $PWD/dist >/dev/null 2>&1")
    node = walk.directory / "node"
    (node / "usr/bin").mkdir(parents=True)
    (node / "usr/bin/containerd").touch()
    walk.begin()
    walk.run(f"{sys.executable} -m venv venv")
    walk.run("venv/bin/pip install --quiet 'kubeletx[containerd,quark]' --find-links dist")
    walk.program = walk.directory / "venv/bin/kubeletx"
    walk.expect("write  /etc/kubeletx/config.yaml", walk.run("kubeletx setup --root node"))
    network = walk.lab.network
    settings = node / "etc/kubeletx/config.yaml"
    private = walk.directory / "config.yaml"
    private.write_text(
        settings.read_text()
        .replace("unix:///run/containerd/containerd.sock", walk.endpoint)
        .replace("/etc/kubeletx/manifests", str(node / "etc/kubeletx/manifests"))
        + f"  cniConfDir: {network.conf_dir}\n  cniBinDir: {network.bin_dir}\n"
    )
    with walk.agent(f"--config={private}", endpoints=None):
        walk.say(walk.run(f"kubeletx doctor --config {private} || true"))
        walk.follow(_STEPS[4])
        walk.expect(_ANSWER, walk.follow(_STEPS[5]))
        walk.succeed("the pod answers")
        walk.follow(_STEPS[9])
    walk.run("kubeletx setup --root node --remove")
    left = [path for path in node.rglob("*") if path.name != "containerd" and not path.is_dir()]
    if left:
        raise LabError(f"setup --remove left {left}")


def cluster(walk: Walk) -> None:
    """A cluster administrator: the node joins with a bootstrap token, and gets a pod of the API server."""
    with ApiServerDouble(walk.directory / "api") as api:
        walk.begin()
        flags = (
            f"--bootstrap-kubeconfig={api.bootstrap_kubeconfig()}",
            f"--kubeconfig={walk.directory / 'kubelet.conf'}",
        )
        with walk.agent(*flags, node_name="node") as agent:
            _until(walk, "node Ready", lambda: _is_ready(api.admin.list("nodes")))
            pod = yaml.safe_load(_STEPS[4].files["web.yaml"])
            pod["spec"]["nodeName"] = "node"
            pod["spec"]["containers"][0]["image"] = image_ref("busybox")
            walk.say("the administrator creates pod web in the cluster")
            api.admin.create("pods", pod, namespace="default")
            _until(walk, "web Ready", lambda: _is_ready(api.admin.list("pods")))
            walk.expect("web", walk.run("kubeletx get pods -o wide"))
            walk.succeed("the cluster shows the pod as Ready")
            api.admin.delete("pods", "web", namespace="default")
            agent.wait_gone("web")


def virtual_machine(walk: Walk) -> None:
    """A user of libvirt: the first machine, which is emulated, its console and its address."""
    walk.say("making the guest's disk, if the cache has none")
    image = load_machine_image()
    settings = walk.directory / "config.json"
    settings.write_text(machine.settings(image))
    walk.replaced[_DISK] = machine.ALIAS
    walk.begin()
    with walk.agent(f"--config={settings}", endpoints=[machine.endpoint(walk.lab, image.parent)]) as agent:
        step = _STEPS[6]
        address = walk.follow(step._replace(commands=step.commands[:-1])).splitlines()[-1]
        machine.wait_booted(agent, "first", lambda _line: None)
        walk.type(step.commands[-1], "\n", "login:")
        walk.expect("first", machine.ask(address))
        walk.succeed(f"the machine answers at {address}")
        walk.follow(_STEPS[9])


def frozen(walk: Walk) -> None:
    """An engineer who wants frozen pods: quickstart 4, 5, 7 and 9 as written."""
    walk.begin()
    with walk.agent() as agent:
        walk.follow(_STEPS[4])
        walk.expect(_ANSWER, walk.follow(_STEPS[5]))
        output = walk.follow(_STEPS[7])
        walk.expect("Hibernated since", output)
        walk.expect(_ANSWER, output)
        walk.succeed("the hibernated pod answers")
        walk.follow(_STEPS[9])
        if agent.pods():
            raise LabError(f"left: {agent.pods()}")


def plugin(walk: Walk) -> None:
    """An author of a plugin: new, install, check, and a pod on the new runtime."""
    walk.run(f"{sys.executable} -m venv --without-pip venv")
    walk.program = _share_environment(walk)
    walk.begin()
    with walk.agent():
        walk.run("kubeletx plugin new tea")
        walk.run("kubeletx plugin install kubeletx-tea")
        walk.expect("contract of runtime/tea", walk.run("kubeletx plugin check kubeletx-tea"))
        walk.run("kubeletx runtime reload")
        walk.run("kubeletx runtime add container:tea:tea:///")
        (walk.directory / "first.yaml").write_text(_POD_OF_PLUGIN)
        walk.run("kubeletx apply -f first.yaml")
        walk.run("kubeletx wait pod/first --for=condition=Ready")
        walk.expect("hello", walk.run("kubeletx exec first -- echo hello"))
        walk.succeed("a pod runs on the new runtime")


WALKS: Final[dict[str, Callable[[Walk], None]]] = {
    "operator": operator,
    "cluster": cluster,
    "machine": virtual_machine,
    "frozen": frozen,
    "plugin": plugin,
}


def _share_environment(walk: Walk) -> Path:
    """Let the walk's environment see the packages of this one, and return its command."""
    (site,) = (walk.directory / "venv/lib").glob("python3*/site-packages")
    (here,) = [path for path in sys.path if path.startswith(sys.prefix) and path.endswith("site-packages")]
    (site / "shared.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    program = walk.directory / "venv/bin/kubeletx"
    program.write_text(f"#!{walk.directory}/venv/bin/python\nfrom kubeletx.cli import start\nstart()\n")
    program.chmod(0o755)
    return program


def _until(walk: Walk, what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise LabError(f"{walk.name}: not within {LIMIT_SECONDS} s: {what}")
        time.sleep(0.1)


def _is_ready(listed: dict[str, Any]) -> bool:
    """Return True if a list of the API has objects, and each has condition Ready."""
    conditions = [one.get("status", {}).get("conditions", []) for one in listed["items"]]
    ready = [
        {"type": "Ready", "status": "True"}.items() <= one.items() for each in conditions for one in each
    ]
    return bool(conditions) and sum(ready) == len(conditions)
