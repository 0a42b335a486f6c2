from kubeletx.fornax.stubs import k8s_core_v1_pb2 as _k8s_core_v1_pb2
from kubeletx.fornax.stubs import k8s_meta_v1_pb2 as _k8s_meta_v1_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ApplicationSession(_message.Message):
    __slots__ = ("metadata", "spec", "status")
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    metadata: _k8s_meta_v1_pb2.ObjectMeta
    spec: ApplicationSessionSpec
    status: ApplicationSessionStatus
    def __init__(self, metadata: _Optional[_Union[_k8s_meta_v1_pb2.ObjectMeta, _Mapping]] = ..., spec: _Optional[_Union[ApplicationSessionSpec, _Mapping]] = ..., status: _Optional[_Union[ApplicationSessionStatus, _Mapping]] = ...) -> None: ...

class ApplicationSessionSpec(_message.Message):
    __slots__ = ("applicationName", "sessionData", "killInstanceWhenSessionClosed", "closeGracePeriodSeconds", "openTimeoutSeconds")
    APPLICATIONNAME_FIELD_NUMBER: _ClassVar[int]
    SESSIONDATA_FIELD_NUMBER: _ClassVar[int]
    KILLINSTANCEWHENSESSIONCLOSED_FIELD_NUMBER: _ClassVar[int]
    CLOSEGRACEPERIODSECONDS_FIELD_NUMBER: _ClassVar[int]
    OPENTIMEOUTSECONDS_FIELD_NUMBER: _ClassVar[int]
    applicationName: str
    sessionData: str
    killInstanceWhenSessionClosed: bool
    closeGracePeriodSeconds: int
    openTimeoutSeconds: int
    def __init__(self, applicationName: _Optional[str] = ..., sessionData: _Optional[str] = ..., killInstanceWhenSessionClosed: _Optional[bool] = ..., closeGracePeriodSeconds: _Optional[int] = ..., openTimeoutSeconds: _Optional[int] = ...) -> None: ...

class ApplicationSessionStatus(_message.Message):
    __slots__ = ("accessEndPoints", "sessionStatus", "clientSessions", "availableTime", "closeTime", "availableTimeMicro")
    ACCESSENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    SESSIONSTATUS_FIELD_NUMBER: _ClassVar[int]
    CLIENTSESSIONS_FIELD_NUMBER: _ClassVar[int]
    AVAILABLETIME_FIELD_NUMBER: _ClassVar[int]
    CLOSETIME_FIELD_NUMBER: _ClassVar[int]
    AVAILABLETIMEMICRO_FIELD_NUMBER: _ClassVar[int]
    accessEndPoints: _containers.RepeatedCompositeFieldContainer[AccessEndPoint]
    sessionStatus: str
    clientSessions: _containers.RepeatedCompositeFieldContainer[_k8s_core_v1_pb2.LocalObjectReference]
    availableTime: _k8s_meta_v1_pb2.Time
    closeTime: _k8s_meta_v1_pb2.Time
    availableTimeMicro: int
    def __init__(self, accessEndPoints: _Optional[_Iterable[_Union[AccessEndPoint, _Mapping]]] = ..., sessionStatus: _Optional[str] = ..., clientSessions: _Optional[_Iterable[_Union[_k8s_core_v1_pb2.LocalObjectReference, _Mapping]]] = ..., availableTime: _Optional[_Union[_k8s_meta_v1_pb2.Time, _Mapping]] = ..., closeTime: _Optional[_Union[_k8s_meta_v1_pb2.Time, _Mapping]] = ..., availableTimeMicro: _Optional[int] = ...) -> None: ...

class AccessEndPoint(_message.Message):
    __slots__ = ("protocol", "ipAddress", "port")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    IPADDRESS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    protocol: str
    ipAddress: str
    port: int
    def __init__(self, protocol: _Optional[str] = ..., ipAddress: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...
