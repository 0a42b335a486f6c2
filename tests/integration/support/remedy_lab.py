"""A cluster for node remedy: an API server, nodes whose machines are status files of fence_dummy, and the real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from kubeletx_testing.apiserver import ApiServerDouble, Grant, write_kubeconfig
from kubeletx_testing.waiting import block_until
from tests.integration.support.clusters import ApiServer

Json = dict[str, Any]
ROOT = Path(__file__).parents[3]
IDENTITY = "kubeletx-remedy"
SETTINGS = {"power_wait": "1", "quiet_time": "1", "settle_time": "30", "retry_wait": "1"}
READY_FENCE = """
apiVersion: node-remedy/v1alpha
kind: Configuration
thresholdConfigs:
- nodeConditionType: Ready
  nodeConditionStatus: false
  nodeConditionPeriod: 1s
  remedy1: {name: fence}
"""
_SLOW_AGENT = """#!/bin/sh
while read -r line; do
    case "$line" in
    action=*) action="${line#action=}";; status_file=*) file="${line#status_file=}";; password=*) word="${line#password=}";;
    esac
done
case "$action" in
metadata) cat <<'XML'
<?xml version="1.0"?>
<resource-agent name="fence_slow" shortdesc="slow">
<parameters>
<parameter name="action" required="1"><content type="string" default="reboot"/></parameter>
<parameter name="status_file" required="1"><content type="string"/></parameter>
<parameter name="password" required="0"><content type="string"/></parameter>
</parameters>
<actions><action name="on"/><action name="off"/><action name="reboot"/><action name="status"/></actions>
</resource-agent>
XML
;;
status) if [ "$(cat "$file")" = on ]; then echo "Status: ON"; else echo "Status: OFF"; exit 2; fi;;
on|off) echo "$action" >>RECORD; env >>RECORD.seen; tr '\\0' ' ' </proc/$$/cmdline >>RECORD.seen
    sleep 1; printf %s "$action" >"$file"; echo "Powered $action with $word";;
esac
"""


class RemedyLab:
    """Nodes of an API server, and their machines. `agents`: directory of fence agents."""

    def __init__(self, api: ApiServer, directory: Path, agents: Path = Path("/usr/sbin")) -> None:
        self.api = api
        self.directory = directory
        self.agents = agents
        self.config = directory / "remedy.yaml"
        self.log = directory / "remedy.log"
        self.kubeconfig = deployed_identity(api, directory)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.power_agent = "fence_dummy"
        self._documents = [READY_FENCE]
        self.settings(**SETTINGS)

    # --- the cluster ---

    def add_node(self, name: str, *, config: str = "", more: str = "", **labels: str) -> None:
        """Add a ready node whose machine is on. `config`: config.properties; empty: off and on. `more`: properties of both."""
        self.machine(name).write_text("on")
        made = self.api.admin.create(
            "nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        )
        self._set_status(made, "True", "boot 1")
        power = f"agent={self.power_agent}\nstatus_file={self.machine(name)}\n{more}"
        data = {
            "config.properties": config
            or f"node_name={name}\nisolation=mark-unschedulable\npower_management=off on\nrecovery=mark-schedulable\n",
            "fence-method-off": f"{power}action=off\ndeadline=5s\n",
            "fence-method-on": f"{power}action=on\ndeadline=5s\n",
        }
        self.config_map(f"fence-config-{name}", data)

    def machine(self, name: str) -> Path:
        """Return the status file of a node's machine: ``on`` or ``off``."""
        return self.directory / f"{name}.power"

    def node(self, name: str) -> Json:
        return self.api.admin.get("nodes", name)

    def seen(self) -> str:
        """Return all that others can see: environment and command line of `slow_agent`, the log, events and records."""
        objects = (
            self.api.admin.send("GET", path).body.decode()
            for path in ("/api/v1/events", "/apis/ha.k8s.io/v1/nodefences")
        )
        return "\n".join(((self.directory / "actions.seen").read_text(), self.log.read_text(), *objects))

    def ready(self, name: str, status: str, boot_id: str = "boot 1") -> None:
        """Give the node's Ready condition another status now."""
        self._set_status(self.node(name), status, boot_id)

    def add_pod(self, name: str, node: str, **metadata: Any) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **metadata},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "busybox"}]},
        }
        self.api.admin.create("pods", pod, "default")

    def pods(self, node: str) -> list[str]:
        items = self.api.admin.list("pods", "default")["items"]
        return sorted(item["metadata"]["name"] for item in items if item["spec"].get("nodeName") == node)

    def fence(self, node: str) -> Json:
        """Return the node's NodeFence; empty if it has none."""
        reply = self.api.admin.send("GET", f"/apis/ha.k8s.io/v1/nodefences/node-fence-{node}")
        return reply.json if reply.code == 200 else {}

    def state(self, node: str) -> str:
        fence = self.fence(node)
        return f"{fence['step']}/{fence['flow']['status']}" if fence else ""  # field status is written later

    def await_state(self, node: str, state: str) -> None:
        block_until(lambda: self.state(node) == state)

    def slow_agent(self) -> None:
        """Use an agent that takes a second to switch and records what it is asked to do; see `actions`."""
        self.agents, self.power_agent = self.directory, "fence_slow"
        path = self.directory / "fence_slow"
        path.write_text(_SLOW_AGENT.replace("RECORD", str(self.directory / "actions")))
        path.chmod(0o755)

    @property
    def actions(self) -> list[str]:
        """Switching that agents of `slow_agent` began, in order."""
        path = self.directory / "actions"
        return path.read_text().split() if path.exists() else []

    # --- the configuration ---

    def settings(self, **values: str) -> None:
        """Write ConfigMap ``remedy-settings`` of the configuration file."""
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        self.config_map("remedy-settings", {"settings.properties": text})

    def config_map(self, name: str, data: dict[str, str]) -> None:
        """Add or replace a ConfigMap of the configuration file."""
        lines = [f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:"]
        for key, text in data.items():
            lines += [f"  {key}: |-", *(f"    {line}" for line in text.splitlines())]
        self._documents = [text for text in self._documents if f"name: {name}}}" not in text]
        self._documents.append("\n".join(lines) + "\n")
        self.write()

    def configuration(self, text: str) -> None:
        """Replace the Configuration."""
        self._documents[0] = text
        self.write()

    def write(self) -> None:
        temporary = self.config.with_suffix(".new")
        temporary.write_text("---\n".join(self._documents))
        temporary.rename(self.config)

    # --- the process ---

    def start(self, *flags: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a controller. It leads once the former leader has ended or its lease has expired."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*self._command(self.kubeconfig), f"--agents-dir={self.agents}", *flags],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )
        self.processes.append(process)
        return process

    def ask(self, *words: str) -> str:
        """Run a verb and return its output."""
        python, dash_m, module, *places = self._command(self.api.admin_kubeconfig())
        command = [python, dash_m, module, words[0], *places, *words[1:]]
        done = subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=60
        )
        return done.stdout

    def end(self) -> None:
        """End all controllers."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(30)
        print(self.log.read_text() if self.log.exists() else "")

    def _command(self, kubeconfig: Path) -> list[str]:
        places = [f"--kubeconfig={kubeconfig}", f"--config={self.config}"]
        return [sys.executable, "-m", "kubeletx.remedy", *places]

    def _set_status(self, node: Json, status: str, boot_id: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": status, "lastTransitionTime": now, "lastHeartbeatTime": now}
        words = (
            "machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion",
            "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture",
        )  # fmt: skip
        info = {**dict.fromkeys(words, ""), "bootID": boot_id}
        changed = {**node, "status": {**node.get("status", {}), "conditions": [condition], "nodeInfo": info}}
        self.api.admin.replace("nodes", changed, "status")


def deployed_identity(api: ApiServer, directory: Path) -> Path:
    """Return a kubeconfig with the rights of the service account in deploy/remedy.yaml, and no others."""
    if not isinstance(api, ApiServerDouble):
        return api.admin_kubeconfig()
    for one in yaml.safe_load_all((ROOT / "deploy/remedy.yaml").read_text()):
        for rule in one.get("rules", ()):
            api.grant(
                Grant(
                    subject=IDENTITY,
                    verbs=tuple(rule["verbs"]),
                    groups=tuple(rule["apiGroups"]),
                    resources=tuple(rule["resources"]),
                    names=tuple(rule.get("resourceNames", "*")),
                    namespaces=(one["metadata"].get("namespace", "*"),),
                )
            )
    return write_kubeconfig(
        directory / "remedy.kubeconfig", api.url, api.ca_file, api.authority.client(IDENTITY)
    )
