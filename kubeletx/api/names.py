"""Constants for labels, annotations, conditions, reasons and other words that other programs read.

Names with ``io.kubernetes.`` are the kubelet's (pkg/kubelet/types/labels.go, kuberuntime/labels.go), so that crictl,
log collectors and cAdvisor recognise the agent's containers. Names of kubeletx itself ("ours") start with
``kubeletx.io/``.
"""

from __future__ import annotations

from typing import Final

# --- labels on every sandbox and unit (kubelet's) ---
POD_NAME: Final = "io.kubernetes.pod.name"
POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"
POD_UID: Final = "io.kubernetes.pod.uid"
CONTAINER_NAME: Final = "io.kubernetes.container.name"

# --- labels on every sandbox and unit (ours): the agent selects its objects in lists and events by both ---
AGENT_ID: Final = "kubeletx.io/agent-id"
RUNTIME_NAME: Final = "kubeletx.io/runtime"

# --- annotations on sandboxes (ours): enough to stop a pod properly if the state database has no record of it ---
POD_SOURCE: Final = "kubeletx.io/source"
POD_SPEC_HASH: Final = "kubeletx.io/spec-hash"
POD_GRACE_SECONDS: Final = "kubeletx.io/termination-grace-seconds"
RUNTIME_KIND: Final = "kubeletx.io/runtime-kind"
WORKLOAD_TYPE: Final = "kubeletx.io/workload-type"

# --- annotations on units (kubelet's) ---
CONTAINER_HASH: Final = "io.kubernetes.container.hash"
CONTAINER_RESTART_COUNT: Final = "io.kubernetes.container.restartCount"
CONTAINER_TERMINATION_PATH: Final = "io.kubernetes.container.terminationMessagePath"
CONTAINER_TERMINATION_POLICY: Final = "io.kubernetes.container.terminationMessagePolicy"
CONTAINER_PRESTOP: Final = "io.kubernetes.container.preStopHandler"
CONTAINER_PORTS: Final = "io.kubernetes.container.ports"
POD_GRACE_PERIOD: Final = "io.kubernetes.pod.terminationGracePeriod"

# --- annotations on units (ours) ---
RESTART_GENERATION: Final = "kubeletx.io/restart-generation"

MADE_WITH_RESOURCES: Final = "kubeletx.io/made-with-resources"
"""CPU and memory requests and limits in the container's spec when the container was created, as JSON."""

# --- annotations on sandboxes (ours) ---
MADE_WITH_POD_RESOURCES: Final = "kubeletx.io/made-with-pod-resources"
"""Pod-level CPU and memory requests and limits when the sandbox was created, as JSON; absent if the spec had none."""

# --- annotations on units that are virtual machines (ours): interfaces and CPU/memory limits at their creation ---
MADE_WITH_NICS: Final = "kubeletx.io/made-with-nics"
MADE_WITH_SIZE: Final = "kubeletx.io/made-with-size"

# --- annotations on pods (kubelet's) ---
CONFIG_SOURCE: Final = "kubernetes.io/config.source"
CONFIG_SEEN: Final = "kubernetes.io/config.seen"
CONFIG_HASH: Final = "kubernetes.io/config.hash"
CONFIG_MIRROR: Final = "kubernetes.io/config.mirror"

# --- annotations on pods (ours) ---
OWN_PREFIX: Final = "kubeletx.io/"
RUNTIME_SERVICE_NAME: Final = "kubeletx.io/runtime-service-name"
"""Annotation: runtime to run the pod; absent: the default runtime of its workload type."""
CHOOSING: Final = (RUNTIME_SERVICE_NAME, WORKLOAD_TYPE)
"""Annotations by which a pod chooses its runtime; read when the pod is assigned to a runtime, ignored later."""
BOUND_RUNTIME: Final = "kubeletx.io/bound-runtime"
ORPHANED: Final = "kubeletx.io/orphaned"
"""Annotation ("true") of a pod that was found on a runtime and that no source claims (DECISIONS 8)."""
AGENT_IDENTITY: Final = "kubeletx.io/agent-identity"
"""Annotation on the node's Lease: identity of the agent that renews the Lease."""

BACKOFF_LIMIT: Final = "kubeletx.io/backoff-limit"
"""Annotation: restarts of all containers after which the pod fails, as ``backoffLimit`` of a Job; absent: no limit."""

# --- annotations on pods (ours): standby ---
STANDBY: Final = "kubeletx.io/standby"
"""Annotation: state of the pod once it is ready, ``standby`` or ``hibernated``; absent: it runs."""
STANDBY_STRATEGY: Final = "kubeletx.io/standby-strategy"
"""Annotation: how the runtime freezes the pod; the agent passes it to the runtime unchanged."""
MEMORY_THRESHOLD: Final = "kubeletx.io/standby-memory-threshold"
"""Annotation: memory above which a runtime that can do so freezes the pod at its start; passed to it unchanged."""

# --- annotations on pods (ours): sessions ---
SESSIONS: Final = "kubeletx.io/sessions"
"""Annotation: ``true`` if the application in the pod serves sessions."""
SESSION_INIT_CONTAINERS: Final = "kubeletx.io/sessions-in-init-containers"
"""Annotation: ``true`` if init containers get the mounts and variables of sessions, too."""
APPLICATION: Final = "kubeletx.io/application"
"""Annotation: name of the application that the pod runs; absent: that of its sessions."""
APPLICATION_DATA: Final = "kubeletx.io/application-data"
"""Annotation: custom text for the application, which the agent passes to it unchanged."""

# --- annotations on pods (ours): settings of a virtual machine whose manifest is written as one container ---
VM_PREFIX: Final = "kubeletx.io/vm-"
"""Prefix of machine settings. Annotations with it that are not listed below are passed to the runtime."""
VM_POWER: Final = "kubeletx.io/vm-power"
"""Annotation: power of the machine: Running, Paused, Suspended or Shutdown."""
VM_SSH_KEYS: Final = "kubeletx.io/vm-ssh-keys"
"""Annotation: SSH public keys, one per line."""
VM_USER_DATA: Final = "kubeletx.io/vm-user-data"
"""Annotation: cloud-init user data as plain text, not encoded."""
VM_USER_DATA_BASE64: Final = "kubeletx.io/vm-user-data-base64"
"""Annotation: cloud-init user data in base64."""
VM_SCRIPT: Final = "kubeletx.io/vm-user-data-script"
"""Annotation: script that cloud-init runs at the guest's first start."""
VM_META_DATA: Final = "kubeletx.io/vm-meta-data"
"""Annotation: a JSON object whose keys are added to cloud-init's meta-data."""
VM_SHUTDOWN_BEHAVIOR: Final = "kubeletx.io/vm-shutdown-behavior"
"""Annotation: stop or terminate."""
VM_BOOT_VOLUME: Final = "kubeletx.io/vm-boot-volume"
"""Annotation: name of the volume device to boot from; absent: a temporary overlay of the image."""
VM_KEY_PAIR: Final = "kubeletx.io/vm-key-pair-name"
"""Annotation: name of the SSH key pair."""
VM_CERTIFICATES: Final = "kubeletx.io/vm-trusted-image-certificates"
"""Annotation: certificates, one per line."""
VM_NICS: Final = "kubeletx.io/vm-nics"
"""Annotation: a JSON list of interfaces, with the fields of spec.nics."""
VM_VPC: Final = "kubeletx.io/vm-vpc"
"""Annotation: virtual private cloud of the machine's interfaces."""
VM_DISK_SIZE: Final = "kubeletx.io/vm-disk-size"
"""Annotation: size of the root disk; absent: the ephemeral-storage limit."""
VM_FIRMWARE: Final = "kubeletx.io/vm-firmware"
"""Annotation: bios or uefi; absent: bios."""
VM_MAX_CPUS: Final = "kubeletx.io/vm-max-cpus"
"""Annotation: maximum of CPUs to which a running machine can be resized."""
VM_MAX_MEMORY: Final = "kubeletx.io/vm-max-memory"
"""Annotation: maximum of memory to which a running machine can be resized."""

# --- pod conditions ---
ALL_CONTAINERS_RESTARTING: Final = "AllContainersRestarting"
POD_READY_TO_START: Final = "PodReadyToStartContainers"
POD_INITIALIZED: Final = "Initialized"
POD_READY: Final = "Ready"
CONTAINERS_READY: Final = "ContainersReady"
POD_SCHEDULED: Final = "PodScheduled"
DISRUPTION_TARGET: Final = "DisruptionTarget"
RUNTIME_REACHABLE: Final = "kubeletx.io/RuntimeReachable"
"""Condition: False while the pod's runtime does not answer; absent if the runtime has always answered."""
UNITS_RUNNING: Final = "kubeletx.io/UnitsRunning"
"""Condition: False while units are paused, suspended or switched off; absent otherwise. The message has their states.

Kubernetes has no container state for paused and suspended, so the container statuses show these units as running.
"""
RUNTIME_CONDITION_PREFIX: Final = "kubeletx.io/RuntimeReady-"
"""Begins the type of a Node's condition that shows whether a runtime is ready; the runtime's name follows."""
STANDBY_CONDITION: Final = "kubeletx.io/Standby"
"""Condition: True while all containers of the pod are frozen or hibernated; absent if that was never requested."""
VM_READY: Final = "VirtualMachineReady"
"""Condition of virtual machine pods: True if the guest runs and is ready."""
MANIFEST_VALID: Final = "kubeletx.io/ManifestValid"
"""Condition: False while the manifest of a running pod is invalid; the pod runs on unchanged."""

# --- the node (kubelet's) ---
CONTROLLER_ATTACHES: Final = "volumes.kubernetes.io/controller-managed-attach-detach"
"""Node annotation that the agent removes: this node attaches its volumes itself, without a controller."""

# --- the node (ours) ---
RUNTIMES_READY: Final = "RuntimesReady"
"""Node condition: True only if all runtimes are ready."""
RUNTIME_LABEL_PREFIX: Final = "runtime.kubeletx.io/"
"""Prefix of a node label for each runtime; the value is ready, notready or cordoned."""
WORKLOAD_TAINT_PREFIX: Final = "workload.kubeletx.io/"
"""Prefix of a node taint for each workload type that has no ready runtime."""
NO_READY_RUNTIME: Final = "no-ready-runtime"
"""Value of the taints with prefix `WORKLOAD_TAINT_PREFIX`."""
RUNTIME_VERSION_PREFIX: Final = "version.kubeletx.io/"
"""Prefix of a node annotation for each runtime; the value is the backend's name and version."""
RUNTIME_TYPE_PREFIX: Final = "workload-type.kubeletx.io/"
"""Prefix of a node annotation for each runtime; the value is its workload type."""
DRAINED: Final = "kubeletx.io/drained"
"""Annotation on a Node that the agent cordoned for a drain that the guardian asked for; removed when it is uncordoned."""
PROVIDED_NODE_IP: Final = "alpha.kubernetes.io/provided-node-ip"
"""Annotation of a node with an external cloud provider: the addresses of ``--node-ip``."""
EXTERNAL_CLOUD_TAINT: Final = "node.cloudprovider.kubernetes.io/uninitialized"
"""Taint of a node with an external cloud provider at registration; the cloud controller removes it."""

# --- reasons of pods that wait for a runtime, or are rejected (DECISIONS 5) ---
RUNTIME_NOT_FOUND: Final = "RuntimeNotFound"
RUNTIME_CORDONED: Final = "RuntimeCordoned"
RUNTIME_NOT_READY: Final = "RuntimeNotReady"
ADMISSION_CHECK_FAILED: Final = "AdmissionCheckFailed"
BINDING_NOT_WRITTEN: Final = "BindingNotWritten"
PLUGIN_ERROR: Final = "PluginError"
"""Reason of the error for an unexpected exception or a wrong value of a plugin."""
RUNTIME_MISMATCH: Final = "RuntimeMismatch"
RUNTIME_UNSUPPORTED: Final = "RuntimeUnsupported"
STRICT_GROUPS_UNSUPPORTED: Final = "SupplementalGroupsPolicyNotSupported"

# --- reasons of pods that the node ended or did not admit ---
EVICTED: Final = "Evicted"
"""Reason of a pod that was ended, or not admitted, because the node lacks a resource."""
TERMINATED: Final = "Terminated"
"""Reason of a pod that the shutdown of the node ended."""
PREEMPTING: Final = "Preempting"
"""Reason of a pod that was ended to free resources for a critical pod, and of the critical pod while it waits."""
UNEXPECTED_ADMISSION_ERROR: Final = "UnexpectedAdmissionError"
"""Reason of a critical pod that is refused because ending other pods would not free enough resources."""
NODE_SHUTDOWN: Final = "NodeShutdown"
"""Reason of a pod that was not admitted because the node is shutting down."""
TERMINATION_BY_KUBELET: Final = "TerminationByKubelet"
"""Reason of the condition DisruptionTarget on pods that the node ended."""

# --- how a unit ended ---
START_CUT_OFF: Final = "StartCutOff"
"""`UnitStatus.reason` of an exited unit that never ran, because its start was interrupted.

The cause is a crash of the agent or a deadline. The unit has no exit code; the agent removes it and creates it again.
"""


class Event:
    """Event reasons of the kubelet (pkg/kubelet/events/event.go); below ``# ours``, reasons that only kubeletx has."""

    CREATED: Final = "Created"
    STARTED: Final = "Started"
    FAILED: Final = "Failed"
    KILLING: Final = "Killing"
    PREEMPTING: Final = "Preempting"
    BACK_OFF: Final = "BackOff"
    FAILED_POST_START_HOOK: Final = "FailedPostStartHook"
    FAILED_PRE_STOP_HOOK: Final = "FailedPreStopHook"
    LIFECYCLE_HTTP_FALLBACK: Final = "LifecycleHTTPFallback"
    FAILED_KILL_POD: Final = "FailedKillPod"
    NETWORK_NOT_READY: Final = "NetworkNotReady"
    FAILED_VALIDATION: Final = "FailedValidation"
    PULLING: Final = "Pulling"
    PULLED: Final = "Pulled"
    INSPECT_FAILED: Final = "InspectFailed"
    ERR_IMAGE_NEVER_PULL: Final = "ErrImageNeverPull"
    FAILED_PULL_SECRET: Final = "FailedToRetrieveImagePullSecret"
    SANDBOX_CHANGED: Final = "SandboxChanged"
    FAILED_CREATE_SANDBOX: Final = "FailedCreatePodSandBox"
    UNHEALTHY: Final = "Unhealthy"
    PROBE_WARNING: Final = "ProbeWarning"
    FAILED_MOUNT: Final = "FailedMount"
    FILE_SYSTEM_RESIZED: Final = "FileSystemResizeSuccessful"
    FILE_SYSTEM_RESIZE_FAILED: Final = "FileSystemResizeFailed"
    FAILED_PREPARE_RESOURCES: Final = "FailedPrepareDynamicResources"
    RESIZE_COMPLETED: Final = "ResizeCompleted"
    RESIZE_DEFERRED: Final = "ResizeDeferred"
    RESIZE_INFEASIBLE: Final = "ResizeInfeasible"
    RESIZE_ERROR: Final = "ResizeError"
    INVALID_VARIABLE_NAMES: Final = "InvalidEnvironmentVariableNames"
    DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
    BACKOFF_LIMIT_EXCEEDED: Final = "BackoffLimitExceeded"
    MISSING_CLUSTER_DNS: Final = "MissingClusterDNS"
    CGROUP_V1: Final = "CgroupV1"
    STARTING: Final = "Starting"
    NODE_READY: Final = "NodeReady"
    NODE_NOT_READY: Final = "NodeNotReady"
    NODE_SCHEDULABLE: Final = "NodeSchedulable"
    NODE_NOT_SCHEDULABLE: Final = "NodeNotSchedulable"
    NODE_ALLOCATABLE_ENFORCED: Final = "NodeAllocatableEnforced"
    DUPLICATE_NODE: Final = "DuplicateNode"
    SUFFICIENT_MEMORY: Final = "NodeHasSufficientMemory"
    INSUFFICIENT_MEMORY: Final = "NodeHasInsufficientMemory"
    NO_DISK_PRESSURE: Final = "NodeHasNoDiskPressure"
    HAS_DISK_PRESSURE: Final = "NodeHasDiskPressure"
    SUFFICIENT_PID: Final = "NodeHasSufficientPID"
    INSUFFICIENT_PID: Final = "NodeHasInsufficientPID"
    IMAGE_GC_FAILED: Final = "ImageGCFailed"
    INVALID_DISK_CAPACITY: Final = "InvalidDiskCapacity"
    EVICTED: Final = "Evicted"
    SHUTDOWN: Final = "Shutdown"
    EVICTION_THRESHOLD_MET: Final = "EvictionThresholdMet"
    # ours
    MACHINE_PAUSED: Final = "MachinePaused"
    MACHINE_RESUMED: Final = "MachineResumed"
    MACHINE_SUSPENDED: Final = "MachineSuspended"
    MACHINE_OFF: Final = "MachineOff"
    MACHINE_HELD: Final = "MachineHeld"
    MACHINE_REBOOTED: Final = "MachineRebooted"
    MACHINE_RESIZED: Final = "MachineResized"
    NIC_ATTACHED: Final = "NicAttached"
    NIC_DETACHED: Final = "NicDetached"
    STANDBY: Final = "Standby"
    HIBERNATED: Final = "Hibernated"
    ACTIVATED: Final = "Activated"
    FAILED_POWER: Final = "FailedPower"
    FAILED_NIC: Final = "FailedNic"
    FAILED_RESIZE: Final = "FailedResize"
    POWER_UNSUPPORTED: Final = "PowerUnsupported"
    NIC_UNSUPPORTED: Final = "NicUnsupported"
    RESIZE_UNSUPPORTED: Final = "ResizeUnsupported"
    OPERATION_FAILED: Final = "OperationFailed"
    OPERATION_UNKNOWN: Final = "OperationUnknown"
    RUNTIME_BOUND: Final = "RuntimeBound"
    UNKNOWN_FIELD: Final = "UnknownField"
    HEALTH_CHECK_FAILED: Final = "HealthCheckFailed"
    HEALTH_CHECK_PASSED: Final = "HealthCheckPassed"
    FAILED_SOURCE: Final = "FailedSource"
    NAME_TAKEN: Final = "NameTaken"
    FAILED_MIRROR: Final = "FailedMirrorPod"
    EDGE_HEALTH_CHANGED: Final = "EdgeHealthChanged"
    RUNTIME_ISOLATED: Final = "RuntimeIsolated"
    RUNTIME_READY: Final = "RuntimeReady"
    RUNTIME_WITHOUT_EFFECT: Final = "RuntimeWithoutEffect"
    RUNTIME_EVENTS_THROTTLED: Final = "RuntimeEventsThrottled"
    RUNTIME_NOT_READY: Final = "RuntimeNotReady"
