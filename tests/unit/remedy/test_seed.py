"""The configuration of the seed of node remedy, completed by what it leaves out."""

from __future__ import annotations

from kubeletx.remedy.actions.pod_template import job_manifest
from kubeletx.remedy.model import FenceOperation, FenceProof, FlowStep, NodeFence, RemedyTask
from kubeletx.remedy.sources import LoadedConfig, load_config

from .config_values import node

CONFIGURATION = """
apiVersion: node-remedy/v1alpha
kind: Configuration
nodeSelector: type=compute
thresholdConfigs:
- nodeConditionType: Ready
  nodeConditionStatus: false
  nodeConditionPeriod: 5s
  remedy1:
   - name: repair
   - period: 3m
  remedy2:
   - name: terminate
   - clean-resourece: true
  recovery:
   - name: recovery
- nodeConditionType: DiskPressure
  nodeConditionStatus: true
  nodeConditionPeriod: 10m
  remedy1:
    name: fence
  recovery: recovery
remedyConfigs:
- name: repair
  podTemplate:
   spec:
    containers:
    - name: repair
      image: IMAGE:VERSION
      command: [ "binary", "clean node command" ]
      env: ["secret-key"]
      configmaps: ["fence-method-config"]
    restartPolicy: Never
- name: terminate
  podTemplate: {spec: {containers: [{name: terminate, image: "IMAGE:VERSION"}]}}
- name: recovery
  podTemplate: {spec: {containers: [{name: recovery, image: "IMAGE:VERSION"}]}}
"""

FENCING = """
- kind: ConfigMap
  apiVersion: v1
  metadata:
   name: fence-config-one
  data:
   config.properties: |-
    node_name=one
    isolation=fc-off
    power_management=eaton-off eaton-on
    recovery=fc-on
   fence-method-fc-on: |-
    template=fence-method-template-fc-switch-brocade
    plug=2
    action=on
   fence-method-fc-off: |-
    template=fence-method-template-fc-switch-brocade
    plug=2
    action=off
    storage=csi.example.com
   fence-method-eaton-on: |-
    template=fence-method-template-eaton-pdu
    plug=1
    action=on
   fence-method-eaton-off: |-
    template=fence-method-template-eaton-pdu
    plug=1
    action=off
- kind: ConfigMap
  apiVersion: v1
  metadata: {name: fence-method-template-fc-switch-brocade}
  data: {template.properties: "agent=fence_brocade\\nip=switch\\n"}
- kind: ConfigMap
  apiVersion: v1
  metadata: {name: fence-method-template-eaton-pdu}
  data: {template.properties: "agent=fence-eaton-snmp\\nip=pdu\\nsecret=pdu-{{.NodeName}}\\n"}
"""


def test_the_seeds_configuration_gives_courses_for_nodes_of_its_type() -> None:
    loaded = load_config({"seed.yaml": CONFIGURATION, "fence.yaml": FENCING}, {}, LoadedConfig())
    assert [str(problem) for problem in loaded.problems] == []
    assert loaded.configurations.courses(node("one", labels={"type": "bare-metal"})) == []
    ready, disk = loaded.configurations.courses(node("one", labels={"type": "compute"}))

    assert (ready.configuration, ready.threshold.name, ready.threshold.period) == (
        "seed",
        "Ready=False,Unknown",
        5.0,
    )
    assert ready.threshold.statuses == ("False", "Unknown")
    repair, terminate = ready.courses
    assert (repair.name, repair.period, repair.cleans) == ("repair", 180.0, False)
    assert (terminate.name, terminate.cleans) == ("terminate", True)
    assert [one.isolation[0].proof for one in (repair, terminate)] == [FenceProof.NONE, FenceProof.POWER]
    assert [method.kind for method in (*repair.isolation, *repair.recovery)] == ["job", "job"]
    container = repair.isolation[0].definition["spec"]["containers"][0]
    assert (container["env"], container["configmaps"]) == (["secret-key"], ["fence-method-config"])

    (fence,) = disk.courses
    assert fence.cleans
    assert [method.name for method in fence.power] == ["eaton-off", "eaton-on"]
    assert [method.name for method in fence.recovery] == ["fc-on", "recovery"]
    off, on = fence.power
    assert off.agent == "fence_eaton_snmp"
    assert off.parameters == {"action": "off", "ip": "pdu", "plug": "1"}
    assert off.secrets == ("pdu-one",)
    assert [off.proof, on.proof] == [FenceProof.POWER, FenceProof.NONE]
    assert fence.isolation[0].proof is FenceProof.STORAGE
    assert fence.isolation[0].storage == ("csi.example.com",)


def test_notes_name_the_forms_that_were_read() -> None:
    loaded = load_config({"seed.yaml": CONFIGURATION}, {}, LoadedConfig())
    assert loaded.notes == (
        "seed.yaml: thresholdConfigs[0].recovery: read as one mapping, from a list of 1",
        "seed.yaml: thresholdConfigs[0].remedy1: read as one mapping, from a list of 2",
        "seed.yaml: thresholdConfigs[0].remedy2: read as one mapping, from a list of 2",
        "seed.yaml: thresholdConfigs[0].remedy2[1].clean-resourece: read as clean-resource",
    )


def test_short_forms_of_the_seed_become_variables_from_secrets_and_config_maps() -> None:
    (document,) = load_config({"seed.yaml": CONFIGURATION}, {}, LoadedConfig()).documents.values()
    task = RemedyTask(
        node=node("one"),
        fence=NodeFence(node="one"),
        step=FlowStep.ISOLATION,
        method=document.jobs["repair"],
        operation=FenceOperation(id="1"),
    )
    (container,) = job_manifest(task, "default")["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [
        {"secretRef": {"name": "secret-key"}},
        {"configMapRef": {"name": "fence-method-config"}},
    ]
    assert "configmaps" not in container
