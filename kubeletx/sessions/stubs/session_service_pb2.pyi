import datetime

from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
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
    SESSION_CONFIGURATION: _ClassVar[MessageType]
    OPEN_SESSION: _ClassVar[MessageType]
    CLOSE_SESSION: _ClassVar[MessageType]
    PING_SESSION: _ClassVar[MessageType]
    SESSION_STATE: _ClassVar[MessageType]

class SessionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_INITIALIZING: _ClassVar[SessionState]
    STATE_OPEN: _ClassVar[SessionState]
    STATE_CLOSED: _ClassVar[SessionState]
    STATE_CLOSING: _ClassVar[SessionState]
UNSPECIFIED: MessageType
SESSION_CONFIGURATION: MessageType
OPEN_SESSION: MessageType
CLOSE_SESSION: MessageType
PING_SESSION: MessageType
SESSION_STATE: MessageType
STATE_INITIALIZING: SessionState
STATE_OPEN: SessionState
STATE_CLOSED: SessionState
STATE_CLOSING: SessionState

class SessionMessage(_message.Message):
    __slots__ = ("messageIdentifier", "sessionIdentifier", "messageType", "sessionConfiguration", "openSession", "closeSession", "pingSession", "sessionStatus")
    MESSAGEIDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    SESSIONIDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    MESSAGETYPE_FIELD_NUMBER: _ClassVar[int]
    SESSIONCONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    OPENSESSION_FIELD_NUMBER: _ClassVar[int]
    CLOSESESSION_FIELD_NUMBER: _ClassVar[int]
    PINGSESSION_FIELD_NUMBER: _ClassVar[int]
    SESSIONSTATUS_FIELD_NUMBER: _ClassVar[int]
    messageIdentifier: str
    sessionIdentifier: SessionIdentifier
    messageType: MessageType
    sessionConfiguration: SessionConfiguration
    openSession: OpenSession
    closeSession: CloseSession
    pingSession: PingSession
    sessionStatus: SessionStatus
    def __init__(self, messageIdentifier: _Optional[str] = ..., sessionIdentifier: _Optional[_Union[SessionIdentifier, _Mapping]] = ..., messageType: _Optional[_Union[MessageType, str]] = ..., sessionConfiguration: _Optional[_Union[SessionConfiguration, _Mapping]] = ..., openSession: _Optional[_Union[OpenSession, _Mapping]] = ..., closeSession: _Optional[_Union[CloseSession, _Mapping]] = ..., pingSession: _Optional[_Union[PingSession, _Mapping]] = ..., sessionStatus: _Optional[_Union[SessionStatus, _Mapping]] = ...) -> None: ...

class PodIdentifier(_message.Message):
    __slots__ = ("podId",)
    PODID_FIELD_NUMBER: _ClassVar[int]
    podId: str
    def __init__(self, podId: _Optional[str] = ...) -> None: ...

class SessionIdentifier(_message.Message):
    __slots__ = ("podId", "identifier")
    PODID_FIELD_NUMBER: _ClassVar[int]
    IDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    podId: str
    identifier: str
    def __init__(self, podId: _Optional[str] = ..., identifier: _Optional[str] = ...) -> None: ...

class SessionConfiguration(_message.Message):
    __slots__ = ("sessionData",)
    SESSIONDATA_FIELD_NUMBER: _ClassVar[int]
    sessionData: bytes
    def __init__(self, sessionData: _Optional[bytes] = ...) -> None: ...

class OpenSession(_message.Message):
    __slots__ = ("sessionConfiguration",)
    SESSIONCONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    sessionConfiguration: SessionConfiguration
    def __init__(self, sessionConfiguration: _Optional[_Union[SessionConfiguration, _Mapping]] = ...) -> None: ...

class CloseSession(_message.Message):
    __slots__ = ("gracePeriodSeconds",)
    GRACEPERIODSECONDS_FIELD_NUMBER: _ClassVar[int]
    gracePeriodSeconds: int
    def __init__(self, gracePeriodSeconds: _Optional[int] = ...) -> None: ...

class PingSession(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClientSession(_message.Message):
    __slots__ = ("clientIdentifier", "timeJoin", "timeExit")
    CLIENTIDENTIFIER_FIELD_NUMBER: _ClassVar[int]
    TIMEJOIN_FIELD_NUMBER: _ClassVar[int]
    TIMEEXIT_FIELD_NUMBER: _ClassVar[int]
    clientIdentifier: str
    timeJoin: _timestamp_pb2.Timestamp
    timeExit: _timestamp_pb2.Timestamp
    def __init__(self, clientIdentifier: _Optional[str] = ..., timeJoin: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., timeExit: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SessionStatus(_message.Message):
    __slots__ = ("sessionState", "clientSession")
    SESSIONSTATE_FIELD_NUMBER: _ClassVar[int]
    CLIENTSESSION_FIELD_NUMBER: _ClassVar[int]
    sessionState: SessionState
    clientSession: _containers.RepeatedCompositeFieldContainer[ClientSession]
    def __init__(self, sessionState: _Optional[_Union[SessionState, str]] = ..., clientSession: _Optional[_Iterable[_Union[ClientSession, _Mapping]]] = ...) -> None: ...
