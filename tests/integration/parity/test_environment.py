"""Environment, names, DNS and rights of containers (E1, E3 to E8), seen from inside and in the CRI request."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.support.bench import Bench, one_container, until, with_containers

CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: {resolv}
"""


@pytest.fixture(scope="module")
def bench(make_bench: Callable[..., Bench], tmp_path_factory: pytest.TempPathFactory) -> Bench:
    directory = tmp_path_factory.mktemp("config")
    (directory / "resolv.conf").write_text("nameserver 192.0.2.1\nsearch corp.example\noptions timeout:2\n")
    (directory / "kubelet.yaml").write_text(CONFIG.format(resolv=directory / "resolv.conf"))
    return make_bench(flags=(f"--config={directory / 'kubelet.yaml'}",))


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def field(path: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": path}}


def test_field_references_of_every_kind(bench: Bench) -> None:
    paths = {
        "NAME": "metadata.name",
        "NAMESPACE": "metadata.namespace",
        "UID": "metadata.uid",
        "LABEL": "metadata.labels['app.example/tier']",
        "NOTE": "metadata.annotations['note']",
        "NODE": "spec.nodeName",
        "ACCOUNT": "spec.serviceAccountName",
        "HOST_IP": "status.hostIP",
        "HOST_IPS": "status.hostIPs",
        "POD_IP": "status.podIP",
        "POD_IPS": "status.podIPs",
    }
    env = [{"name": name, "valueFrom": field(path)} for name, path in paths.items()]
    text = bench.run(
        "fields",
        "env",
        container={"env": env},
        metadata={"labels": {"app.example/tier": "web"}, "annotations": {"note": "two words"}},
    )
    pod, found = bench.pod("fields"), settings(text)
    assert found["NAME"] == "fields-lab"
    assert found["NAMESPACE"] == "default"
    assert found["UID"] == pod.metadata.uid
    assert (found["LABEL"], found["NOTE"], found["NODE"], found["ACCOUNT"]) == ("web", "two words", "lab", "")
    assert found["HOST_IP"] == pod.status.host_ip
    assert found["HOST_IPS"].split(",") == [one.ip for one in pod.status.host_ips]
    assert found["POD_IP"] == found["POD_IPS"]
    assert found["POD_IP"].startswith("10.")


def test_resource_references_fall_back_to_the_node(bench: Bench) -> None:
    refs: dict[str, dict[str, str]] = {
        "CPU": {"resource": "limits.cpu"},
        "CPU_REQUEST": {"resource": "requests.cpu", "divisor": "1m"},
        "MEMORY": {"resource": "limits.memory"},
        "STORAGE": {"resource": "limits.ephemeral-storage"},
        "OTHER": {"resource": "limits.memory", "containerName": "other"},
    }
    env = [{"name": name, "valueFrom": {"resourceFieldRef": ref}} for name, ref in refs.items()]
    other = one_container("other", "true", resources={"limits": {"memory": "20Mi"}})
    spec = with_containers(
        one_container("main", "env", env=env, resources={"requests": {"cpu": "20m"}}),
        other,
        restartPolicy="Never",
    )
    bench.put("resources", spec=spec)
    bench.ended("resources")
    found = settings(bench.logs("resources"))
    allocatable = bench.agent.node().status.allocatable
    assert found["CPU_REQUEST"] == "20"
    assert found["OTHER"] == str(20 * 1024 * 1024)
    assert int(found["CPU"]) >= 1
    assert found["CPU"] == allocatable["cpu"]
    assert int(found["MEMORY"]) > 2**30
    assert int(found["STORAGE"]) > 2**30


def test_the_environment_is_ordered_expanded_and_escaped(bench: Bench) -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)2"},
        {"name": "A", "value": "3"},
        {"name": "LATE", "value": "$(AFTER)"},
        {"name": "AFTER", "value": "x"},
        {"name": "ESCAPED", "value": "$$(A) $A"},
    ]
    bench.put(
        "expanded",
        container={"env": env, "command": ["sh", "-c", "env; echo ARG=$0", "$(B)-$(NONE)-$$(B)"]},
        spec={"restartPolicy": "Never"},
    )
    bench.ended("expanded")
    found = settings(bench.logs("expanded"))
    assert (found["A"], found["B"], found["LATE"], found["ESCAPED"]) == ("3", "12", "$(AFTER)", "$(A) $A")
    assert found["ARG"] == "12-$(NONE)-$(B)"


def test_command_args_and_working_directory_take_the_images_place(bench: Bench) -> None:
    bench.put(
        "args",
        image="crash",
        command=None,
        container={"args": ["-c", "echo no"]},
        spec={"restartPolicy": "Never"},
    )
    assert bench.ended("args").status.phase == "Failed"
    assert "this container fails" in bench.logs("args")
    text = bench.run(
        "cwd", "pwd; echo $0 $@", container={"workingDir": "/usr/bin", "args": ["zero", "$(NOT) one"]}
    )
    assert text.splitlines() == ["/usr/bin", "zero $(NOT) one"]


def test_stdin_and_tty_are_asked_for_as_the_manifest_says(bench: Bench) -> None:
    bench.put("terminal", container={"stdin": True, "stdinOnce": True, "tty": True})
    bench.ready("terminal")
    request = bench.request("terminal")
    assert (request.get("stdin"), request.get("stdin_once"), request.get("tty")) == (True, True, True)
    assert bench.oci("terminal")["process"]["terminal"]


# --- names -------------------------------------------------------------------------------------------


def resolv(bench: Bench, name: str, **spec: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in bench.run(name, "cat /etc/resolv.conf", spec=spec).splitlines():
        word, _, rest = line.partition(" ")
        found.setdefault(word, []).extend(rest.split())
    return found


def test_cluster_first_asks_the_clusters_servers(bench: Bench) -> None:
    assert resolv(bench, "dns-cluster") == {
        "nameserver": ["10.96.0.10"],
        "search": ["default.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp.example"],
        "options": ["ndots:5"],
    }


def test_default_takes_the_nodes_file(bench: Bench) -> None:
    assert resolv(bench, "dns-default", dnsPolicy="Default") == {
        "nameserver": ["192.0.2.1"],
        "search": ["corp.example"],
        "options": ["timeout:2"],
    }


def test_host_network_needs_its_own_policy_for_the_clusters_servers(bench: Bench) -> None:
    assert resolv(bench, "dns-host", hostNetwork=True)["nameserver"] == ["192.0.2.1"]
    found = resolv(bench, "dns-host-cluster", hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    assert found["nameserver"] == ["10.96.0.10"]


def test_a_dns_configuration_is_added_and_limited(bench: Bench) -> None:
    config = {
        "nameservers": ["192.0.2.2", "192.0.2.3", "192.0.2.4"],
        "searches": ["extra.example"],
        "options": [{"name": "ndots", "value": "1"}, {"name": "rotate"}],
    }
    found = resolv(bench, "dns-more", dnsConfig=config)
    assert found["nameserver"] == ["10.96.0.10", "192.0.2.2", "192.0.2.3"]
    assert found["search"][-1] == "extra.example"
    assert sorted(found["options"]) == ["ndots:1", "rotate"]


def test_the_hosts_file_is_managed_unless_a_volume_covers_it(bench: Bench) -> None:
    text = bench.run("hosts", "cat /etc/hosts; stat -c %a /etc/hosts; hostname")
    pod = bench.pod("hosts")
    lines = text.splitlines()
    assert lines[0] == "# Kubernetes-managed hosts file."
    words = [line.split() for line in lines]
    assert ["127.0.0.1", "localhost"] in words
    assert ["::1", "localhost", "ip6-localhost", "ip6-loopback"] in words
    address = next(line.split("\t")[0] for line in lines if line.endswith("\thosts-lab"))
    assert address.startswith("10.")
    assert lines[-2:] == ["644", "hosts-lab"]
    assert pod.status.phase == "Succeeded"
    cover = bench.manifests.parent / "own-hosts"
    cover.write_text("127.0.0.1 mine\n")
    volumes = [{"name": "v", "hostPath": {"path": str(cover), "type": "File"}}]
    text = bench.run(
        "own-hosts",
        "cat /etc/hosts",
        container={"volumeMounts": [{"name": "v", "mountPath": "/etc/hosts"}]},
        spec={"volumes": volumes},
    )
    assert text == "127.0.0.1 mine\n"


def test_host_network_pods_start_from_the_nodes_hosts_file(bench: Bench) -> None:
    aliases = [{"ip": "203.0.113.9", "hostnames": ["alias.example"]}]
    text = bench.run(
        "host-hosts", "cat /etc/hosts; hostname", spec={"hostNetwork": True, "hostAliases": aliases}
    )
    assert text.startswith("# Kubernetes-managed hosts file (host network).\n")
    assert "203.0.113.9\talias.example\n" in text
    with Path("/etc/hosts").open() as nodes:
        assert nodes.read().strip() in text


def test_host_names_are_cut_joined_and_qualified(bench: Bench) -> None:
    long = "a" * 60 + "-and-more-of-it"
    bench.put(long)
    pod = bench.ready(long)
    name = bench.exec(long, "hostname").strip()
    assert (pod.metadata.name or "").startswith(name)
    assert len(name) <= 63
    assert name[-1] not in "-."
    spec = {"hostname": "front", "subdomain": "web", "setHostnameAsFQDN": True}
    text = bench.run("qualified", "hostname; cat /etc/hosts", spec=spec)
    assert text.splitlines()[0] == "front.web.default.svc.cluster.local"
    assert "\tfront.web.default.svc.cluster.local\tfront" in text


# --- rights ------------------------------------------------------------------------------------------


def rights(bench: Bench, name: str, script: str = "cat /proc/self/status", **parts: Any) -> dict[str, str]:
    text = bench.run(name, script, **parts)
    return {line.split(":", 1)[0]: line.split(":", 1)[1].strip() for line in text.splitlines() if ":" in line}


def test_user_and_groups_come_from_container_pod_and_image(bench: Bench) -> None:
    pod = {"runAsUser": 1001, "runAsGroup": 1002, "supplementalGroups": [1003]}
    found = rights(bench, "ids-pod", spec={"securityContext": pod})
    assert found["Uid"].split() == ["1001"] * 4
    assert found["Gid"].split() == ["1002"] * 4
    assert "1003" in found["Groups"].split()
    own = {"securityContext": {"runAsUser": 2001}}
    found = rights(bench, "ids-container", container=own, spec={"securityContext": pod})
    assert (found["Uid"].split()[0], found["Gid"].split()[0]) == ("2001", "1002")
    bench.put(
        "ids-image", image="web-user", command=None, container={"securityContext": {"runAsNonRoot": True}}
    )
    bench.ready("ids-image")
    assert bench.exec("ids-image", "id -u; id -g").split() == ["1000", "1000"]


def test_capabilities_are_added_and_dropped(bench: Bench) -> None:
    drop = {"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}}
    found = rights(bench, "caps", container=drop)
    assert int(found["CapBnd"], 16) == 1 << 12
    plain = rights(bench, "caps-plain")
    assert int(plain["CapBnd"], 16) & (1 << 21) == 0, "no CAP_SYS_ADMIN"
    privileged = rights(bench, "caps-all", container={"securityContext": {"privileged": True}})
    assert int(privileged["CapBnd"], 16) & (1 << 21)


def test_no_new_privileges_follows_allow_privilege_escalation(bench: Bench) -> None:
    found = rights(bench, "nnp", container={"securityContext": {"allowPrivilegeEscalation": False}})
    assert found["NoNewPrivs"] == "1"
    assert rights(bench, "nnp-not")["NoNewPrivs"] == "0"


def test_the_root_file_system_can_be_read_only(bench: Bench) -> None:
    text = bench.run(
        "read-only-root",
        "touch /x 2>&1; touch /tmp/ok && echo fine",
        container={
            "securityContext": {"readOnlyRootFilesystem": True},
            "volumeMounts": [{"name": "t", "mountPath": "/tmp"}],
        },
        spec={"volumes": [{"name": "t", "emptyDir": {}}]},
    )
    assert "Read-only file system" in text
    assert text.endswith("fine\n")


def test_proc_is_masked_unless_asked_otherwise(bench: Bench) -> None:
    bench.put("masked")
    bench.put("unmasked", container={"securityContext": {"privileged": True}})
    bench.ready("masked")
    bench.ready("unmasked")
    linux = bench.oci("masked")["linux"]
    assert "/proc/kcore" in linux["maskedPaths"]
    assert "/proc/sys" in linux["readonlyPaths"]
    assert not bench.oci("unmasked")["linux"].get("maskedPaths")


def test_seccomp_is_what_the_pod_asks_for(bench: Bench) -> None:
    profile = {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}
    assert rights(bench, "seccomp", container=profile)["Seccomp"] == "2"
    assert rights(bench, "seccomp-not")["Seccomp"] == "0"
    sandbox = bench.sandbox_request("seccomp-not")["linux"]["security_context"]
    assert sandbox["seccomp"].get("profile_type", 0) == 0, "the sandbox always has RuntimeDefault, which is 0"


def test_seccomp_profiles_of_the_node(bench: Bench) -> None:
    directory = bench.agent.root_dir / "seccomp"
    directory.mkdir()
    rules = [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]
    (directory / "no-mkdir.json").write_text(
        json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules})
    )
    profile = {"seccompProfile": {"type": "Localhost", "localhostProfile": "no-mkdir.json"}}
    text = bench.run("seccomp-local", "mkdir /x 2>&1; true", container={"securityContext": profile})
    assert "Operation not permitted" in text


def test_namespaces_of_the_node_and_of_the_pod_are_shared_as_asked(bench: Bench) -> None:
    def links(name: str, container: str = "main") -> dict[str, str]:
        text = bench.exec(
            name, "for n in net ipc pid uts; do echo $n=$(readlink /proc/self/ns/$n); done", container
        )
        return settings(text)

    mine = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "ipc", "pid", "uts")}
    bench.put("ns-host", spec={"hostNetwork": True, "hostPID": True, "hostIPC": True})
    bench.put(
        "ns-shared", spec=with_containers(one_container("a"), one_container("b"), shareProcessNamespace=True)
    )
    bench.put("ns-own", spec=with_containers(one_container("a"), one_container("b")))
    for name in ("ns-host", "ns-shared", "ns-own"):
        bench.ready(name)
    host = links("ns-host")
    assert (host["net"], host["ipc"], host["pid"]) == (mine["net"], mine["ipc"], mine["pid"])
    one, two = links("ns-shared", "a"), links("ns-shared", "b")
    assert one["pid"] == two["pid"] != mine["pid"]
    one, two = links("ns-own", "a"), links("ns-own", "b")
    assert one["pid"] != two["pid"]
    assert (one["net"], one["ipc"]) == (two["net"], two["ipc"])
    assert one["net"] != mine["net"]


def test_safe_sysctls_are_set(bench: Bench) -> None:
    context = {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]}
    text = bench.run("sysctl", "cat /proc/sys/kernel/shm_rmid_forced", spec={"securityContext": context})
    assert text == "1\n"


def test_host_ports_lead_to_the_container(bench: Bench) -> None:
    bench.put(
        "host-port",
        image="web",
        command=None,
        container={"ports": [{"containerPort": 8080, "hostPort": 28090, "protocol": "TCP"}]},
    )
    bench.ready("host-port")
    mapping = bench.sandbox_request("host-port")["port_mappings"]
    assert [(one["container_port"], one["host_port"]) for one in mapping] == [(8080, 28090)]
    address = bench.pod("host-port").status.host_ip
    if bench.agent.lab.network.has_portmap:
        url = f"http://{address}:28090/healthz"
        assert until(lambda: fetch(url), "an answer of the web server") == b"ok\n"


def fetch(url: str) -> bytes:
    """The body; empty while no one listens."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bytes(answer.read())
    except OSError:
        return b""
