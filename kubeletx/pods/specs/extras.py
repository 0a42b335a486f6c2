"""Extras: mounts, variables and annotations that other components of the agent add to a unit (container or machine).

    agent component ─► Part.extras {name: provider} ─► gather_extras ─► UnitInputs.extras ─► compose_unit

A provider is a function that returns the extras of one unit. All providers are called before each creation of a
unit, in the order of their names. The pod's own fields take precedence over extras:

    variable     service variables, envFrom and env of the same name replace it; ``$(NAME)`` in env, command, args and
                 subPathExpr can refer to it as to a service variable
    mount        an error if the container already has a mount at this path
    annotation   an error if the pod has this key, or if the key is reserved for the agent

It is an error if two providers return the same variable, mount path or annotation. If a provider fails, hangs or
returns an error case, the unit is not created (CreateContainerConfigError) and the creation is retried with back-off;
the message names the provider.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import structlog

from kubeletx.api import Internal, KubeletxError, Mount, names
from kubeletx.kube.types.core import Pod, PodUnit
from kubeletx.volumes.container_mounts import ContainerMounts

from ..model.roles import UnitRole, role_of
from ..model.spec_errors import CREATE_CONTAINER_CONFIG_ERROR, ContainerConfigError, path_of

log = structlog.get_logger(__name__)

ANSWER_SECONDS: Final = 10.0
"""Deadline in seconds of one provider call for one unit."""
LONG_RUNNING: Final = frozenset({UnitRole.REGULAR, UnitRole.SIDECAR})
_KUBELET_PREFIX: Final = "io.kubernetes."
_OWN_DOMAIN: Final = names.OWN_PREFIX.rstrip("/")


class UnitExtras(msgspec.Struct, frozen=True, kw_only=True):
    """Additions of one provider to one unit. The repr shows no values and no paths of the node.

    `mounts`: their sources must exist until the unit is removed; a machine gets them as its runtime mounts volumes
    in guests. `variables`: environment variables, ignored for machines. `annotations`: set on the unit, not on the
    sandbox. `scope`: roles of the units that get the extras; by default regular containers and sidecars.
    """

    mounts: tuple[Mount, ...] = ()
    variables: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    scope: frozenset[UnitRole] = LONG_RUNNING

    def __repr__(self) -> str:
        targets = [mount.target for mount in self.mounts]
        return (
            f"UnitExtras(mounts={targets}, variables={list(self.variables)}, "
            f"annotations={list(self.annotations)}, scope={sorted(map(str, self.scope))})"
        )


ExtrasProvider: TypeAlias = Callable[[Pod, PodUnit], Awaitable[UnitExtras]]
"""Async function that returns the extras of one unit: (pod, container) → extras.

It may be called again for the same unit. An ephemeral container is passed as a `Container`.
"""


class GivenExtras(msgspec.Struct, frozen=True):
    """Checked extras of one unit, with the name of the provider that returned them."""

    provider: str
    extras: UnitExtras


class ExtrasError(Internal):
    """A provider failed or returned invalid extras (Waiting reason CreateContainerConfigError)."""

    def __init__(self, provider: str, container: str, problem: str) -> None:
        text = f"extras of provider {provider!r} for container {container!r}: {problem}"
        super().__init__(text, reason=CREATE_CONTAINER_CONFIG_ERROR)


async def gather_extras(
    providers: Mapping[str, ExtrasProvider],
    pod: Pod,
    container: PodUnit,
    *,
    seconds: float = ANSWER_SECONDS,
) -> tuple[GivenExtras, ...]:
    """Call every provider, in the order of their names; return the extras whose `scope` includes the unit's role.

    `seconds`: deadline of each provider. Raises ExtrasError if one fails or returns invalid extras.
    """
    role = role_of(pod, container.name)
    gathered: list[GivenExtras] = []
    for name in sorted(providers):
        extras = await _ask(name, providers[name], pod, container, seconds)
        if role in extras.scope:
            _check(name, extras, pod, container, gathered)
            gathered.append(GivenExtras(name, extras))
    return tuple(gathered)


def extra_annotations(given: Iterable[GivenExtras]) -> dict[str, str]:
    """Merge the annotations of all extras. `gather_extras` has checked that all keys are different."""
    return {key: value for given_extras in given for key, value in given_extras.extras.annotations.items()}


def extra_mounts(
    pod: Pod,
    container: PodUnit,
    own: ContainerMounts,
    given: Iterable[GivenExtras],
    *,
    runtime: str,
    takes_mounts: bool,
) -> tuple[Mount, ...]:
    """Return the mounts of all extras.

    `own`: the container's own mounts and devices. `takes_mounts`: the runtime supports mounts. Raises InvalidPod if
    the container already has a mount at one of the paths, or the runtime does not support mounts.
    """
    taken = {posixpath.normpath(mount.target) for mount in own.mounts}
    taken |= {posixpath.normpath(device.container_path) for device in own.devices}
    mounts = []
    for given_extras in given:
        for mount in given_extras.extras.mounts:
            what = f"provider {given_extras.provider!r} mounts {mount.target!r} into container {container.name!r}"
            if not takes_mounts:
                raise ContainerConfigError(
                    field=path_of(pod, container),
                    problem=f"{what}, and runtime {runtime} takes no mounts",
                    fix="choose a runtime that takes mounts",
                )
            if posixpath.normpath(mount.target) in taken:
                raise ContainerConfigError(
                    field=f"{path_of(pod, container)}.volumeMounts",
                    problem=f"{what}, which has a mount of its own there",
                    fix="use another mountPath",
                )
            mounts.append(mount)
    return tuple(mounts)


async def _ask(
    name: str, provider: ExtrasProvider, pod: Pod, container: PodUnit, seconds: float
) -> UnitExtras:
    try:
        async with asyncio.timeout(seconds):
            extras = await provider(pod, container)
    except TimeoutError as err:
        raise ExtrasError(name, container.name, f"no answer within {seconds:g} s; it is asked again") from err
    except KubeletxError as err:
        raise ExtrasError(name, container.name, str(err)) from err
    except Exception as err:
        # A bug in one provider must affect only its units. The error's text is left out, since it may contain a secret.
        log.exception(
            "Failed to ask a provider of extras", pod=pod.ref, container=container.name, provider=name
        )
        raise ExtrasError(name, container.name, f"{type(err).__name__}, see the agent's log") from err
    if not isinstance(extras, UnitExtras):
        raise ExtrasError(name, container.name, f"it returned {type(extras).__name__}; return UnitExtras")
    return extras


def _check(
    provider: str,
    extras: UnitExtras,
    pod: Pod,
    container: PodUnit,
    earlier: Sequence[GivenExtras],
) -> None:
    """Raise ExtrasError if an item of `extras` is invalid, or if an earlier provider has it too."""
    owners = {thing: given.provider for given in earlier for thing in _things(given.extras)}
    for kind, key in _things(extras):
        problem = _problem(kind, key, pod)
        if (owner := owners.get((kind, key))) is not None:
            problem = f"provider {owner!r} gives it too; rename one of them"
        if problem:
            raise ExtrasError(provider, container.name, f"{kind} {key!r}: {problem}")
        owners[kind, key] = provider
    for mount in extras.mounts:
        if not mount.image and not mount.source.startswith("/"):
            raise ExtrasError(
                provider,
                container.name,
                f"mount {mount.target!r}: source {mount.source!r} is not an absolute path",
            )


def _things(extras: UnitExtras) -> list[tuple[str, str]]:
    """Return (kind, key) of every mount, variable and annotation; each pair must come from only one provider."""
    return [
        *(("mount", posixpath.normpath(mount.target)) for mount in extras.mounts),
        *(("variable", name) for name in extras.variables),
        *(("annotation", key) for key in extras.annotations),
    ]


def _problem(kind: str, key: str, pod: Pod) -> str:
    if kind == "mount":
        return "" if key.startswith("/") and key != "/" else "no absolute path below /"
    if kind == "variable":
        is_name = bool(key) and key.isascii() and key.isprintable() and "=" not in key
        return "" if is_name else "no name of a variable"
    domain = key.partition("/")[0]
    if key.startswith(_KUBELET_PREFIX) or domain == _OWN_DOMAIN or domain.endswith(f".{_OWN_DOMAIN}"):
        return "the key belongs to the agent"
    return "the pod has this annotation itself" if key in pod.metadata.annotations else ""
