"""The table of runtime kinds that plugins registered, and the choice of the kind of an endpoint (DECISIONS 1).

A kind can serve an endpoint if it declares the workload type and the URL's scheme. Of those, the endpoint's kind is
the one named by ``plugin=``, else the one with the endpoint's name, else the only one with `default_claim`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from kubeletx.api import CONTAINER, VM, AlreadyExists, InvalidConfig, RegisterRuntime, RuntimeFactory

from .problems import raise_all


class RuntimeKind(msgspec.Struct, frozen=True, kw_only=True):
    """One registered runtime kind; the fields are those of `RegisterRuntime`. `plugin`: plugin that registered it."""

    name: str
    factory: RuntimeFactory
    workload_types: tuple[str, ...]
    schemes: tuple[str, ...]
    default_claim: bool = False
    settings: type[Any] | None = None
    parameters: tuple[str, ...] = ()
    plugin: str = ""

    def serves(self, workload_type: str, scheme: str) -> bool:
        """Return True if the kind serves both; the scheme ``qemu`` also serves ``qemu+ssh`` and the like."""
        return workload_type in self.workload_types and (
            scheme in self.schemes or scheme.partition("+")[0] in self.schemes
        )


class WorkloadTypes(Collection[str]):
    """The workload types of a table; a live view."""

    def __init__(self, kinds: KindTable) -> None:
        self._kinds = kinds

    def __contains__(self, word: object) -> bool:
        return word in self._kinds.workload_types()

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds.workload_types())

    def __len__(self) -> int:
        return len(self._kinds.workload_types())


class KindTable:
    """All kinds by name, in the order of registration, which has no effect."""

    def __init__(self, kinds: Iterable[RuntimeKind] = ()) -> None:
        self._kinds: dict[str, RuntimeKind] = {}
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[RuntimeKind]:
        return iter(self._kinds.values())

    def __contains__(self, name: str) -> bool:
        return name in self._kinds

    def add(self, kind: RuntimeKind) -> None:
        """Register one kind. Raises AlreadyExists for a name that is taken."""
        if (other := self._kinds.get(kind.name)) is not None:
            raise AlreadyExists(
                f"runtime kind {kind.name!r} of plugin {kind.plugin or '?'} is registered already by plugin "
                f"{other.plugin or '?'}; uninstall one of them"
            )
        self._kinds[kind.name] = kind

    def registrar(self, plugin: str = "") -> RegisterRuntime:
        """The `register` function to pass to the hook of `plugin`."""

        def register(
            kind: str,
            factory: RuntimeFactory,
            *,
            workload_types: tuple[str, ...],
            schemes: tuple[str, ...],
            default_claim: bool = False,
            settings: type[Any] | None = None,
            parameters: tuple[str, ...] = (),
        ) -> None:
            self.add(
                RuntimeKind(
                    name=kind,
                    factory=factory,
                    workload_types=tuple(workload_types),
                    schemes=tuple(schemes),
                    default_claim=default_claim,
                    settings=settings,
                    parameters=tuple(parameters),
                    plugin=plugin,
                )
            )

        return register

    def get(self, name: str) -> RuntimeKind:
        """The kind named `name`. Raises InvalidConfig that names the registered ones."""
        try:
            return self._kinds[name]
        except KeyError:
            raise InvalidConfig(
                field="plugin",
                problem=f"no plugin registers kind {name!r}",
                fix=f"install that plugin or use one of: {', '.join(sorted(self._kinds)) or 'none installed'}",
            ) from None

    def workload_types(self) -> tuple[str, ...]:
        """The known workload types: container, vm, and what plugins declare; sorted."""
        declared = {word for kind in self for word in kind.workload_types}
        return tuple(sorted(declared | {CONTAINER, VM}))

    def resolve(
        self, *, name: str, workload_type: str, url: str, wanted: str = "", field: str = "url"
    ) -> RuntimeKind:
        """Find the kind that serves the endpoint `name`; `wanted`: the value of ``plugin=``.

        Raises InvalidConfig naming `field`, the possible kinds and the fix.
        """
        scheme = url.partition("://")[0]
        if wanted:
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
        claims = sorted((kind for kind in able if kind.default_claim), key=lambda kind: kind.name)
        if len(claims) == 1:
            return claims[0]
        raise _no_claim(field, workload_type, scheme, able, claims)

    def check_parameters(self, kind: RuntimeKind, names: Iterable[str], field: str) -> None:
        """Raise InvalidConfig for URL parameters that the kind does not declare."""
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
        """Decode the settings of each kind from ``kubeletx.plugins`` of the configuration; by name.

        `others`: further names that own a section, with their settings types. A type without a section gets its
        defaults. Raises one InvalidConfig that names every invalid section. `origin`: the file of the sections.
        """
        errors: list[InvalidConfig] = []
        decoded: dict[str, Any] = {}
        declared = {kind.name: kind.settings for kind in self} | dict(others)
        for name in sections:
            if declared.get(name) is None:
                errors.append(_bad_section(origin, name, *_why_not(name, declared)))
        for name, settings in declared.items():
            if settings is None:
                continue
            try:
                decoded[name] = _decode(settings, sections.get(name) or {})
            except msgspec.ValidationError as error:
                errors.append(_bad_section(origin, name, str(error), "correct the value"))
        raise_all(errors)
        return decoded

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


def _why_not(name: str, declared: Mapping[str, type[Any] | None]) -> tuple[str, str]:
    if name in declared:
        return f"{name!r} has no settings", "remove the section"
    known = ", ".join(sorted(one for one, settings in declared.items() if settings is not None)) or "none"
    return f"no plugin registers {name!r}", f"install it or remove the section; known: {known}"


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


def _decode(settings: type[Any], section: Any) -> Any:
    known = {field.encode_name for field in msgspec.structs.fields(settings)}
    if isinstance(section, Mapping):
        for name in section:
            if name not in known:
                raise msgspec.ValidationError(
                    f"unknown field {name!r}; known: {', '.join(sorted(known)) or 'none'}"
                )
    return msgspec.convert(section, settings)


def _bad_section(origin: str, name: str, problem: str, fix: str) -> InvalidConfig:
    return InvalidConfig(obj=origin, field=f"kubeletx.plugins.{name}", problem=problem, fix=fix)
