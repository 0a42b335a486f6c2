"""Configurations of node remedy: ``node-remedy/v1alpha`` documents together with fence configuration and settings. Pure.

`read_configuration` checks one document; a document with a problem is not used. `Configurations` joins all documents, and says
which thresholds and courses of remedies hold for a node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kubeletx.api import InvalidConfig

from .fence_config import (
    BUILTINS,
    FENCE,
    MARK_SCHEDULABLE,
    MARK_UNSCHEDULABLE,
    RESTART_INSTANCE,
    FenceMaps,
    place_of,
)
from .fields import ConfigField
from .model import FenceMethod, FenceProof, NodeView, RemedyCourse, RemedySettings
from .pod_templates import check_template
from .properties import parse_selector, selects

API_VERSION: Final = "node-remedy/v1alpha"
CORDON: Final = "cordon"
JOB_SECONDS: Final = 600.0
_RESERVED: Final = (FENCE, CORDON, RESTART_INSTANCE, *BUILTINS)
_CLEAN: Final = ("clean-resource", "clean-resourece")
_REMEDY: Final = re.compile(r"remedy([1-9][0-9]?)")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_STATUSES: Final = {"true": "True", "false": "False", "unknown": "Unknown"}
_MOST_COUNT: Final = 1000


class PlannedRemedy(msgspec.Struct, frozen=True, kw_only=True):
    """A remedy of a threshold. `period`: seconds until the next one; None: the settle time. `cleans`: None: not written."""

    name: str
    period: float | None = None
    cleans: bool | None = None


class RemedyThreshold(msgspec.Struct, frozen=True, kw_only=True):
    """Start of a flow: a condition that has had one of `statuses` for `period` seconds, or events.

    `event`: reason of events about the node, of which `count` within `period` seconds match; empty for a condition.
    """

    condition: str = ""
    statuses: tuple[str, ...] = ()
    event: str = ""
    count: int = 1
    period: float
    remedies: tuple[PlannedRemedy, ...]
    recovery: str = ""

    @property
    def name(self) -> str:
        """Name that other thresholds of the configuration do not have, such as ``Ready=False,Unknown``."""
        return self.event or f"{self.condition}={','.join(self.statuses)}"


class RemedyConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """A checked Configuration. `jobs`: methods of its remedyConfigs by name. `notes`: forms that were read, for people."""

    name: str
    document: str
    selector: Mapping[str, str]
    thresholds: tuple[RemedyThreshold, ...]
    jobs: Mapping[str, FenceMethod]
    notes: tuple[str, ...] = ()


class NodeCourses(NamedTuple):
    """A threshold that holds for a node, and its remedies in order."""

    configuration: str
    threshold: RemedyThreshold
    courses: tuple[RemedyCourse, ...]


class Configurations:
    """Everything that is configured. Nothing is changed after construction, except what is remembered for speed."""

    def __init__(
        self,
        documents: Sequence[RemedyConfiguration] = (),
        maps: Mapping[str, Mapping[str, str]] | None = None,
        *,
        settings: RemedySettings | None = None,
        last: Configurations | None = None,
    ) -> None:
        """`maps`: ConfigMaps of fence configuration by name. `last`: what was in use before.

        A node whose fence configuration cannot be used any more keeps its course from `last`.
        """
        self.settings = settings or RemedySettings()
        # The more specific selector first: its course is used if several thresholds match.
        self.documents = tuple(sorted(documents, key=lambda one: -len(one.selector)))
        jobs = {name: job for one in self.documents for name, job in one.jobs.items()}
        selectors = last._fences.selectors if last else {}
        self._fences: FenceMaps = FenceMaps(maps or {}, jobs, selectors)
        self.problems: tuple[InvalidConfig, ...] = tuple(self._fences.problems())
        read = (note for document in self.documents for note in document.notes)
        self.notes: tuple[str, ...] = (*read, *self._fences.notes())
        self._good: dict[str, RemedyCourse] = dict(last._good) if last else {}
        self._made: dict[str, tuple[object, RemedyCourse]] = {}

    def courses(self, node: NodeView) -> list[NodeCourses]:
        """Return the thresholds that hold for a node, the most specific configuration first."""
        return [
            NodeCourses(document.name, threshold, tuple(self._courses(document, threshold, node)))
            for document in self.documents
            if selects(document.selector, node.metadata.labels)
            for threshold in document.thresholds
        ]

    def _courses(
        self, document: RemedyConfiguration, threshold: RemedyThreshold, node: NodeView
    ) -> Iterator[RemedyCourse]:
        recovery = threshold.recovery
        last = [BUILTINS.get(recovery) or document.jobs[recovery]] if recovery else []
        for remedy in threshold.remedies:
            cleans = remedy.name == FENCE if remedy.cleans is None else remedy.cleans
            if remedy.name == FENCE:
                course = self._fence(node)
            elif remedy.name == CORDON:
                course = RemedyCourse(
                    name=CORDON, isolation=(MARK_UNSCHEDULABLE,), recovery=(MARK_SCHEDULABLE,)
                )
            else:
                method = document.jobs[remedy.name]
                if cleans:  # the administrator says that its success is a fence
                    method = msgspec.structs.replace(method, proof=FenceProof.POWER)
                course = RemedyCourse(name=remedy.name, isolation=(method,))
            period = self.settings.settle_time if remedy.period is None else remedy.period
            # New pods are scheduled last, once the node has recovered.
            steps = [method for method in course.recovery if method != MARK_SCHEDULABLE]
            ends = [method for method in course.recovery if method == MARK_SCHEDULABLE and last != [method]]
            yield msgspec.structs.replace(
                course, period=period, cleans=cleans, recovery=(*steps, *last, *ends)
            )

    def _fence(self, node: NodeView) -> RemedyCourse:
        key = (node.spec.provider_id, node.metadata.labels)
        made = self._made.get(node.name)
        if made is None or made[0] != key:
            made = self._made[node.name] = (key, self._resolved(node))
        return made[1]

    def _resolved(self, node: NodeView) -> RemedyCourse:
        place = place_of(node)
        try:
            course = self._fences.resolve(place)
        except InvalidConfig as error:
            # Without a map, nothing is wrong that could be corrected: its removal counts.
            good = self._good.get(node.name) if self._fences.has_config(place) else None
            return good or RemedyCourse(name=FENCE, problem=str(error))
        self._good[node.name] = course
        return course


# --- reading of one document ---


def read_configuration(
    raw: Any, document: str, name: str
) -> tuple[RemedyConfiguration | None, list[InvalidConfig]]:
    """Return the Configuration of a YAML document, or None and its problems.

    `document`: where it is written, for people. `name`: its name, unless it has a ``metadata.name``.
    """
    problems: list[InvalidConfig] = []
    notes: list[str] = []
    root = ConfigField(document, "", raw)
    try:
        fields = root.known(
            "apiVersion", "kind", "metadata", "nodeSelector", "thresholdConfigs", "remedyConfigs"
        )
        if "metadata" in fields and "name" in fields["metadata"].fields():
            name = fields["metadata"].child("name").text("write a name")
        selector = _selector(root.child("nodeSelector"))
        thresholds = root.child("thresholdConfigs")
        written = thresholds.items() if thresholds.value is not None else []
        if not written:
            raise thresholds.invalid("has no threshold", "write a condition with its remedy1")
        remedies = root.child("remedyConfigs")
        items = remedies.items() if remedies.value is not None else []
    except InvalidConfig as error:
        return None, [error]
    jobs: dict[str, FenceMethod] = {}
    for item in items:
        try:
            job = _remedy_config(item)
            if job.name in jobs:
                raise item.child("name").invalid(f"{job.name!r} is there twice", "rename one of them")
            jobs[job.name] = job
        except InvalidConfig as error:
            problems.append(error)
    # A remedy whose definition is wrong is known by name, so that it has one problem and not two.
    given = (item.value.get("name") for item in items if isinstance(item.value, dict))
    names = {name for name in given if isinstance(name, str)}
    made: list[RemedyThreshold] = []
    for item in written:
        try:
            threshold = _threshold(item, names, notes)
            _check_duplicate(item, threshold, made)
            made.append(threshold)
        except InvalidConfig as error:
            problems.append(error)
    if problems:
        return None, problems
    return RemedyConfiguration(
        name=name,
        document=document,
        selector=selector,
        thresholds=_with_unknown(made),
        jobs=jobs,
        notes=tuple(f"{document}: {note}" for note in notes),
    ), []


def _selector(field: ConfigField) -> dict[str, str]:
    if field.value is None:
        return {}
    if isinstance(field.value, dict):
        return {
            key: value.text("write KEY: VALUE, with quotes if it is a number")
            for key, value in field.fields().items()
        }
    try:
        return parse_selector(field.text("write KEY=VALUE"))
    except ValueError as error:
        raise field.invalid(str(error), "write KEY=VALUE, or KEY: VALUE lines") from error


def _remedy_config(item: ConfigField) -> FenceMethod:
    """Return the method of a remedyConfig."""
    fields = item.known("name", "podTemplate", "external", "plugin", "timeout")
    name = item.child("name").text("write a name")
    if not _NAME.fullmatch(name):
        fix = "write at most 40 small letters, digits and '-'"
        raise fields["name"].invalid(f"{name[:60]!r} is not a name for Jobs", fix)
    if name in _RESERVED:
        raise fields["name"].invalid(f"{name!r} is a built-in remedy or method", "write another name")
    kinds = [kind for kind in ("podTemplate", "external", "plugin") if kind in fields]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "neither podTemplate, external nor plugin"
        raise item.invalid(f"has {found}", "write one of podTemplate, external and plugin")
    kind, definition = kinds[0], fields[kinds[0]]
    seconds = fields["timeout"].seconds() if "timeout" in fields else JOB_SECONDS
    if seconds <= 0:
        raise fields["timeout"].invalid("is 0", "write a time such as 10m, or remove it")
    if kind == "podTemplate":
        check_template(definition)
        return FenceMethod(name=name, kind="job", definition=definition.value, seconds=seconds)
    wanted = ("apiVersion", "kind", "name", "namespace") if kind == "external" else ("name", "parameters")
    known = definition.known(*wanted)
    for key in wanted[:3] if kind == "external" else wanted[:1]:
        definition.child(key).text(f"write the {key} of the {kind if kind == 'plugin' else 'template'}")
    parameters: dict[str, str] = {}
    if "parameters" in known:
        for key, value in known["parameters"].fields().items():
            parameters[key] = value.text("write a text, with quotes if it is a number")
    return FenceMethod(
        name=name, kind=kind, definition=definition.value, parameters=parameters, seconds=seconds
    )


def _threshold(item: ConfigField, names: set[str], notes: list[str]) -> RemedyThreshold:
    fields = item.fields()
    remedies = {int(found[1]): key for key in fields if (found := _REMEDY.fullmatch(key))}
    is_event = "nodeEventReason" in fields
    prefix = "nodeEvent" if is_event else "nodeCondition"
    wanted = ("Reason", "Count", "Period") if is_event else ("Type", "Status", "Period")
    known = [prefix + key for key in wanted]
    item.known(*known, *sorted({"remedy1", *remedies.values()}), "recovery")
    subject = item.child(known[0]).text(f"write {known[0]}")
    period = item.child(known[2]).seconds()
    if not remedies:
        raise item.child("remedy1").invalid("is missing", "name the remedy of this threshold")
    for number, place in zip(sorted(remedies), range(1, len(remedies) + 1), strict=True):
        if number != place:
            raise fields[remedies[number]].invalid(f"remedy{place} is missing", f"write it as remedy{place}")
    recovery = ""
    if "recovery" in fields:
        field = fields["recovery"]
        given = _flat(field, notes) if not isinstance(field.value, str) else {"name": field}
        recovery = _named(given, field, {*names, MARK_SCHEDULABLE.name}, {"name"})
    return RemedyThreshold(
        condition="" if is_event else subject,
        statuses=() if is_event else (_status(item.child(known[1]), subject),),
        event=subject if is_event else "",
        count=_count(item.child(known[1])) if is_event else 1,
        period=period,
        remedies=tuple(_planned(fields[remedies[number]], names, notes) for number in sorted(remedies)),
        recovery=recovery,
    )


def _status(field: ConfigField, condition: str) -> str:
    status = _STATUSES.get(str(field.value).lower())
    if status is None:
        raise field.wrong("true, false or Unknown", "write true, false or Unknown")
    if condition == "Ready" and status == "True":
        raise field.invalid("true is the status of every well node", "write false or Unknown")
    return status


def _count(field: ConfigField) -> int:
    count = 1 if field.value is None else field.value
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_COUNT:
        raise field.wrong(f"a number from 1 to {_MOST_COUNT}", "write how many events start a flow")
    return count


def _planned(field: ConfigField, names: set[str], notes: list[str]) -> PlannedRemedy:
    given = _flat(field, notes)
    name = _named(given, field, {*names, FENCE, CORDON}, {"name", "period", *_CLEAN})
    written = [given[key] for key in _CLEAN if key in given]
    if len(written) > 1:
        raise written[1].invalid("is there in two spellings", "keep clean-resource")
    if "clean-resourece" in given:
        notes.append(f"{written[0].path}: read as clean-resource")
    cleans = written[0].flag() if written else None
    if name == CORDON and cleans:
        fix = "write the remedy fence, which releases pods after a proof"
        raise written[0].invalid("cordon proves nothing about the node's pods", fix)
    period = given["period"].seconds() if "period" in given else None
    return PlannedRemedy(name=name, period=period, cleans=cleans)


def _flat(field: ConfigField, notes: list[str]) -> dict[str, ConfigField]:
    """Return the fields of a mapping, or of a list of mappings, as the seed of node remedy writes remedies."""
    if not isinstance(field.value, list):
        return field.fields()
    found: dict[str, ConfigField] = {}
    for item in field.items():
        for key, value in item.fields().items():
            if key in found:
                raise value.invalid("is there twice", f"keep {found[key].path}")
            found[key] = value
    notes.append(f"{field.path}: read as one mapping, from a list of {len(field.value)}")
    return found


def _named(given: Mapping[str, ConfigField], field: ConfigField, names: set[str], keys: set[str]) -> str:
    """Return the name of a remedy, which has to be one of `names`."""
    for key, value in given.items():
        if key not in keys:
            raise value.invalid("is not known", f"write one of {', '.join(sorted(keys))}")
    written = given.get("name") or ConfigField(field.document, f"{field.path}.name", None)
    name = written.text("write the name of a remedy")
    if name not in names:
        known = ", ".join(sorted(names))
        raise written.invalid(
            f"remedy {name!r} does not exist", f"add it to remedyConfigs, or write one of {known}"
        )
    return name


def _check_duplicate(item: ConfigField, threshold: RemedyThreshold, made: Sequence[RemedyThreshold]) -> None:
    for other in made:
        if (other.condition, other.event) == (threshold.condition, threshold.event) and (
            other.statuses == threshold.statuses
        ):
            what = f"{threshold.condition or threshold.event} {' '.join(threshold.statuses)}".strip()
            raise item.invalid(f"{what} has a threshold already", "keep one of them, with further remedies")


def _with_unknown(thresholds: Sequence[RemedyThreshold]) -> tuple[RemedyThreshold, ...]:
    """Let ``Ready: false`` include Unknown, the status of a node that is cut off, unless Unknown has its own threshold."""
    written = {(one.condition, one.statuses) for one in thresholds}
    is_free = ("Ready", ("Unknown",)) not in written
    return tuple(
        msgspec.structs.replace(one, statuses=("False", "Unknown"))
        if is_free and (one.condition, one.statuses) == ("Ready", ("False",))
        else one
        for one in thresholds
    )
