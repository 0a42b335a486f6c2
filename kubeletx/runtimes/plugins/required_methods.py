"""Finds the methods that a plugin's class or object lacks, before the agent calls the first of them."""

from __future__ import annotations

from collections.abc import Iterable

from kubeletx.api import CAPABILITIES, InvalidConfig, Runtime

from .identity import PluginIdentity


def missing_methods(thing: object, protocol: type) -> tuple[str, ...]:
    """Return the names of the public methods of `protocol` that a class or object lacks, in the protocol's order.

    A method that the class takes over from the protocol itself, which is empty there, is missing too.
    """
    return tuple(name for name in _methods(protocol) if not _has(thing, name, protocol))


def check_runtime(thing: object, plugin: PluginIdentity, kind: str) -> None:
    """Raise InvalidConfig, naming each method that a runtime or its class lacks.

    Checks the methods of `Runtime`, and of each capability in attribute `capabilities`, as `BaseRuntime` has it.
    `thing`: a runtime, or the class of runtimes that a plugin registers.
    """
    declared = getattr(thing, "capabilities", ())
    capabilities = declared if isinstance(declared, tuple) else ()
    for protocol in (Runtime, *(capability for capability in capabilities if isinstance(capability, type))):
        check_methods(thing, protocol, plugin, f"runtime kind {kind!r}")


def capability_problem(capability: object, protocol: type) -> str:
    """Return why the agent does not use an object that `Runtime.capability` returned for `protocol`; empty if it does."""
    if capability is None or not (missing := missing_methods(capability, protocol)):
        return ""
    cls = type(capability).__name__
    return (
        f"capability({protocol.__name__}) returned an object of class {cls}, which lacks {_and(missing)}; add "
        f"{'it' if len(missing) == 1 else 'them'}, or return None"
    )


def check_methods(thing: object, protocol: type, plugin: PluginIdentity, field: str) -> None:
    """Raise InvalidConfig, naming each method of `protocol` that a class or object lacks.

    `field`: what the plugin registers, such as ``runtime kind 'wasm'``.
    """
    if missing := missing_methods(thing, protocol):
        cls = thing if isinstance(thing, type) else type(thing)
        raise InvalidConfig(
            obj=str(plugin),
            field=field,
            problem=f"class {cls.__name__} lacks {_and(missing)} of {protocol.__name__}",
            fix=f"add {'it' if len(missing) == 1 else 'them'}{_or_not(protocol)}",
        )


def _or_not(protocol: type) -> str:
    is_capability = protocol in CAPABILITIES
    return f", or remove {protocol.__name__} from the declared capabilities" if is_capability else ""


def _methods(protocol: type) -> Iterable[str]:
    return (name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_"))


def _has(thing: object, name: str, protocol: type) -> bool:
    method = getattr(thing, name, None)
    return callable(method) and getattr(method, "__func__", method) is not vars(protocol)[name]


def _and(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
