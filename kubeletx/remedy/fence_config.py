"""Fence configuration of nodes: which methods each step of the automaton has, and with which parameters. Pure.

ConfigMaps, and the key of each that holds properties:

    fence-config-NODE           config.properties    methods of the steps, in order
                                fence-method-METHOD  a method of this node, inside the same map
    fence-config-NAME           config.properties    the same for all nodes that its node_selector selects
    fence-method-METHOD-NODE    method.properties    a method of one node
    fence-method-METHOD         method.properties    a method of all nodes
    fence-method-template-NAME  template.properties  parameters that methods share; may name a template itself
    fence-cluster-config        config.properties    parameters of all fence agents
                                AGENT.properties     parameters of one agent, such as fence_aws

Order, later wins: a cloud's defaults, fence-cluster-config, templates, fence-method-METHOD, the node's own. A node without a map restarts its
cloud instance. ``{{.NodeName}}`` in a value is the node's name; `clouds.VARIABLES` lists the other variables.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from kubeletx.api import InvalidConfig
from kubeletx.kube.text.duration import parse_duration

from .clouds import CLOUDS, VARIABLES, cloud_of
from .model import FenceMethod, FenceProof, FlowStep, NodeView, RemedyCourse
from .properties import is_secret, overlay, parse_properties, parse_selector, selects

FENCE: Final = "fence"
RESTART_INSTANCE: Final = "restart-instance"
BUILTINS: Final = {
    name: FenceMethod(name=name, kind="builtin")
    for name in (
        "mark-unschedulable",
        "mark-schedulable",
        "out-of-service",
        "clean-pods",
        "remove-node",
        "storage-fence",
        "end-pods",
    )
}
"""Built-in methods by name. ``restart-instance`` is a fence agent of the node's cloud."""
MARK_UNSCHEDULABLE: Final = BUILTINS["mark-unschedulable"]
MARK_SCHEDULABLE: Final = BUILTINS["mark-schedulable"]

CONFIG: Final = "fence-config-"
METHOD: Final = "fence-method-"
TEMPLATE: Final = "fence-method-template-"
CLUSTER: Final = "fence-cluster-config"
_STEPS: Final = {
    "isolation": FlowStep.ISOLATION,
    "power_management": FlowStep.POWER,
    "recovery": FlowStep.RECOVERY,
}
_CLOUD_DEFAULT: Final = {
    "isolation": MARK_UNSCHEDULABLE.name,
    "power_management": RESTART_INSTANCE,
    "recovery": MARK_SCHEDULABLE.name,
}
_CONFIG_KEYS: Final = ("node_name", "node_selector", *_STEPS, "kdump")
_DEFAULT_ACTIONS: Final = {FlowStep.ISOLATION: "off", FlowStep.POWER: "reboot", FlowStep.RECOVERY: "on"}
_ACTIONS: Final = {"on": "on", "off": "off", "reboot": "reboot", "enable": "on", "disable": "off"}
_PROOFS: Final = {"none": FenceProof.NONE, "storage": FenceProof.STORAGE, "power": FenceProof.POWER}
_OWN: Final = {"template", "agent", "remedy", "secret", "deadline", "proof", "storage"}
"""Properties of a method that are not parameters of its agent."""
_ELSEWHERE: Final = {"grace_timeout": "power_wait", "giveup_retries": "retries"}
_AGENT: Final = re.compile(r"fence_[A-Za-z0-9_]+")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_VARIABLE: Final = re.compile(r"\{\{(.*?)\}\}")
_ANY: Final = dict.fromkeys(VARIABLES, "x")
_MOST_SECONDS: Final = 86400.0


class FencePlace(msgspec.Struct, frozen=True, kw_only=True):
    """The node for which methods are resolved. `cloud`: key of `CLOUDS`, or empty. `variables`: values by name."""

    node: str
    provider_id: str = ""
    labels: Mapping[str, str] = {}
    cloud: str = ""
    variables: Mapping[str, str] = {}


def place_of(node: NodeView) -> FencePlace:
    """Return the place of a node."""
    provider_id = node.spec.provider_id
    cloud, variables = cloud_of(provider_id)
    return FencePlace(
        node=node.name,
        provider_id=provider_id,
        labels=node.metadata.labels,
        cloud=provider_id.partition("://")[0] if cloud else "",
        variables={"NodeName": node.name, **variables},
    )


class FenceMaps:
    """The ConfigMaps of fence configuration, by name. Nothing is changed after construction."""

    def __init__(
        self,
        maps: Mapping[str, Mapping[str, str]],
        jobs: Mapping[str, FenceMethod],
        last: Mapping[str, Mapping[str, str]],
    ) -> None:
        """`jobs`: methods of remedyConfigs by name; a step or a method's property ``remedy`` may name them.

        `last`: the last `selectors`, which a map keeps that cannot be read any more, so that its nodes get no other map.
        """
        self._maps = maps
        self._jobs = jobs
        self.selectors = {name: selector for name, selector in last.items() if name in maps}
        """Labels that a map of a set of nodes asks for, by the name of the map."""
        self._broken: list[InvalidConfig] = []
        for name in sorted(maps):
            if name.startswith(CONFIG):
                try:
                    written = self._config(name).get("node_selector")
                    selector = {} if written is None else parse_selector(written)
                    self.selectors.pop(name, None)
                    if selector:
                        self.selectors[name] = selector
                except ValueError as error:
                    field = "config.properties node_selector"
                    self._broken.append(_invalid(name, field, str(error), "write KEY=VALUE,KEY=VALUE"))
                except InvalidConfig as error:
                    self._broken.append(error)

    def problems(self) -> list[InvalidConfig]:
        """Return what is wrong with the maps for any node, at most one problem for each map."""
        found = {(error.obj, error.field): error for error in self._broken}
        for name in sorted(self._maps):
            try:
                if name.startswith(CONFIG):
                    place = FencePlace(node=name.removeprefix(CONFIG), cloud="aws", variables=_ANY)
                    self._resolve(name, place)
                elif name.startswith(TEMPLATE):
                    self._templates(name, name)
                elif name.startswith(METHOD):
                    self._read(name, "method.properties")
                elif name == CLUSTER:
                    for key in self._maps[name]:
                        self._shared(key.removesuffix(".properties"))
            except InvalidConfig as error:
                found.setdefault((error.obj, error.field), error)
        return list(found.values())

    def notes(self) -> Iterator[str]:
        """Yield which secrets are written in these maps."""
        for name in sorted(self._maps):
            for key, text in self._maps[name].items() if name.startswith((CONFIG, METHOD, CLUSTER)) else ():
                with contextlib.suppress(InvalidConfig):
                    read = parse_properties(text, f"ConfigMap {name}", key)
                    for written in filter(is_secret, read.keys() - _OWN):
                        what = "who may read ConfigMaps sees it; write it to a Secret, and secret=NAME here"
                        yield f"ConfigMap {name}: {key} {written}: {what}"

    def resolve(self, place: FencePlace) -> RemedyCourse:
        """Return the course of remedy ``fence`` for a node. Raises InvalidConfig."""
        names = self._config_maps(place)
        if len(names) > 1:
            fix = f"let one of them select node {place.node}, or write {CONFIG}{place.node}"
            raise _invalid(names[0], "node_selector", f"{names[1]} selects the same node", fix)
        return self._resolve(names[0] if names else "", place)

    def has_config(self, place: FencePlace) -> bool:
        """Return True if a map is written for the node, alone or with others."""
        return bool(self._config_maps(place))

    def _config_maps(self, place: FencePlace) -> list[str]:
        own = CONFIG + place.node
        if own in self._maps and own not in self.selectors:
            return [own]
        return [name for name, selector in self.selectors.items() if selects(selector, place.labels)]

    def _resolve(self, name: str, place: FencePlace) -> RemedyCourse:
        config = self._config(name) if name else _CLOUD_DEFAULT
        if config.get("node_name", place.node) != place.node:
            fix = f"write node_name={place.node}"
            raise _invalid(name, "config.properties node_name", f"is {config['node_name']!r}", fix)
        if not any(config.get(key, "").split() for key in _STEPS):
            raise _invalid(name, "config.properties", "has no method", "write power_management=METHOD")
        methods = {
            step: tuple(self._method(method, step, name, place) for method in config.get(key, "").split())
            for key, step in _STEPS.items()
        }
        return RemedyCourse(
            name=FENCE,
            isolation=methods[FlowStep.ISOLATION],
            power=methods[FlowStep.POWER],
            recovery=methods[FlowStep.RECOVERY],
            kdump=config.get("kdump", "").lower() in ("1", "true", "yes", "on"),
        )

    def _config(self, name: str) -> dict[str, str]:
        config = self._read(name, "config.properties")
        for key in config:
            if key not in _CONFIG_KEYS:
                fix = f"write one of {', '.join(_CONFIG_KEYS)}"
                raise _invalid(name, f"config.properties {key}", "is not known", fix)
        return config

    def _read(self, name: str, key: str) -> dict[str, str]:
        """Return the properties of a map: of `key`, or of the only key it has."""
        data = self._maps[name]
        found = key if key in data or len(data) != 1 else next(iter(data))
        if found not in data:
            there = ", ".join(sorted(data)) or "nothing"
            raise _invalid(name, key, f"is missing; the map has {there}", f"write key {key}")
        return parse_properties(data[found], f"ConfigMap {name}", found)

    def _shared(self, agent: str) -> dict[str, str]:
        """Return the shared parameters of an agent."""
        data = self._maps.get(CLUSTER, {})
        layers = []
        for key in ("config.properties", f"{agent}.properties"):
            properties = parse_properties(data.get(key, ""), f"ConfigMap {CLUSTER}", key)
            for name in properties:
                if name in _ELSEWHERE:
                    fix = f"write {_ELSEWHERE[name]} in ConfigMap remedy-settings"
                    raise _invalid(CLUSTER, f"{key} {name}", "is not a parameter of agents", fix)
            layers.append(properties)
        return overlay(*layers)

    def _templates(self, name: str, user: str) -> Iterator[dict[str, str]]:
        return reversed(list(self._template_chain(name, user)))

    def _template_chain(self, name: str, user: str) -> Iterator[dict[str, str]]:
        """Yield the properties of a template, then of its own template, and so on."""
        seen: list[str] = []
        while name:
            name = name if name.startswith(TEMPLATE) else TEMPLATE + name
            if name in seen:
                cycle = " -> ".join([*seen, name])
                raise _invalid(seen[0], "template", f"is its own template: {cycle}", "remove one reference")
            if name not in self._maps:
                fix = f"write ConfigMap {name} or correct the name"
                raise _invalid(seen[-1] if seen else user, "template", f"{name} does not exist", fix)
            seen.append(name)
            properties = self._read(name, "template.properties")
            yield properties
            name = properties.get("template", "")

    # --- one method ---

    def _method(self, name: str, step: FlowStep, config: str, place: FencePlace) -> FenceMethod:
        if not _NAME.fullmatch(name):
            fix = "write names of small letters, digits, '-' and '.', separated by blanks"
            raise _invalid(config, "config.properties", f"{name!r} is not a method's name", fix)
        layers, document = self._layers(name, config, place)
        cloud = CLOUDS[place.cloud].properties if name == RESTART_INSTANCE and place.cloud else {}
        if not layers and not cloud:
            if name in BUILTINS:
                return BUILTINS[name]
            if name in self._jobs:
                return self._jobs[name]
            fix = f"write ConfigMap {METHOD}{name} or {METHOD}{name}-{place.node}"
            if name == RESTART_INSTANCE:
                problem = f"{place.provider_id!r} is of no known cloud ({', '.join(CLOUDS)})"
                fix = f"write ConfigMap {CONFIG}{place.node} or {METHOD}{name}"
                raise InvalidConfig(
                    obj=f"node {place.node}", field="spec.providerID", problem=problem, fix=fix
                )
            raise _invalid(config, "config.properties", f"method {name} does not exist", fix)
        template = next((layer["template"] for layer in reversed(layers) if "template" in layer), "")
        chain = [*self._templates(template, document), *layers] if template else layers
        own = overlay(*chain)
        if "remedy" in own:
            return self._job(name, own, document, place)
        agent = own.get("agent", cloud.get("agent", "")).replace("-", "_")
        if not _AGENT.fullmatch(agent):
            fix = "write agent=fence_NAME in the method or its template"
            found = f"{agent!r} is not the name of a fence agent" if agent else "is missing"
            raise _invalid(document, "agent", found, fix)
        cloud = cloud if cloud.get("agent") == agent else {}
        merged = overlay(cloud, self._shared(agent), own)
        method = self._agent(name, agent, merged, step, document, place)
        if cloud and not method.secrets:
            secrets = (f"secret-fence-{place.cloud}",)
            return msgspec.structs.replace(method, secrets=secrets, secrets_optional=True)
        return method

    def _layers(self, name: str, config: str, place: FencePlace) -> tuple[list[dict[str, str]], str]:
        """Return the method's own properties, from the general to the node's, and the map that holds the last ones."""
        layers, document = [], f"method {name}"
        if METHOD + name in self._maps and not name.startswith("template-"):
            document = METHOD + name
            layers.append(self._read(document, "method.properties"))
        own = f"{METHOD}{name}-{place.node}"
        inline = self._maps.get(config, {}).get(METHOD + name)
        if inline is not None:
            if own in self._maps:
                raise _invalid(config, METHOD + name, f"is also in {own}", "keep one of them")
            document = config
            layers.append(parse_properties(inline, f"ConfigMap {config}", METHOD + name))
        elif own in self._maps:
            document = own
            layers.append(self._read(own, "method.properties"))
        return layers, document

    def _job(self, name: str, own: Mapping[str, str], document: str, place: FencePlace) -> FenceMethod:
        job = self._jobs.get(own["remedy"])
        if job is None:
            known = ", ".join(sorted(self._jobs)) or "none"
            raise _invalid(
                document, "remedy", f"{own['remedy']!r} is not in remedyConfigs", f"known: {known}"
            )
        values = {key: _filled(value, key, document, place) for key, value in own.items()}
        return msgspec.structs.replace(
            job,
            name=name,
            parameters={key: value for key, value in values.items() if key not in _OWN},
            secrets=tuple(values.get("secret", "").split()) or job.secrets,
            storage=tuple(values.get("storage", "").replace(",", " ").split()),
            seconds=_seconds(values, document, job.seconds),
            proof=_proof(values, document, FenceProof.NONE),
        )

    def _agent(
        self, name: str, agent: str, own: Mapping[str, str], step: FlowStep, document: str, place: FencePlace
    ) -> FenceMethod:
        values = {key: _filled(value, key, document, place) for key, value in own.items()}
        written = values.pop("action", _DEFAULT_ACTIONS[step])
        if written not in _ACTIONS:
            raise _invalid(document, "action", f"{written!r} is not known", "write on, off or reboot")
        action = _ACTIONS[written]
        # Only power management is about the machine: elsewhere, off may be a port of a switch.
        is_power = step is FlowStep.POWER and action != "on" and values.get("method") != "cycle"
        return FenceMethod(
            name=name,
            kind="agent",
            agent=agent,
            parameters={"action": action, **{k: v for k, v in values.items() if k not in _OWN}},
            secrets=tuple(values.get("secret", "").split()),
            storage=tuple(values.get("storage", "").replace(",", " ").split()),
            seconds=_seconds(values, document, FenceMethod(name="", kind="").seconds),
            proof=_proof(values, document, FenceProof.POWER if is_power else FenceProof.NONE),
        )


def _filled(value: str, key: str, document: str, place: FencePlace) -> str:
    """Return the value with its variables replaced."""

    def replace(found: re.Match[str]) -> str:
        variable = found[1].strip().removeprefix(".")
        if variable not in VARIABLES:
            fix = "write one of " + ", ".join(f"{{{{.{known}}}}}" for known in VARIABLES)
            raise _invalid(document, key, f"{found[0]} is not a variable", fix)
        if not place.variables.get(variable):
            problem = f"{found[0]} has no value: the node's providerID is {place.provider_id!r}"
            raise _invalid(document, key, problem, "write the value itself")
        return place.variables[variable]

    return _VARIABLE.sub(replace, value)


def _seconds(values: Mapping[str, str], document: str, default: float) -> float:
    if "deadline" not in values:
        return default
    try:
        seconds = parse_duration(values["deadline"])
    except ValueError as error:
        raise _invalid(document, "deadline", f"{values['deadline']!r} {error}", "write 3m") from error
    if not 0 < seconds <= _MOST_SECONDS:
        raise _invalid(document, "deadline", f"{values['deadline']!r} is out of range", "write 1s to 24h")
    return seconds


def _proof(values: Mapping[str, str], document: str, default: FenceProof) -> FenceProof:
    written = values.get("proof", "storage" if values.get("storage") else "")
    if not written:
        return default
    if written not in _PROOFS:
        raise _invalid(document, "proof", f"{written!r} is not known", "write none, storage or power")
    return _PROOFS[written]


def _invalid(document: str, field: str, problem: str, fix: str) -> InvalidConfig:
    obj = document if document.startswith("method ") else f"ConfigMap {document}"
    return InvalidConfig(obj=obj, field=field, problem=problem, fix=fix)
