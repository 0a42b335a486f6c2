"""Public: the contract between plugins and the kubeletx agent, their host. Imports nothing else of kubeletx.

A plugin imports only this package; `docs/plugin-authors.md` explains it step by step. Its own words: a *unit* is a
container, a process or a virtual machine that runs in a pod sandbox; a *runtime* is the object of a plugin that makes
sandboxes and units; a *capability* is an optional protocol that a runtime may implement.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from . import names as names

if TYPE_CHECKING:
    from .admission import (
        AdmissionCheck as AdmissionCheck,
        AdmissionCheckFactory as AdmissionCheckFactory,
        Allow as Allow,
        Refuse as Refuse,
    )
    from .base import BaseRuntime as BaseRuntime, matching as matching, stop_with_grace as stop_with_grace
    from .cluster import (
        ClusterObjects as ClusterObjects,
        ClusterService as ClusterService,
        ClusterServiceAccount as ClusterServiceAccount,
        ClusterVolume as ClusterVolume,
        ObjectData as ObjectData,
        ObjectUser as ObjectUser,
        TokenParameters as TokenParameters,
    )
    from .errors import (
        AlreadyExists as AlreadyExists,
        Conflict as Conflict,
        Internal as Internal,
        InvalidConfig as InvalidConfig,
        InvalidPod as InvalidPod,
        KubeletxError as KubeletxError,
        NotFound as NotFound,
        PermissionDenied as PermissionDenied,
        TimedOut as TimedOut,
        Unavailable as Unavailable,
        Unsupported as Unsupported,
    )
    from .following import UnitFollower as UnitFollower
    from .health import (
        CheckResult as CheckResult,
        HealthCheck as HealthCheck,
        HealthCheckFactory as HealthCheckFactory,
        Severity as Severity,
    )
    from .hookspecs import (
        ENTRY_POINT_GROUP as ENTRY_POINT_GROUP,
        RegisterAdmissionCheck as RegisterAdmissionCheck,
        RegisterHealthCheck as RegisterHealthCheck,
        RegisterPanel as RegisterPanel,
        RegisterPodSource as RegisterPodSource,
        RegisterRemedy as RegisterRemedy,
        RegisterRuntime as RegisterRuntime,
        RegisterVolumeDriver as RegisterVolumeDriver,
        hookimpl as hookimpl,
        hookspec as hookspec,
    )
    from .host import (
        Blocking as Blocking,
        Clock as Clock,
        Endpoint as Endpoint,
        EventSink as EventSink,
        Host as Host,
        ObjectRef as ObjectRef,
        PodAddress as PodAddress,
        PodNetwork as PodNetwork,
        RuntimeFactory as RuntimeFactory,
    )
    from .identity import (
        CONTAINER as CONTAINER,
        VM as VM,
        PodUid as PodUid,
        RuntimeName as RuntimeName,
        SandboxId as SandboxId,
        StoreId as StoreId,
        UnitId as UnitId,
    )
    from .image_reference import (
        ImageReference as ImageReference,
        find_image_reference as find_image_reference,
        is_same_image as is_same_image,
        parse_image_reference as parse_image_reference,
        without_credentials as without_credentials,
    )
    from .observed import (
        FEATURES as FEATURES,
        EventKind as EventKind,
        ExecResult as ExecResult,
        ImageAuth as ImageAuth,
        ImageFilesystem as ImageFilesystem,
        ImageStatus as ImageStatus,
        InterfaceStats as InterfaceStats,
        LogMode as LogMode,
        NicState as NicState,
        NicStatus as NicStatus,
        PullProgress as PullProgress,
        RuntimeCondition as RuntimeCondition,
        RuntimeEvent as RuntimeEvent,
        RuntimeHealth as RuntimeHealth,
        RuntimeVersion as RuntimeVersion,
        SandboxState as SandboxState,
        SandboxStatus as SandboxStatus,
        SandboxSummary as SandboxSummary,
        SnapshotStatus as SnapshotStatus,
        StoreInfo as StoreInfo,
        Traits as Traits,
        UnitState as UnitState,
        UnitStats as UnitStats,
        UnitStatus as UnitStatus,
        UnitSummary as UnitSummary,
        every_feature_but as every_feature_but,
    )
    from .panels import Panel as Panel, PanelFactory as PanelFactory, Png as Png, Table as Table, Text as Text
    from .plugin_host import PluginHost as PluginHost
    from .pod_sources import (
        PodAnswer as PodAnswer,
        PodOutcome as PodOutcome,
        PodSource as PodSource,
        PodSourceFactory as PodSourceFactory,
        PodSourceSink as PodSourceSink,
    )
    from .pulls import SharedPulls as SharedPulls
    from .records import (
        Record as Record,
        RecordEvent as RecordEvent,
        RecordGone as RecordGone,
        RecordKinds as RecordKinds,
        RecordPage as RecordPage,
        RecordPut as RecordPut,
        Records as Records,
        RecordsSynced as RecordsSynced,
    )
    from .remedies import (
        Remedy as Remedy,
        RemedyFactory as RemedyFactory,
        RemedyHost as RemedyHost,
        RemedyRequest as RemedyRequest,
        RemedyResult as RemedyResult,
        RemedyState as RemedyState,
    )
    from .runtime import (
        CAPABILITIES as CAPABILITIES,
        Runtime as Runtime,
        SupportsAttach as SupportsAttach,
        SupportsCheckpoint as SupportsCheckpoint,
        SupportsCriPassthrough as SupportsCriPassthrough,
        SupportsDefinition as SupportsDefinition,
        SupportsEvents as SupportsEvents,
        SupportsExec as SupportsExec,
        SupportsImages as SupportsImages,
        SupportsLogReopen as SupportsLogReopen,
        SupportsLogStream as SupportsLogStream,
        SupportsMachine as SupportsMachine,
        SupportsNetworkConfig as SupportsNetworkConfig,
        SupportsNics as SupportsNics,
        SupportsPortForward as SupportsPortForward,
        SupportsResize as SupportsResize,
        SupportsScreenshot as SupportsScreenshot,
        SupportsSnapshots as SupportsSnapshots,
        SupportsStandby as SupportsStandby,
        SupportsStats as SupportsStats,
    )
    from .specfiles import SandboxRecord as SandboxRecord, SpecFiles as SpecFiles, UnitRecord as UnitRecord
    from .specs import (
        Capabilities as Capabilities,
        CloudInit as CloudInit,
        Custom as Custom,
        Device as Device,
        Dns as Dns,
        EnvVar as EnvVar,
        HostEntry as HostEntry,
        IdMapping as IdMapping,
        ImageSpec as ImageSpec,
        Machine as Machine,
        Mount as Mount,
        MountPropagation as MountPropagation,
        NamespaceMode as NamespaceMode,
        Namespaces as Namespaces,
        Nic as Nic,
        PortMapping as PortMapping,
        Process as Process,
        ProcessSecurity as ProcessSecurity,
        ProfileType as ProfileType,
        Resources as Resources,
        SandboxSecurity as SandboxSecurity,
        SandboxSpec as SandboxSpec,
        SecurityProfile as SecurityProfile,
        SELinuxOptions as SELinuxOptions,
        SourceKind as SourceKind,
        UnitSpec as UnitSpec,
    )
    from .streams import (
        Channel as Channel,
        Session as Session,
        StreamRequest as StreamRequest,
        StreamUrl as StreamUrl,
    )
    from .subprocesses import SubprocessSession as SubprocessSession, run_session as run_session
    from .threads import BoundedThreadPool as BoundedThreadPool, WhenFull as WhenFull
    from .volumes import (
        BaseVolumeDriver as BaseVolumeDriver,
        ReadyVolume as ReadyVolume,
        VolumeCapabilities as VolumeCapabilities,
        VolumeDriver as VolumeDriver,
        VolumeDriverFactory as VolumeDriverFactory,
        VolumeHost as VolumeHost,
        VolumePod as VolumePod,
        VolumeRequest as VolumeRequest,
        VolumeStats as VolumeStats,
    )
    from .waiting import (
        SystemClock as SystemClock,
        first_of as first_of,
        sleep_or as sleep_or,
        within as within,
    )

_HOMES = {
    "admission": "AdmissionCheck AdmissionCheckFactory Allow Refuse",
    "base": "BaseRuntime matching stop_with_grace",
    "cluster": "ClusterObjects ClusterService ClusterServiceAccount ClusterVolume ObjectData ObjectUser TokenParameters",
    "errors": "AlreadyExists Conflict Internal InvalidConfig InvalidPod KubeletxError NotFound PermissionDenied TimedOut Unavailable Unsupported",
    "following": "UnitFollower",
    "health": "CheckResult HealthCheck HealthCheckFactory Severity",
    "hookspecs": "ENTRY_POINT_GROUP RegisterAdmissionCheck RegisterHealthCheck RegisterPanel RegisterPodSource RegisterRemedy RegisterRuntime RegisterVolumeDriver hookimpl hookspec",
    "host": "Blocking Clock Endpoint EventSink Host ObjectRef PodAddress PodNetwork RuntimeFactory",
    "identity": "CONTAINER VM PodUid RuntimeName SandboxId StoreId UnitId",
    "image_reference": "ImageReference find_image_reference is_same_image parse_image_reference without_credentials",
    "observed": "FEATURES EventKind ExecResult ImageAuth ImageFilesystem ImageStatus InterfaceStats LogMode NicState NicStatus PullProgress RuntimeCondition RuntimeEvent RuntimeHealth RuntimeVersion SandboxState SandboxStatus SandboxSummary SnapshotStatus StoreInfo Traits UnitState UnitStats UnitStatus UnitSummary every_feature_but",
    "panels": "Panel PanelFactory Png Table Text",
    "plugin_host": "PluginHost",
    "pod_sources": "PodAnswer PodOutcome PodSource PodSourceFactory PodSourceSink",
    "pulls": "SharedPulls",
    "records": "Record RecordEvent RecordGone RecordKinds RecordPage RecordPut Records RecordsSynced",
    "remedies": "Remedy RemedyFactory RemedyHost RemedyRequest RemedyResult RemedyState",
    "runtime": "CAPABILITIES Runtime SupportsAttach SupportsCheckpoint SupportsCriPassthrough SupportsDefinition SupportsEvents SupportsExec SupportsImages SupportsLogReopen SupportsLogStream SupportsMachine SupportsNetworkConfig SupportsNics SupportsPortForward SupportsResize SupportsScreenshot SupportsSnapshots SupportsStandby SupportsStats",
    "specfiles": "SandboxRecord SpecFiles UnitRecord",
    "specs": "Capabilities CloudInit Custom Device Dns EnvVar HostEntry IdMapping ImageSpec Machine Mount MountPropagation NamespaceMode Namespaces Nic PortMapping Process ProcessSecurity ProfileType Resources SandboxSecurity SandboxSpec SecurityProfile SELinuxOptions SourceKind UnitSpec",
    "streams": "Channel Session StreamRequest StreamUrl",
    "subprocesses": "SubprocessSession run_session",
    "threads": "BoundedThreadPool WhenFull",
    "volumes": "BaseVolumeDriver ReadyVolume VolumeCapabilities VolumeDriver VolumeDriverFactory VolumeHost VolumePod VolumeRequest VolumeStats",
    "waiting": "SystemClock first_of sleep_or within",
}
"""The names that this package exports, by the module that each is imported from at its first use.

Many processes, such as a command or a plugin's child, need few of them, and importing all takes 40 ms.
"""

_HOME_OF = {name: home for home, exported in _HOMES.items() for name in exported.split()}

__all__ = sorted((*_HOME_OF, "names"))  # noqa: PLE0605  # the imports above state the same for type checkers


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
