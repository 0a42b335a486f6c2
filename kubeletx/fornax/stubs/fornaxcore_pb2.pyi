from google.protobuf import empty_pb2 as _empty_pb2
from kubeletx.fornax.stubs import fornax_session_pb2 as _fornax_session_pb2
from kubeletx.fornax.stubs import k8s_core_v1_pb2 as _k8s_core_v1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MessageType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED: _ClassVar[MessageType]
    FORNAX_CORE_CONFIGURATION: _ClassVar[MessageType]
    NODE_CONFIGURATION: _ClassVar[MessageType]
    NODE_REGISTER: _ClassVar[MessageType]
    NODE_READY: _ClassVar[MessageType]
    NODE_STATE: _ClassVar[MessageType]
    NODE_FULL_SYNC: _ClassVar[MessageType]
    POD_CREATE: _ClassVar[MessageType]
    POD_TERMINATE: _ClassVar[MessageType]
    POD_HIBERNATE: _ClassVar[MessageType]
    POD_STATE: _ClassVar[MessageType]
    SESSION_OPEN: _ClassVar[MessageType]
    SESSION_CLOSE: _ClassVar[MessageType]
    SESSION_STATE: _ClassVar[MessageType]
    POD_ACTIVE: _ClassVar[MessageType]
UNSPECIFIED: MessageType
FORNAX_CORE_CONFIGURATION: MessageType
NODE_CONFIGURATION: MessageType
NODE_REGISTER: MessageType
NODE_READY: MessageType
NODE_STATE: MessageType
NODE_FULL_SYNC: MessageType
POD_CREATE: MessageType
POD_TERMINATE: MessageType
POD_HIBERNATE: MessageType
POD_STATE: MessageType
SESSION_OPEN: MessageType
SESSION_CLOSE: MessageType
SESSION_STATE: MessageType
POD_ACTIVE: MessageType

class FornaxCoreMessage(_message.Message):
    __slots__ = ("nodeIdentifier", "messageType", "fornaxCoreConfiguration", "nodeConfiguration", "nodeRegistry", "nodeReady", "nodeState", "nodeFullSync", "podCreate", "podTerminate", "podHibernate", "podState", "sessionOpen", "sessionClose", "sessionState", "podActive", "ownership")
    NODEIDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    MESSAGETYPE_FIELD_NUMBER: _ClassVar[int]
    FORNAXCORECONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    NODECONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    NODEREGISTRY_FIELD_NUMBER: _ClassVar[int]
    NODEREADY_FIELD_NUMBER: _ClassVar[int]
    NODESTATE_FIELD_NUMBER: _ClassVar[int]
    NODEFULLSYNC_FIELD_NUMBER: _ClassVar[int]
    PODCREATE_FIELD_NUMBER: _ClassVar[int]
    PODTERMINATE_FIELD_NUMBER: _ClassVar[int]
    PODHIBERNATE_FIELD_NUMBER: _ClassVar[int]
    PODSTATE_FIELD_NUMBER: _ClassVar[int]
    SESSIONOPEN_FIELD_NUMBER: _ClassVar[int]
    SESSIONCLOSE_FIELD_NUMBER: _ClassVar[int]
    SESSIONSTATE_FIELD_NUMBER: _ClassVar[int]
    PODACTIVE_FIELD_NUMBER: _ClassVar[int]
    OWNERSHIP_FIELD_NUMBER: _ClassVar[int]
    nodeIdentifier: NodeIdentifier
    messageType: MessageType
    fornaxCoreConfiguration: FornaxCoreConfiguration
    nodeConfiguration: NodeConfiguration
    nodeRegistry: NodeRegistry
    nodeReady: NodeReady
    nodeState: NodeState
    nodeFullSync: NodeFullSync
    podCreate: PodCreate
    podTerminate: PodTerminate
    podHibernate: PodHibernate
    podState: PodState
    sessionOpen: SessionOpen
    sessionClose: SessionClose
    sessionState: SessionState
    podActive: PodActive
    ownership: FornaxCoreConfiguration
    def __init__(self, nodeIdentifier: _Optional[_Union[NodeIdentifier, _Mapping]] = ..., messageType: _Optional[_Union[MessageType, str]] = ..., fornaxCoreConfiguration: _Optional[_Union[FornaxCoreConfiguration, _Mapping]] = ..., nodeConfiguration: _Optional[_Union[NodeConfiguration, _Mapping]] = ..., nodeRegistry: _Optional[_Union[NodeRegistry, _Mapping]] = ..., nodeReady: _Optional[_Union[NodeReady, _Mapping]] = ..., nodeState: _Optional[_Union[NodeState, _Mapping]] = ..., nodeFullSync: _Optional[_Union[NodeFullSync, _Mapping]] = ..., podCreate: _Optional[_Union[PodCreate, _Mapping]] = ..., podTerminate: _Optional[_Union[PodTerminate, _Mapping]] = ..., podHibernate: _Optional[_Union[PodHibernate, _Mapping]] = ..., podState: _Optional[_Union[PodState, _Mapping]] = ..., sessionOpen: _Optional[_Union[SessionOpen, _Mapping]] = ..., sessionClose: _Optional[_Union[SessionClose, _Mapping]] = ..., sessionState: _Optional[_Union[SessionState, _Mapping]] = ..., podActive: _Optional[_Union[PodActive, _Mapping]] = ..., ownership: _Optional[_Union[FornaxCoreConfiguration, _Mapping]] = ...) -> None: ...

class FornaxCore(_message.Message):
    __slots__ = ("ip", "identifier")
    IP_FIELD_NUMBER: _ClassVar[int]
    IDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    ip: str
    identifier: str
    def __init__(self, ip: _Optional[str] = ..., identifier: _Optional[str] = ...) -> None: ...

class FornaxCoreConfiguration(_message.Message):
    __slots__ = ("primary", "standbys")
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    STANDBYS_FIELD_NUMBER: _ClassVar[int]
    primary: FornaxCore
    standbys: _containers.RepeatedCompositeFieldContainer[FornaxCore]
    def __init__(self, primary: _Optional[_Union[FornaxCore, _Mapping]] = ..., standbys: _Optional[_Iterable[_Union[FornaxCore, _Mapping]]] = ...) -> None: ...

class NodeIdentifier(_message.Message):
    __slots__ = ("ip", "identifier")
    IP_FIELD_NUMBER: _ClassVar[int]
    IDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    ip: str
    identifier: str
    def __init__(self, ip: _Optional[str] = ..., identifier: _Optional[str] = ...) -> None: ...

class NodeRegistry(_message.Message):
    __slots__ = ("nodeRevision", "node")
    NODEREVISION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    nodeRevision: int
    node: _k8s_core_v1_pb2.Node
    def __init__(self, nodeRevision: _Optional[int] = ..., node: _Optional[_Union[_k8s_core_v1_pb2.Node, _Mapping]] = ...) -> None: ...

class NodeFullSync(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeConfiguration(_message.Message):
    __slots__ = ("clusterDomain", "node", "daemonPods")
    CLUSTERDOMAIN_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DAEMONPODS_FIELD_NUMBER: _ClassVar[int]
    clusterDomain: str
    node: _k8s_core_v1_pb2.Node
    daemonPods: _containers.RepeatedCompositeFieldContainer[_k8s_core_v1_pb2.Pod]
    def __init__(self, clusterDomain: _Optional[str] = ..., node: _Optional[_Union[_k8s_core_v1_pb2.Node, _Mapping]] = ..., daemonPods: _Optional[_Iterable[_Union[_k8s_core_v1_pb2.Pod, _Mapping]]] = ...) -> None: ...

class NodeReady(_message.Message):
    __slots__ = ("nodeRevision", "node", "podStates", "sessionStates")
    NODEREVISION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PODSTATES_FIELD_NUMBER: _ClassVar[int]
    SESSIONSTATES_FIELD_NUMBER: _ClassVar[int]
    nodeRevision: int
    node: _k8s_core_v1_pb2.Node
    podStates: _containers.RepeatedCompositeFieldContainer[PodState]
    sessionStates: _containers.RepeatedCompositeFieldContainer[SessionState]
    def __init__(self, nodeRevision: _Optional[int] = ..., node: _Optional[_Union[_k8s_core_v1_pb2.Node, _Mapping]] = ..., podStates: _Optional[_Iterable[_Union[PodState, _Mapping]]] = ..., sessionStates: _Optional[_Iterable[_Union[SessionState, _Mapping]]] = ...) -> None: ...

class NodeState(_message.Message):
    __slots__ = ("nodeRevision", "node", "podStates", "runningPods", "standbyPods", "sessionStates")
    NODEREVISION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PODSTATES_FIELD_NUMBER: _ClassVar[int]
    RUNNINGPODS_FIELD_NUMBER: _ClassVar[int]
    STANDBYPODS_FIELD_NUMBER: _ClassVar[int]
    SESSIONSTATES_FIELD_NUMBER: _ClassVar[int]
    nodeRevision: int
    node: _k8s_core_v1_pb2.Node
    podStates: _containers.RepeatedCompositeFieldContainer[PodState]
    runningPods: _containers.RepeatedScalarFieldContainer[str]
    standbyPods: _containers.RepeatedScalarFieldContainer[str]
    sessionStates: _containers.RepeatedCompositeFieldContainer[SessionState]
    def __init__(self, nodeRevision: _Optional[int] = ..., node: _Optional[_Union[_k8s_core_v1_pb2.Node, _Mapping]] = ..., podStates: _Optional[_Iterable[_Union[PodState, _Mapping]]] = ..., runningPods: _Optional[_Iterable[str]] = ..., standbyPods: _Optional[_Iterable[str]] = ..., sessionStates: _Optional[_Iterable[_Union[SessionState, _Mapping]]] = ...) -> None: ...

class PodState(_message.Message):
    __slots__ = ("nodeRevision", "state", "pod", "resource", "sessionStates")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        Creating: _ClassVar[PodState.State]
        Standby: _ClassVar[PodState.State]
        Activating: _ClassVar[PodState.State]
        Running: _ClassVar[PodState.State]
        Evacuating: _ClassVar[PodState.State]
        Terminating: _ClassVar[PodState.State]
        Terminated: _ClassVar[PodState.State]
    Creating: PodState.State
    Standby: PodState.State
    Activating: PodState.State
    Running: PodState.State
    Evacuating: PodState.State
    Terminating: PodState.State
    Terminated: PodState.State
    NODEREVISION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    SESSIONSTATES_FIELD_NUMBER: _ClassVar[int]
    nodeRevision: int
    state: PodState.State
    pod: _k8s_core_v1_pb2.Pod
    resource: PodResource
    sessionStates: _containers.RepeatedCompositeFieldContainer[SessionState]
    def __init__(self, nodeRevision: _Optional[int] = ..., state: _Optional[_Union[PodState.State, str]] = ..., pod: _Optional[_Union[_k8s_core_v1_pb2.Pod, _Mapping]] = ..., resource: _Optional[_Union[PodResource, _Mapping]] = ..., sessionStates: _Optional[_Iterable[_Union[SessionState, _Mapping]]] = ...) -> None: ...

class PodResource(_message.Message):
    __slots__ = ("resourceQuotaStatus", "volumes")
    RESOURCEQUOTASTATUS_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    resourceQuotaStatus: _k8s_core_v1_pb2.ResourceQuotaStatus
    volumes: _containers.RepeatedCompositeFieldContainer[_k8s_core_v1_pb2.AttachedVolume]
    def __init__(self, resourceQuotaStatus: _Optional[_Union[_k8s_core_v1_pb2.ResourceQuotaStatus, _Mapping]] = ..., volumes: _Optional[_Iterable[_Union[_k8s_core_v1_pb2.AttachedVolume, _Mapping]]] = ...) -> None: ...

class PodCreate(_message.Message):
    __slots__ = ("podIdentifier", "pod", "configMap", "secrets", "configMaps")
    PODIDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    CONFIGMAP_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    CONFIGMAPS_FIELD_NUMBER: _ClassVar[int]
    podIdentifier: str
    pod: _k8s_core_v1_pb2.Pod
    configMap: _k8s_core_v1_pb2.ConfigMap
    secrets: _containers.RepeatedCompositeFieldContainer[_k8s_core_v1_pb2.Secret]
    configMaps: _containers.RepeatedCompositeFieldContainer[_k8s_core_v1_pb2.ConfigMap]
    def __init__(self, podIdentifier: _Optional[str] = ..., pod: _Optional[_Union[_k8s_core_v1_pb2.Pod, _Mapping]] = ..., configMap: _Optional[_Union[_k8s_core_v1_pb2.ConfigMap, _Mapping]] = ..., secrets: _Optional[_Iterable[_Union[_k8s_core_v1_pb2.Secret, _Mapping]]] = ..., configMaps: _Optional[_Iterable[_Union[_k8s_core_v1_pb2.ConfigMap, _Mapping]]] = ...) -> None: ...

class PodTerminate(_message.Message):
    __slots__ = ("podIdentifier",)
    PODIDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    podIdentifier: str
    def __init__(self, podIdentifier: _Optional[str] = ...) -> None: ...

class PodActive(_message.Message):
    __slots__ = ("podIdentifier",)
    PODIDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    podIdentifier: str
    def __init__(self, podIdentifier: _Optional[str] = ...) -> None: ...

class PodHibernate(_message.Message):
    __slots__ = ("podIdentifier",)
    PODIDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    podIdentifier: str
    def __init__(self, podIdentifier: _Optional[str] = ...) -> None: ...

class SessionState(_message.Message):
    __slots__ = ("nodeRevision", "session", "message")
    NODEREVISION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    nodeRevision: int
    session: _fornax_session_pb2.ApplicationSession
    message: str
    def __init__(self, nodeRevision: _Optional[int] = ..., session: _Optional[_Union[_fornax_session_pb2.ApplicationSession, _Mapping]] = ..., message: _Optional[str] = ...) -> None: ...

class SessionOpen(_message.Message):
    __slots__ = ("sessionIdentifier", "podIdentifier", "session")
    SESSIONIDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    PODIDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    sessionIdentifier: str
    podIdentifier: str
    session: _fornax_session_pb2.ApplicationSession
    def __init__(self, sessionIdentifier: _Optional[str] = ..., podIdentifier: _Optional[str] = ..., session: _Optional[_Union[_fornax_session_pb2.ApplicationSession, _Mapping]] = ...) -> None: ...

class SessionClose(_message.Message):
    __slots__ = ("sessionIdentifier", "podIdentifier")
    SESSIONIDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    PODIDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    sessionIdentifier: str
    podIdentifier: str
    def __init__(self, sessionIdentifier: _Optional[str] = ..., podIdentifier: _Optional[str] = ...) -> None: ...
