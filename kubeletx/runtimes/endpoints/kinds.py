"""`KindTable`: the runtime kinds that plugins registered; it chooses the kind of an endpoint (DECISIONS 1).

A runtime kind is an implementation of `kubeletx.api.Runtime` by a plugin. It can serve an endpoint if it declares the
endpoint's workload type and URL scheme. Of several, the endpoint gets the kind named by ``plugin=``, else the kind with
the endpoint's name, else the only kind with `default_claim`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from kubeletx.api import CONTAINER, VM, AlreadyExists, InvalidConfig, RegisterRuntime, RuntimeFactory

from ..plugins.identity import PluginIdentity
from ..plugins.register_arguments import RegisterArguments
from ..plugins.required_methods import check_runtime
from .failed_plugins import FailedPlugin, PluginMissing, describe_failed
from .settings_sections import decode_sections

UNRESOLVED: Final = "unknown"
"""Kind of an endpoint whose plugin could not be loaded, if the endpoint does not name the kind."""

_ARGUMENTS = ("workload_types", "schemes", "default_claim", "settings", "parameters")


class RuntimeKind(msgspec.Struct, frozen=True, kw_only=True):
    """One registered runtime kind: an implementation of `kubeletx.api.Runtime` by a plugin.

    The fields have the meanings of the arguments of `RegisterRuntime`. `plugin`: name of the plugin that registered it.
    `distribution`, `version`: of the plugin; empty if the agent itself registers the kind.
    """

    name: str
    factory: RuntimeFactory
    workload_types: tuple[str, ...]
    schemes: tuple[str, ...]
    default_claim: bool = False
    settings: type[Any] | None = None
    parameters: tuple[str, ...] = ()
    plugin: str = ""
    distribution: str = ""
    version: str = ""

    @property
    def label(self) -> str:
        """Distribution and version, such as ``kubeletx-containerd 0.1.0``; without them, the plugin's name."""
        return f"{self.distribution} {self.version}".strip() or self.plugin

    @property
    def origin(self) -> PluginIdentity:
        return PluginIdentity(self.plugin, self.distribution, self.version)

    def serves(self, workload_type: str, scheme: str) -> bool:
        """Return True if the kind serves this workload type and URL scheme.

        A kind with the scheme ``qemu`` also serves ``qemu+ssh`` and others with a suffix after ``+``.
        """
        return workload_type in self.workload_types and (
            scheme in self.schemes or scheme.partition("+")[0] in self.schemes
        )


class WorkloadTypes(Collection[str]):
    """Live view of the workload types that a `KindTable` knows."""

    def __init__(self, kinds: KindTable) -> None:
        self._kinds = kinds

    def __contains__(self, word: object) -> bool:
        return word in self._kinds.workload_types()

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds.workload_types())

    def __len__(self) -> int:
        return len(self._kinds.workload_types())


class KindTable:
    """Table of the registered runtime kinds by name. The order of registration has no effect."""

    def __init__(self, kinds: Iterable[RuntimeKind] = ()) -> None:
        self._kinds: dict[str, RuntimeKind] = {}
        self.failed: tuple[FailedPlugin, ...] = ()
        """The installed plugins that are not loaded, since they failed or are disabled."""
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[RuntimeKind]:
        return iter(self._kinds.values())

    def __contains__(self, name: str) -> bool:
        return name in self._kinds

    def add(self, kind: RuntimeKind) -> None:
        """Register one kind. Raises AlreadyExists if a kind of this name is registered."""
        if (other := self._kinds.get(kind.name)) is not None:
            raise AlreadyExists(
                f"runtime kind {kind.name!r} of {kind.origin} is registered already by {other.origin}; "
                "uninstall one of them"
            )
        self._kinds[kind.name] = kind

    def registrar(self, plugin: str = "", distribution: str = "", version: str = "") -> RegisterRuntime:
        """Return the function that `plugin` calls to register its runtime kinds.

        `distribution`, `version`: of the plugin; empty if the agent itself registers the kinds. The function raises
        InvalidConfig, which names the argument, for a wrong argument.
        """

        def register(
            kind: str,
            factory: RuntimeFactory,
            *,
            workload_types: tuple[str, ...],
            schemes: tuple[str, ...],
            default_claim: bool = False,
            settings: type[Any] | None = None,
            parameters: tuple[str, ...] = (),
            **unknown: object,
        ) -> None:
            check = RegisterArguments(PluginIdentity(plugin, distribution, version), "runtime kind")
            check.name(kind)
            check.no_more(unknown, _ARGUMENTS)
            check.factory(factory)
            if isinstance(factory, type):
                check_runtime(factory, check.plugin, kind)
            self.add(
                RuntimeKind(
                    name=kind,
                    factory=factory,
                    workload_types=check.words("workload_types", workload_types, required=True),
                    schemes=check.words("schemes", schemes, required=True),
                    default_claim=check.boolean("default_claim", default_claim),
                    settings=check.settings(settings),
                    parameters=check.words("parameters", parameters),
                    plugin=plugin,
                    distribution=distribution,
                    version=version,
                )
            )

        register.__qualname__ = "register"  # in Python's own messages about its arguments
        return register

    def find(self, name: str) -> RuntimeKind | None:
        """Return the kind of this name; None if no loaded plugin registers it."""
        return self._kinds.get(name)

    def get(self, name: str) -> RuntimeKind:
        """Return the kind of this name. Raises InvalidConfig that lists the registered kinds if there is none."""
        try:
            return self._kinds[name]
        except KeyError:
            raise InvalidConfig(
                field="plugin",
                problem=f"no plugin registers kind {name!r}",
                fix=f"install that plugin or use one of: {', '.join(sorted(self._kinds)) or 'none installed'}",
            ) from None

    def workload_types(self) -> tuple[str, ...]:
        """Return the known workload types, sorted: container, vm, and the types that plugins declare."""
        declared = {word for kind in self for word in kind.workload_types}
        declared.update(
            word for plugin in self.failed for kind in plugin.kinds for word in kind.workload_types
        )
        return tuple(sorted(declared | {CONTAINER, VM}))

    def resolve(
        self, *, name: str, workload_type: str, url: str, wanted: str = "", field: str = "url"
    ) -> RuntimeKind:
        """Return the kind that serves an endpoint.

        `name`: the endpoint's name. `wanted`: value of ``plugin=`` in its URL; empty if not given. `field`: where the
        endpoint was written, for messages. Raises InvalidConfig that names the possible kinds and the fix; this is
        PluginMissing if an installed plugin that is not loaded may serve the endpoint.
        """
        scheme = url.partition("://")[0]
        if wanted:
            if wanted not in self._kinds:
                self._refuse_failed(field, f"kind {wanted!r}", lambda plugin: plugin.may_register(wanted))
            kind = self._named(wanted, field)
            if not kind.serves(workload_type, scheme):
                raise InvalidConfig(
                    field=field,
                    problem=f"kind {wanted!r} does not serve {workload_type} over {scheme}://",
                    fix=f"it serves {', '.join(kind.workload_types)} over {', '.join(kind.schemes)}",
                )
            return kind
        able = [kind for kind in self if kind.serves(workload_type, scheme)]
        for kind in able:
            if kind.name == name:
                return kind
        what = f"{workload_type} over {scheme}://"
        self._refuse_failed(field, what, lambda plugin: plugin.is_named(name))
        claims = sorted((kind for kind in able if kind.default_claim), key=lambda kind: kind.name)
        if len(claims) == 1:
            return claims[0]
        if not claims:
            self._refuse_failed(field, what, lambda plugin: plugin.may_serve(workload_type, scheme))
        raise _no_claim(field, workload_type, scheme, able, claims)

    def check_parameters(self, kind: RuntimeKind, names: Iterable[str], field: str) -> None:
        """Raise InvalidConfig if one of the URL parameters `names` is not declared by the kind."""
        for name in names:
            if name not in kind.parameters:
                known = ", ".join((*kind.parameters, "plugin", "isolation"))
                raise InvalidConfig(
                    field=field,
                    problem=f"kind {kind.name!r} has no URL parameter {name!r}",
                    fix=f"known parameters: {known}",
                )

    def decode_settings(
        self,
        sections: Mapping[str, Any],
        origin: str = "",
        others: Mapping[str, type[Any] | None] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Decode the settings of all kinds from the configuration; return them by kind name.

        `sections`: content of ``kubeletx.plugins``, by kind name. `origin`: the file that contains it, for messages.
        `others`: further names that may have a section, with their settings types. A kind without a section gets the
        defaults of its settings type. Raises one InvalidConfig that names every invalid section.
        """
        declared = {kind.name: kind.settings for kind in self} | dict(others)
        return decode_sections(sections, declared, may_come=self.may_come, origin=origin)

    def may_come(self, name: str) -> bool:
        """Return True if a plugin that is not loaded may register a runtime kind or another thing of this name.

        False if a loaded plugin registers a kind of this name.
        """
        return name not in self._kinds and any(plugin.may_register(name) for plugin in self.failed)

    @property
    def may_lack_types(self) -> bool:
        """True if a plugin that is not loaded may declare workload types that are unknown here."""
        return any(not plugin.knows_kinds for plugin in self.failed)

    def _refuse_failed(self, field: str, what: str, may_serve: Callable[[FailedPlugin], bool]) -> None:
        plugins = [plugin for plugin in self.failed if may_serve(plugin)]
        if plugins:
            raise PluginMissing(
                field=field, problem=f"no loaded plugin serves {what}", fix=describe_failed(plugins)
            )

    def _named(self, wanted: str, field: str) -> RuntimeKind:
        kind = self._kinds.get(wanted)
        if kind is None:
            known = ", ".join(sorted(self._kinds)) or "none installed"
            raise InvalidConfig(
                field=field,
                problem=f"plugin={wanted} names no registered kind",
                fix=f"install that plugin or use one of: {known}",
            )
        return kind


def _no_claim(
    field: str, workload_type: str, scheme: str, able: list[RuntimeKind], claims: list[RuntimeKind]
) -> InvalidConfig:
    what = f"{workload_type} over {scheme}://"
    if claims:
        names = ", ".join(kind.name for kind in claims)
        return InvalidConfig(
            field=field,
            problem=f"several plugins claim {what}: {names}",
            fix=f"add plugin=KIND to the URL's parameters, such as ?plugin={claims[0].name}",
        )
    if able:
        names = ", ".join(sorted(kind.name for kind in able))
        return InvalidConfig(
            field=field,
            problem=f"no plugin claims {what} by itself; these can serve it: {names}",
            fix=f"add plugin=KIND to the URL's parameters, such as ?plugin={sorted(k.name for k in able)[0]}",
        )
    return InvalidConfig(
        field=field,
        problem=f"no installed plugin serves {what}",
        fix="install one that does, or correct the workload type or the URL; `kubeletx plugins` lists them",
    )
