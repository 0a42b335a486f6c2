from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import InvalidPod
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.manifests.load import load_pods
from kubeletx.kube.types.core import ObjectMeta, Pod
from kubeletx.kube.validation import validate_own, validate_pod, words
from tests.unit.kube.pod_text import full_pod

VOLUMES = "volumes: [{name: v}, {name: w}]"
CAPITAL = "is not a DNS label (lower-case letters, digits and '-')"


def problems(pod: Pod) -> list[tuple[str, str]]:
    return [
        (problem.field, problem.problem) for problem in validate_pod(pod, "web.yaml", {"container", "vm"})
    ]


EVERYTHING = """
apiVersion: v1
kind: Pod
metadata:
  name: every.thing-1
  namespace: shop
  labels: {app.kubernetes.io/name: web, empty: ""}
  annotations: {Example.com/Note: "any text\\n", kubeletx.io/workload-type: container}
spec:
  os: {name: linux}
  restartPolicy: OnFailure
  activeDeadlineSeconds: 60
  terminationGracePeriodSeconds: 20
  dnsPolicy: None
  dnsConfig:
    nameservers: [10.0.0.2, "fd00::2"]
    searches: [svc.cluster.local, _tcp.example.com, .]
    options: [{name: ndots, value: "5"}, {name: rotate}]
  hostAliases: [{ip: 10.0.0.3, hostnames: [db, db.example.com]}]
  hostname: web
  subdomain: pods
  nodeSelector: {kubernetes.io/os: linux}
  tolerations:
  - {operator: Exists}
  - {key: a, value: b, effect: NoExecute, tolerationSeconds: 5}
  runtimeServiceName: containerd-2
  runtimeClassName: runc
  securityContext:
    runAsUser: 1000
    fsGroup: 2000
    supplementalGroups: [1, 2]
    sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "0"}, {name: kernel/shm_rmid_forced, value: "1"}]
    seccompProfile: {type: Localhost, localhostProfile: profiles/a.json}
  volumes:
  - name: cache
    emptyDir: {medium: Memory, sizeLimit: 64Mi}
  - name: host
    hostPath: {path: /var/log/, type: DirectoryOrCreate}
  - name: info
    downwardAPI:
      items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: a/b, fieldRef: {fieldPath: "metadata.annotations['Example.com/Note']"}, mode: 0400}
      - {path: cpu, resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: 1m}}
  - name: all
    projected: {sources: [{downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}
  - name: img
    image: {reference: "registry.local/data:1"}
  - name: nfs
    nfs: {server: nfs.local, path: /export}
  initContainers:
  - {name: setup, image: setup}
  - name: sidecar
    image: sidecar
    restartPolicy: Always
    ports: [{containerPort: 81, hostPort: 8081}]
    startupProbe: {tcpSocket: {port: 81}}
  containers:
  - name: main
    image: "registry.local:5000/team/app@sha256:00"
    command: ["sh", "-c", "exit 0"]
    ports: [{name: http, containerPort: 80, hostPort: 8080}, {name: dns, containerPort: 53, protocol: UDP, hostPort: 8080}]
    env:
    - {name: A.b-c d, value: "$(B)"}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['empty']"}}}
    - {name: MEM, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}}
    resources:
      limits: {cpu: 1, memory: 1Gi, hugepages-2Mi: 4Mi, example.com/gpu: 1}
      requests: {cpu: 500m, memory: 1Gi}
    volumeMounts:
    - {name: cache, mountPath: /cache, subPath: a/b}
    - {name: host, mountPath: /logs, subPathExpr: $(POD)/x, mountPropagation: HostToContainer}
    - {name: info, mountPath: /info, readOnly: true, recursiveReadOnly: Enabled}
    livenessProbe: {httpGet: {port: http, httpHeaders: [{name: X-A, value: b}]}, terminationGracePeriodSeconds: 3}
    readinessProbe: {grpc: {port: 80}, successThreshold: 3}
    startupProbe: {exec: {command: [x]}, failureThreshold: 30}
    lifecycle: {postStart: {exec: {command: [x]}}, preStop: {sleep: {seconds: 20}}, stopSignal: SIGRTMIN+3}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}
  - name: second
    image: second
    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
"""

MACHINE = """
apiVersion: v1
kind: Pod
metadata: {name: vm-with-nic-portid}
spec:
  virtualMachine:
    name: testVM
    image: cloud-images.ubuntu.com/xenial/current/xenial-server-cloudimg-amd64-disk1.img
    resources: {limits: {cpu: "1", memory: 1Gi}, requests: {cpu: "1", memory: 1Gi}}
    userData: I2Nsb3VkLWNvbmZpZwo=
    bootVolume: root
    volumeDevices: [{name: root, devicePath: /dev/vda}]
    resizePolicy: [{resourceName: cpu, policy: NoRestart}]
  volumes: [{name: root, hostPath: {path: /images/root.img}}]
  vpc: demo
  nics: [{portId: 04fe371d-fddf-43c4-9419-b7d9cd4a2197}, {name: net0, ipAddress: 10.0.0.7, subnetName: subnet-1}]
  runtimeServiceName: libvirt-qemu
"""


@pytest.mark.parametrize("text", [EVERYTHING, MACHINE])
def test_a_correct_pod_has_no_problems(text: str) -> None:
    (pod,) = load_pods(text.encode(), "x")
    assert problems(set_defaults(pod)) == []


CONTAINER_PROBLEMS = [
    ("name: Main", "name", f"'Main' {CAPITAL}"),
    ("name: ''", "name", "is missing"),
    ("image: ' app'", "image", "' app' holds white space"),
    ("imagePullPolicy: Sometimes", "imagePullPolicy", "'Sometimes' is not known"),
    ("terminationMessagePolicy: x", "terminationMessagePolicy", "'x' is not known"),
    ("restartPolicy: x", "restartPolicy", "'x' is not known"),
    ("restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]", "restartPolicyRules", "are set without restartPolicy"),
    ("restartPolicy: Never, restartPolicyRules: [{action: x, exitCodes: {operator: In, values: [1]}}]", "restartPolicyRules[0].action", "'x' is not known"),
    ("restartPolicy: Never, restartPolicyRules: [{action: Restart}]", "restartPolicyRules[0].exitCodes", "is missing"),
    ("ports: [{containerPort: 65536}]", "ports[0].containerPort", "65536 is out of range"),
    ("ports: [{}]", "ports[0].containerPort", "is missing"),
    ("ports: [{containerPort: 1, hostPort: -1}]", "ports[0].hostPort", "-1 is out of range"),
    ("ports: [{containerPort: 1, protocol: tcp}]", "ports[0].protocol", "'tcp' is not known"),
    ("ports: [{containerPort: 1, hostIP: a}]", "ports[0].hostIP", "'a' is not an IP address"),
    ("ports: [{containerPort: 1, name: HTTP}]", "ports[0].name", "'HTTP' is not a port name (lower-case letters, digits and single '-')"),
    ("ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]", "ports[1].name", "'a' is already the name of another port"),
    ("ports: [{containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]", "ports[1].hostPort", "5 is used twice"),
    ("env: [{name: ''}]", "env[0].name", "is missing"),
    ("env: [{name: A=B}]", "env[0].name", "'A=B' is not a variable name (printable ASCII without '=')"),
    ("env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]", "env[0]", "has both value 'x' and valueFrom"),
    ("env: [{name: A, valueFrom: {}}]", "env[0].valueFrom", "has no source"),
    ("env: [{name: A, valueFrom: {fieldRef: {}}}]", "env[0].valueFrom.fieldRef.fieldPath", "is missing"),
    ("env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]", "env[0].valueFrom.fieldRef.fieldPath", "'metadata.labels' cannot be read here"),
    ("env: [{name: A, valueFrom: {resourceFieldRef: {resource: cpu}}}]", "env[0].valueFrom.resourceFieldRef.resource", "'cpu' cannot be read here"),
    ("env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 2}}}]", "env[0].valueFrom.resourceFieldRef.divisor", "'2' is not known"),
    ("env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: a/b}}}]", "env[0].valueFrom.configMapKeyRef.key", "'a/b' is not a key (letters, digits, '-', '_' and '.')"),
    ("envFrom: [{}]", "envFrom[0]", "has no source"),
    ("envFrom: [{configMapRef: {}}]", "envFrom[0].configMapRef.name", "is missing"),
    ("resources: {limits: {cpu: x}}", "resources.limits[cpu]", "'x' is not a quantity"),
    ("resources: {limits: {cpu: -1}}", "resources.limits[cpu]", "'-1' is negative"),
    ("resources: {limits: {'a b': 1}}", "resources.limits[a b]", "'a b' is not a resource of a container (cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME)"),
    ("resources: {limits: {cpu: 1}, requests: {cpu: 1001m}}", "resources.requests[cpu]", "'1001m' is above the limit"),
    ("resources: {limits: {example.com/gpu: 2}, requests: {example.com/gpu: 1}}", "resources.requests[example.com/gpu]", "'1' is below the limit"),
    ("volumeMounts: [{name: x, mountPath: /a}]", "volumeMounts[0].name", "'x' is not a volume of this pod"),
    ("volumeMounts: [{name: v}]", "volumeMounts[0].mountPath", "is missing"),
    ("volumeMounts: [{name: v, mountPath: /a}, {name: w, mountPath: /a}]", "volumeMounts[1].mountPath", "'/a' is mounted twice"),
    ("volumeMounts: [{name: v, mountPath: /a, subPath: /b}]", "volumeMounts[0].subPath", "'/b' is not a relative path"),
    ("volumeMounts: [{name: v, mountPath: /a, subPathExpr: a/../..}]", "volumeMounts[0].subPathExpr", "'a/../..' may not hold '..'"),
    ("volumeMounts: [{name: v, mountPath: /a, subPath: a, subPathExpr: b}]", "volumeMounts[0]", "has subPath and subPathExpr"),
    ("volumeMounts: [{name: v, mountPath: /a, mountPropagation: x}]", "volumeMounts[0].mountPropagation", "'x' is not known"),
    ("volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}]", "volumeMounts[0].mountPropagation", "'Bidirectional' in an unprivileged container"),
    ("volumeMounts: [{name: v, mountPath: /a, recursiveReadOnly: Enabled}]", "volumeMounts[0].recursiveReadOnly", "'Enabled' without readOnly"),
    ("volumeDevices: [{name: v, devicePath: dev}]", "volumeDevices[0].devicePath", "'dev' is not an absolute path"),
    ("livenessProbe: {}", "livenessProbe", "has no handler"),
    ("livenessProbe: {exec: {command: [x]}, grpc: {port: 1}}", "livenessProbe", "has exec and grpc"),
    ("livenessProbe: {exec: {}}", "livenessProbe.exec.command", "is missing"),
    ("livenessProbe: {tcpSocket: {port: 0}}", "livenessProbe.tcpSocket.port", "0 is out of range"),
    ("livenessProbe: {tcpSocket: {port: A}}", "livenessProbe.tcpSocket.port", "'A' is not a port name (lower-case letters, digits and single '-')"),
    ("livenessProbe: {grpc: {port: 0}}", "livenessProbe.grpc.port", "0 is out of range"),
    ("livenessProbe: {tcpSocket: {port: 1}, successThreshold: 2}", "livenessProbe.successThreshold", "2 is not allowed for a livenessProbe"),
    ("startupProbe: {tcpSocket: {port: 1}, failureThreshold: -1}", "startupProbe.failureThreshold", "-1 is out of range"),
    ("livenessProbe: {tcpSocket: {port: 1}, periodSeconds: -1}", "livenessProbe.periodSeconds", "-1 is out of range"),
    ("livenessProbe: {tcpSocket: {port: 1}, initialDelaySeconds: -1}", "livenessProbe.initialDelaySeconds", "-1 is out of range"),
    ("readinessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 1}", "readinessProbe.terminationGracePeriodSeconds", "1 is set on a readinessProbe"),
    ("livenessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 0}", "livenessProbe.terminationGracePeriodSeconds", "0 is out of range"),
    ("livenessProbe: {httpGet: {port: 1, scheme: ftp}}", "livenessProbe.httpGet.scheme", "'ftp' is not known"),
    ("livenessProbe: {httpGet: {port: 1, httpHeaders: [{name: 'a b'}]}}", "livenessProbe.httpGet.httpHeaders[0].name", "'a b' is not a header name (letters, digits and '-')"),
    ('livenessProbe: {httpGet: {port: 1, httpHeaders: [{name: a, value: "a\\nb"}]}}', "livenessProbe.httpGet.httpHeaders[0].value", "'a\\nb' holds a line break"),
    ("lifecycle: {preStop: {}}", "lifecycle.preStop", "has no handler"),
    ("lifecycle: {preStop: {sleep: {seconds: 31}}}", "lifecycle.preStop.sleep.seconds", "31 is out of range"),
    ("lifecycle: {stopSignal: SIGTERM}", "lifecycle.stopSignal", "'SIGTERM' without spec.os.name"),
    ("securityContext: {runAsUser: -1}", "securityContext.runAsUser", "-1 is out of range"),
    ("securityContext: {privileged: true, allowPrivilegeEscalation: false}", "securityContext.allowPrivilegeEscalation", "false together with privileged"),
    ("securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}}", "securityContext.allowPrivilegeEscalation", "false together with CAP_SYS_ADMIN"),
    ("securityContext: {procMount: Unmasked}", "securityContext.procMount", "'Unmasked' in the node's user namespace"),
    ("securityContext: {seccompProfile: {type: Localhost}}", "securityContext.seccompProfile.localhostProfile", "is missing"),
    ("securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../x}}", "securityContext.seccompProfile.localhostProfile", "'../x' may not hold '..'"),
    ("securityContext: {appArmorProfile: {type: RuntimeDefault, localhostProfile: x}}", "securityContext.appArmorProfile.localhostProfile", "'x' with type RuntimeDefault"),
]  # fmt: skip


@pytest.mark.parametrize(("container", "field", "problem"), CONTAINER_PROBLEMS)
def test_a_wrong_container_is_refused(container: str, field: str, problem: str) -> None:
    parts = {"name": "name: c", "image": "image: 'app:1'"}
    for word in parts:
        if container.startswith(f"{word}:"):
            parts[word] = container
            container = ""
    pod = full_pod(f"{VOLUMES}, containers: [{{{', '.join(parts.values())}, {container}}}]")
    assert problems(pod) == [(f"spec.containers[0].{field}", problem)]


SPEC_PROBLEMS = [
    ("containers: []", "spec.containers", "is missing"),
    ("restartPolicy: x", "spec.restartPolicy", "'x' is not known"),
    ("activeDeadlineSeconds: 0", "spec.activeDeadlineSeconds", "0 is out of range"),
    ("priority: 2147483648", "spec.priority", "2147483648 is out of range"),
    ("runtimeServiceName: a--b", "spec.runtimeServiceName", "'a--b' holds '--', which no runtime name does"),
    (f"runtimeServiceName: {'a' * 31}", "spec.runtimeServiceName", f"'{'a' * 31}' is longer than 30 characters"),
    ("runtimeClassName: A", "spec.runtimeClassName", "'A' is not a DNS name (lower-case letters, digits, '-' and '.')"),
    ("os: {name: plan9}", "spec.os.name", "'plan9' is not known"),
    ("dnsPolicy: x", "spec.dnsPolicy", "'x' is not known"),
    ("dnsPolicy: None", "spec.dnsConfig.nameservers", "is missing with dnsPolicy None"),
    ("dnsConfig: {nameservers: [a]}", "spec.dnsConfig.nameservers[0]", "'a' is not an IP address"),
    ("dnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]}", "spec.dnsConfig.nameservers", "has 4 servers"),
    ("dnsConfig: {searches: ['a b']}", "spec.dnsConfig.searches[0]", "'a b' is not a search domain"),
    (f"dnsConfig: {{searches: [{', '.join(['a'] * 33)}]}}", "spec.dnsConfig.searches", "has 33 domains"),
    (f"dnsConfig: {{searches: [{', '.join(['a' * 200] * 11)}]}}", "spec.dnsConfig.searches", "has 2210 characters"),
    ("dnsConfig: {options: [{value: a}]}", "spec.dnsConfig.options[0].name", "is missing"),
    ("hostAliases: [{ip: x, hostnames: [a]}]", "spec.hostAliases[0].ip", "'x' is not an IP address"),
    ("hostAliases: [{ip: 1.1.1.1, hostnames: [A]}]", "spec.hostAliases[0].hostnames[0]", "'A' is not a DNS name (lower-case letters, digits, '-' and '.')"),
    ("hostname: a.b", "spec.hostname", f"'a.b' {CAPITAL}"),
    ("nodeSelector: {a: 'b c'}", "spec.nodeSelector[a]", "'b c' is not a label value (letters, digits, '-', '_' and '.')"),
    ("imagePullSecrets: [{}]", "spec.imagePullSecrets[0].name", "is missing"),
    ("readinessGates: [{}]", "spec.readinessGates[0].conditionType", "is missing"),
    ("tolerations: [{value: a}]", "spec.tolerations[0].operator", "'Equal' without a key"),
    ("tolerations: [{key: a, operator: Exists, value: b}]", "spec.tolerations[0].value", "'b' with operator Exists"),
    ("tolerations: [{key: a, effect: x}]", "spec.tolerations[0].effect", "'x' is not known"),
    ("tolerations: [{key: a, tolerationSeconds: 1}]", "spec.tolerations[0].tolerationSeconds", "1 without effect NoExecute"),
    ("shareProcessNamespace: true, hostPID: true", "spec.shareProcessNamespace", "true together with hostPID"),
    ("hostUsers: false, hostIPC: true", "spec.hostUsers", "false together with hostIPC"),
    ("overhead: {cpu: x}", "spec.overhead[cpu]", "'x' is not a quantity"),
    ("resources: {limits: {cpu: 1}, requests: {cpu: 2}}", "spec.resources.requests[cpu]", "'2' is above the limit"),
    ("securityContext: {fsGroup: -1}", "spec.securityContext.fsGroup", "-1 is out of range"),
    ("securityContext: {supplementalGroups: [-1]}", "spec.securityContext.supplementalGroups[0]", "-1 is out of range"),
    ("securityContext: {fsGroupChangePolicy: x}", "spec.securityContext.fsGroupChangePolicy", "'x' is not known"),
    ("securityContext: {sysctls: [{name: '../x'}]}", "spec.securityContext.sysctls[0].name", "'../x' is not a sysctl name"),
    ("securityContext: {sysctls: [{name: a.b}, {name: a/b}]}", "spec.securityContext.sysctls[1].name", "'a.b' is already the name of another sysctl"),
    ("hostNetwork: true, securityContext: {sysctls: [{name: net.core.somaxconn}]}", "spec.securityContext.sysctls[0].name", "'net.core.somaxconn' belongs to the node with hostNetwork"),
    ("hostIPC: true, securityContext: {sysctls: [{name: kernel.shmmax}]}", "spec.securityContext.sysctls[0].name", "'kernel.shmmax' belongs to the node with hostIPC"),
    ("volumes: [{}]", "spec.volumes[0].name", "is missing"),
    ("volumes: [{name: a}, {name: a}]", "spec.volumes[1].name", "'a' is already the name of another volume"),
    ("volumes: [{name: ../a}]", "spec.volumes[0].name", f"'../a' {CAPITAL}"),
    ("volumes: [{name: a, emptyDir: {}, hostPath: {path: /}}]", "spec.volumes[0]", "has hostPath and emptyDir"),
    ("volumes: [{name: a, hostPath: {}}]", "spec.volumes[0].hostPath.path", "is missing"),
    ("volumes: [{name: a, hostPath: {path: a}}]", "spec.volumes[0].hostPath.path", "'a' is not an absolute path"),
    ("volumes: [{name: a, hostPath: {path: /a, type: x}}]", "spec.volumes[0].hostPath.type", "'x' is not known"),
    ("volumes: [{name: a, emptyDir: {medium: x}}]", "spec.volumes[0].emptyDir.medium", "'x' is not known"),
    ("volumes: [{name: a, emptyDir: {sizeLimit: -1}}]", "spec.volumes[0].emptyDir.sizeLimit", "'-1' is negative"),
    ("volumes: [{name: a, configMap: {}}]", "spec.volumes[0].configMap.name", "is missing"),
    ("volumes: [{name: a, configMap: {name: b, items: [{key: k, path: ../p}]}}]", "spec.volumes[0].configMap.items[0].path", "'../p' may not hold '..'"),
    ("volumes: [{name: a, secret: {secretName: b, defaultMode: 512}}]", "spec.volumes[0].secret.defaultMode", "512 is not a file mode"),
    ("volumes: [{name: a, downwardAPI: {items: [{path: p}]}}]", "spec.volumes[0].downwardAPI.items[0]", "has no source"),
    ("volumes: [{name: a, downwardAPI: {items: [{path: p, fieldRef: {fieldPath: status.podIP}}]}}]", "spec.volumes[0].downwardAPI.items[0].fieldRef.fieldPath", "'status.podIP' cannot be read here"),
    ("volumes: [{name: a, downwardAPI: {items: [{path: p, resourceFieldRef: {resource: limits.cpu}}]}}]", "spec.volumes[0].downwardAPI.items[0].resourceFieldRef.containerName", "is missing"),
    ("volumes: [{name: a, projected: {sources: [{}]}}]", "spec.volumes[0].projected.sources[0]", "has no source"),
    ("volumes: [{name: a, projected: {sources: [{configMap: {name: b, items: [{key: k, path: p}]}}, {secret: {name: b, items: [{key: k, path: p}]}}]}}]", "spec.volumes[0].projected.sources[1]", "writes 'p', as another source does"),
    ("volumes: [{name: a, projected: {sources: [{serviceAccountToken: {path: p, expirationSeconds: 5}}]}}]", "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds", "5 is out of range"),
    ("volumes: [{name: a, nfs: {server: s}}]", "spec.volumes[0].nfs.path", "is missing"),
    ("volumes: [{name: a, flexVolume: {}}]", "spec.volumes[0].flexVolume.driver", "is missing"),
    ("volumes: [{name: a, image: {}}]", "spec.volumes[0].image.reference", "is missing"),
    ("initContainers: [{name: c, image: i}]", "spec.containers[0].name", "'c' is already the name of another container"),
    ("initContainers: [{name: i, image: i, readinessProbe: {tcpSocket: {port: 1}}}]", "spec.initContainers[0].readinessProbe", "is set on a regular init container"),
    ("ephemeralContainers: [{name: e, image: i, resources: {limits: {cpu: 1}}}]", "spec.ephemeralContainers[0].resources", "are set on an ephemeral container"),
    ("ephemeralContainers: [{name: e, image: i, ports: [{containerPort: 1}]}]", "spec.ephemeralContainers[0].ports", "is set on an ephemeral container"),
    ("initContainers: [{name: s, image: i, restartPolicy: Always, ports: [{containerPort: 1, hostPort: 9}]}], containers: [{name: c, image: i, ports: [{containerPort: 2, hostPort: 9}]}]", "spec.containers[0].ports[0].hostPort", "9 is used twice"),
    ("hostNetwork: true, containers: [{name: c, image: i, ports: [{containerPort: 2, hostPort: 9}]}]", "spec.containers[0].ports[0].hostPort", "9 differs from containerPort 2 with hostNetwork"),
    ("virtualMachine: {name: a_b, image: i}", "spec.virtualMachine.name", "'a_b' is not a DNS label (letters, digits and '-')"),
    ("virtualMachine: {name: a}", "spec.virtualMachine.image", "is missing"),
    ("virtualMachine: {name: a, image: i}, initContainers: [{name: i, image: i}]", "spec.initContainers", "is set together with virtualMachine"),
    ("virtualMachine: {name: a, image: i, powerSpec: running}", "spec.virtualMachine.powerSpec", "'running' is not known"),
    ("virtualMachine: {name: a, image: i, shutdownBehavior: x}", "spec.virtualMachine.shutdownBehavior", "'x' is not known"),
    ("virtualMachine: {name: a, image: i, bootVolume: x}", "spec.virtualMachine.bootVolume", "'x' is not a volume of this pod"),
    ("volumes: [{name: x, emptyDir: {}}], virtualMachine: {name: a, image: i, bootVolume: x}", "spec.virtualMachine.bootVolume", "'x' is not in volumeDevices"),
    ("virtualMachine: {name: a, image: i, userData: 'a b'}", "spec.virtualMachine.userData", "'a b' is not base64"),
    (f"virtualMachine: {{name: a, image: i, userData: '{base64.b64encode(bytes(65536)).decode()}'}}", "spec.virtualMachine.userData", "holds 65536 bytes"),
    ("virtualMachine: {name: a, image: i, resizePolicy: [{resourceName: disk, policy: NoRestart}]}", "spec.virtualMachine.resizePolicy[0].resourceName", "'disk' is not known"),
    ("virtualMachine: {name: a, image: i, volumeMounts: [{name: x, mountPath: /a}]}", "spec.virtualMachine.volumeMounts[0].name", "'x' is not a volume of this pod"),
    ("vpc: a/b", "spec.vpc", "'a/b' is not a name (letters, digits, '-', '_' and '.')"),
    ("nics: [{name: a}, {name: a}]", "spec.nics[1].name", "'a' is already the name of another interface"),
    ("nics: [{name: averyveryverylong}]", "spec.nics[0].name", "'averyveryverylong' is longer than 15 characters"),
    ("nics: [{ipAddress: x}]", "spec.nics[0].ipAddress", "'x' is not an IP address"),
    ("nics: [{ipAddress: 1.1.1.1}, {ipAddress: 1.1.1.1}]", "spec.nics[1].ipAddress", "'1.1.1.1' is given twice"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "field", "problem"), SPEC_PROBLEMS)
def test_a_wrong_spec_is_refused(spec: str, field: str, problem: str) -> None:
    if (
        "ontainers: [" not in spec.replace("initContainers: [", "").replace("ephemeralContainers: [", "")
        and "virtualMachine" not in spec
    ):
        spec = f"containers: [{{name: c, image: 'app:1'}}], {spec}"
    assert problems(full_pod(spec)) == [(field, problem)]


VM_NOTES = "annotations: {kubeletx.io/workload-type: vm, "

METADATA_PROBLEMS = [
    ("name: ''", "metadata.name", "is missing"),
    ("name: a..b", "metadata.name", "'a..b' is not a DNS name (lower-case letters, digits, '-' and '.')"),
    (f"name: {'a' * 254}", "metadata.name", f"'{'a' * 66}... is longer than 253 characters"),
    ("namespace: a.b", "metadata.namespace", f"'a.b' {CAPITAL}"),
    ("uid: a/b", "metadata.uid", "'a/b' is not a UID (letters, digits and '-')"),
    ("labels: {/a: b}", "metadata.labels", "key '/a' has an empty prefix before '/'"),
    ("labels: {A/a: b}", "metadata.labels", "key 'A/a' has a prefix that is not a DNS name (lower-case letters, digits, '-' and '.')"),
    (f"labels: {{a: {'b' * 64}}}", "metadata.labels[a]", f"'{'b' * 64}' is longer than 63 characters"),
    ("annotations: {'a b': c}", "metadata.annotations", "key 'a b' is not a valid key (letters, digits, '-', '_' and '.')"),
    (f"annotations: {{a: {'b' * 262144}}}", "metadata.annotations", "hold 262145 bytes"),
    ("annotations: {kubeletx.io/workload-type: x}", "metadata.annotations[kubeletx.io/workload-type]", "'x' is not a workload type of this node"),
    ("annotations: {kubeletx.io/vm-power: Paused}", "metadata.annotations[kubeletx.io/vm-power]", "is set on a pod of containers"),
    (VM_NOTES + "kubeletx.io/vm-power: paused}", "metadata.annotations[kubeletx.io/vm-power]", "'paused' is not known"),
    (VM_NOTES + "kubeletx.io/vm-boot-volume: a}", "metadata.annotations[kubeletx.io/vm-boot-volume]", "'a' is not a volume of this pod"),
    (VM_NOTES + "kubeletx.io/vm-user-data-base64: 'a b'}", "metadata.annotations[kubeletx.io/vm-user-data-base64]", "'a b' is not base64"),
    (VM_NOTES + f"kubeletx.io/vm-user-data: {'b' * 65536}}}", "metadata.annotations[kubeletx.io/vm-user-data]", "holds 65536 bytes"),
    (VM_NOTES + "kubeletx.io/vm-ssh-keys: hello}", "metadata.annotations[kubeletx.io/vm-ssh-keys]", "is no SSH public key (such as 'ssh-ed25519 AAAA... name')"),
    (VM_NOTES + "kubeletx.io/vm-ssh-keys: ssh-ed25519 AAAA}", "metadata.annotations[kubeletx.io/vm-ssh-keys]", "is not a key of type ssh-ed25519: it is cut off or damaged"),
    (VM_NOTES + "kubeletx.io/vm-ssh-keys: -----BEGIN OPENSSH PRIVATE KEY-----}", "metadata.annotations[kubeletx.io/vm-ssh-keys]", "is a private key; write the public one"),
    ("annotations: {kubernetes.io/target-runtime: virtlet.cloud}", "metadata.annotations[kubernetes.io/target-runtime]", "requests a virtual machine of Virtlet, but kubeletx would run the pod as a container"),
    (VM_NOTES + "kubeletx.io/vm-disk-size: big}", "metadata.annotations[kubeletx.io/vm-disk-size]", "'big' is not a quantity"),
    (VM_NOTES + "kubeletx.io/vm-firmware: coreboot}", "metadata.annotations[kubeletx.io/vm-firmware]", "'coreboot' is not known"),
    (VM_NOTES + "kubeletx.io/vm-nics: '[{\"ipAddress\": \"x\"}]'}", "metadata.annotations[kubeletx.io/vm-nics][0].ipAddress", "'x' is not an IP address"),
    ("annotations: {kubeletx.io/runtime-service-name: A}", "metadata.annotations[kubeletx.io/runtime-service-name]", "'A' is not a runtime name (lower-case letters, digits and '-')"),
]  # fmt: skip


@pytest.mark.parametrize(("metadata", "field", "problem"), METADATA_PROBLEMS)
def test_wrong_metadata_is_refused(metadata: str, field: str, problem: str) -> None:
    assert problems(full_pod(metadata=metadata)) == [(field, problem)]


def test_a_machine_s_annotation_beside_its_field_is_refused() -> None:
    pod = full_pod(
        "virtualMachine: {name: a, image: i}, nics: [{name: a}]",
        metadata="annotations: {kubeletx.io/vm-power: Paused, kubeletx.io/vm-nics: '[]'}",
    )
    assert problems(pod) == [
        ("metadata.annotations[kubeletx.io/vm-power]", "is set together with spec.virtualMachine"),
        ("metadata.annotations[kubeletx.io/vm-nics]", "is set together with spec.nics"),
    ]


@pytest.mark.parametrize("spelling", ["field", "container"])
def test_a_machine_s_maximums_are_not_below_its_limits(spelling: str) -> None:
    limits = "resources: {limits: {cpu: '2', memory: 2Gi}}"
    notes = "kubeletx.io/vm-max-cpus: '1', kubeletx.io/vm-max-memory: 1Gi"
    if spelling == "field":
        machine = f"virtualMachine: {{name: a, image: i, {limits}}}"
        pod = full_pod(machine, metadata=f"annotations: {{{notes}}}")
    else:
        pod = full_pod(container=limits, metadata=VM_NOTES + notes + "}")
    assert problems(pod) == [
        ("metadata.annotations[kubeletx.io/vm-max-memory]", "'1Gi' is less than the limit of 2Gi"),
        ("metadata.annotations[kubeletx.io/vm-max-cpus]", "'1' is less than the limit of 2"),
    ]


def test_a_whole_public_key_is_taken_with_options_and_comments() -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBpOyMzs1yFhcdJpGqCFOQdNcGw6Xz7sRP8nTGe1u2hB me@desk"
    assert words.ssh_public_keys(f'# mine\n{key}\nrestrict,command="a b" {key}\n') == ""
    assert words.ssh_public_keys(key.replace("hB me", " me")) != ""


def test_a_virtlet_pod_that_says_it_is_a_machine_is_taken() -> None:
    notes = "kubernetes.io/target-runtime: virtlet.cloud}"
    assert problems(full_pod(metadata=VM_NOTES + notes)) == []
    assert problems(full_pod("runtimeClassName: vms", metadata="annotations: {" + notes)) == []


def test_a_machine_is_exactly_one_container() -> None:
    pod = full_pod("containers: [{name: a, image: i}, {name: b, image: i}]", metadata=VM_NOTES + "}")
    assert problems(pod) == [("spec.containers", "has 2 containers")]


def test_all_problems_are_found_at_once_and_each_says_what_to_do() -> None:
    found = validate_pod(
        full_pod("restartPolicy: x, hostname: A, volumes: [{}]", container="command: [x]"), "web.yaml"
    )
    assert [problem.field for problem in found] == [
        "spec.restartPolicy",
        "spec.hostname",
        "spec.volumes[0].name",
    ]
    assert all(isinstance(problem, InvalidPod) and problem.fix for problem in found)
    assert str(found[0]) == (
        "web.yaml (pod web): spec.restartPolicy: 'x' is not known; use Always, OnFailure or Never"
    )


def test_workload_types_of_plugins_are_known_when_declared() -> None:
    pod = full_pod(metadata="annotations: {kubeletx.io/workload-type: process}")
    assert validate_pod(pod, "x", {"container", "process"}) == ()
    assert validate_pod(pod, "x") == ()


@given(st.text(max_size=40))
def test_a_name_that_passes_is_safe_as_a_file_name(text: str) -> None:
    for check in (words.dns_label, words.dns_subdomain, words.uid, words.runtime_name):
        if text and check(text) == "":
            assert "/" not in text
            assert ".." not in text
            assert text.isascii()
            assert not any(c.isspace() for c in text)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**31) | st.sampled_from(["", "a", "A b", "../x", "/a", "-1", "1Gi", "Always"]),
    lambda children: st.lists(children, max_size=2)
    | st.dictionaries(
        st.sampled_from(
            ["name", "image", "exec", "command", "port", "httpGet", "limits", "cpu", "emptyDir", "sizeLimit", "mountPath",
             "path", "items", "key", "valueFrom", "fieldRef", "fieldPath", "preStop", "sleep", "seconds", "type", "sources"]
        ), children, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "name",
                "image",
                "env",
                "envFrom",
                "ports",
                "resources",
                "volumeMounts",
                "livenessProbe",
                "lifecycle",
                "securityContext",
            ]
        ),
        values,
        max_size=4,
    ),
    st.dictionaries(
        st.sampled_from(
            ["volumes", "securityContext", "dnsConfig", "tolerations", "virtualMachine", "nics", "overhead"]
        ),
        values,
        max_size=3,
    ),
)
def test_whatever_can_be_decoded_can_be_judged(container: dict[str, object], spec: dict[str, object]) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"},
        "spec": {**spec, "containers": [container]},
    }
    try:
        (pod,) = load_pods(json.dumps(document).encode(), "x")
    except InvalidPod:
        return
    for problem in validate_pod(set_defaults(pod), "x"):
        assert problem.field
        assert "\n" not in str(problem)


def test_the_design_document_s_own_sample_pod_needs_neither_key_nor_login() -> None:
    text = """
apiVersion: v1
kind: Pod
metadata:
  name: vm-with-nic-portid
spec:
  virtualMachine:
    name: testVM
    image: cloud-images.ubuntu.com/xenial/current/xenial-server-cloudimg-amd64-disk1.img
    resources:
      limits: {cpu: "1", memory: "1Gi"}
      requests: {cpu: "1", memory: "1Gi"}
  vpc: demo
  nics:
    - portId: 04fe371d-fddf-43c4-9419-b7d9cd4a2197
  # optional
  runtimeServiceName: libvirt-qemu
"""
    (pod,) = load_pods(text.encode(), "sample.yaml")
    assert problems(set_defaults(pod)) == []


@pytest.mark.parametrize(
    ("notes", "problem"),
    [
        ({"kubeletx.io/standby": "standby"}, ""),
        ({"kubeletx.io/standby": "hibernated", "kubeletx.io/standby-strategy": "pause"}, ""),
        ({"kubeletx.io/standby": ""}, "is not known"),
        ({"kubeletx.io/standby": "Standby"}, "is not known"),
        ({"kubeletx.io/standby-strategy": ""}, "is empty"),
        ({"kubeletx.io/standby": "standby", "kubeletx.io/workload-type": "vm"}, ""),
    ],
)
def test_annotations_on_standby(notes: dict[str, str], problem: str) -> None:
    made = Pod(metadata=ObjectMeta(name="web", annotations=notes))
    found = [one for one in validate_own(made, "x") if "standby" in (one.field or "")]
    assert bool(found) == bool(problem)
    assert all(problem in str(one) for one in found)
