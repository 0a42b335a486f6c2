"""Results are data: what is recorded of a pod's life replays to the same facts, from its JSON form too."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import ImageStatus, NicState, NicStatus, UnitId
from kubeletx.kube.types.core import Container, Pod
from kubeletx.pods.model import actions as act
from kubeletx.pods.model import results
from kubeletx.pods.model.facts import HookState, Now, PodFacts, ProbeFacts
from kubeletx.pods.model.history import History
from kubeletx.pods.model.results import Result, Together
from tests.unit.pods.pod_model import START, Ended, PodModel, Recorded, fresh_facts, make_pod

CLASSES = {one.__name__: one for one in Result.__subclasses__()}
FAILING = (act.Bind, act.PrepareVolumes, act.EnsureImage, act.CreateSandbox, act.StartUnit, act.StopUnit)
INIT = (Container(name="i1", image="i"), Container(name="side", image="i", restart_policy="Always"))

_PODS = tuple(make_pod(names, init=init).pod for names in (("a",), ("a", "b")) for init in ((), INIT))
_NAMES = st.sampled_from(["a", "b", "i1", "side"])
_UNIT_IDS = st.sampled_from(["c1", "c2"]).map(UnitId)
_PROBES = st.builds(
    ProbeFacts, unit_id=_UNIT_IDS, readiness=st.none() | st.booleans(), liveness=st.none() | st.booleans()
)
_VALUES: Mapping[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    float: st.floats(0, 1e6),
    int: st.integers(0, 9),
    str: _NAMES,
    datetime: st.datetimes(timezones=st.just(UTC)),
    UnitId: _UNIT_IDS,
    HookState: st.sampled_from(HookState),
    ImageStatus: st.builds(ImageStatus, id=_NAMES, ref=_NAMES),
    NicStatus: st.builds(NicStatus, name=_NAMES, state=st.sampled_from(NicState)),
    Pod: st.sampled_from(_PODS),
    ProbeFacts: _PROBES,
    type(None): st.none(),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    if kind in _VALUES:
        return _VALUES[kind]
    if hasattr(kind, "__supertype__"):
        return values_of(kind.__supertype__)
    if get_origin(kind) is tuple and ... not in get_args(kind):
        return st.tuples(*map(values_of, get_args(kind)))
    if get_origin(kind) is tuple:
        return st.lists(values_of(get_args(kind)[0]), max_size=2).map(tuple)
    if get_origin(kind) is Mapping:
        key, value = get_args(kind)
        return st.dictionaries(values_of(key), values_of(value), max_size=2)
    return st.one_of([values_of(one) for one in get_args(kind)])


def results_of(cls: type[Result]) -> st.SearchStrategy[Result]:
    """Results of one class."""
    if cls is Together:
        simple = [one for one in CLASSES.values() if one is not Together]
        parts = st.lists(st.sampled_from(simple).flatmap(results_of), max_size=3)
        return parts.map(lambda found: Together(tuple(found)))
    fields = {name: values_of(kind) for name, kind in get_type_hints(cls).items()}
    return st.builds(cls, **fields)


def to_json(result: Result) -> bytes:
    """A result as JSON: its class and its fields."""
    return msgspec.json.encode({"class": type(result).__name__, "fields": fields_of(result)})


def fields_of(result: Result) -> Any:
    if isinstance(result, Together):
        return [msgspec.json.decode(to_json(one)) for one in result.results]
    return msgspec.to_builtins(result)


def from_json(data: bytes) -> Result:
    """The result that `to_json` wrote."""
    return _from_builtins(msgspec.json.decode(data))


def _from_builtins(found: Any) -> Result:
    cls = CLASSES[found["class"]]
    if cls is Together:
        return Together(tuple(map(_from_builtins, found["fields"])))
    return msgspec.convert(found["fields"], cls)


def replay(record: list[Recorded]) -> PodFacts:
    """The facts after a record, from the facts of a new pod."""
    facts = fresh_facts()
    for step in record:
        facts = (
            results.apply(facts, from_json(to_json(step.result)), step.now)
            if isinstance(step, Ended)
            else step.onto(facts)
        )
    return facts


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("exit"), _NAMES, st.sampled_from([0, 1])),
        st.tuples(st.just("fail"), st.sets(st.sampled_from(FAILING)), st.integers(1, 3)),
        st.tuples(st.just("probe"), _NAMES, _PROBES),
        st.tuples(st.just("objects"), st.none(), st.none()),
        st.tuples(st.just("edit"), st.none(), st.none()),
        st.tuples(st.just("sandbox"), st.none(), st.none()),
        st.tuples(st.just("restart"), st.none(), st.none()),
        st.tuples(st.just("wait"), st.none(), st.sampled_from([1, 30, 1000])),
        st.tuples(st.just("delete"), st.none(), st.none()),
    ),
    max_size=12,
)


def run(model: PodModel, events: list[tuple[str, Any, Any]]) -> None:
    """A pod's life; each event is followed by turns in which the plan acts."""
    turns = 4
    for kind, what, value in [("start", None, None), *events]:
        model.failing = ()
        match kind:
            case "exit":
                model.exit(what, value)
            case "fail":
                model.failing, turns = tuple(what), value
            case "probe":
                model.apply(results.Probed(what, value))
            case "objects":
                model.apply(results.ObjectsChanged())
            case "edit":
                after = replace(
                    model.desired.pod, metadata=replace(model.desired.pod.metadata, labels={"a": "b"})
                )
                model.apply(results.PodEdited(model.desired.pod, after))
                model.desired = replace(model.desired, pod=after)
            case "sandbox":
                model.lose_sandbox()
            case "restart":
                model.restart_agent()
            case "wait":
                model.mono += value
            case "delete" if model.desired.deletion is None:
                model.delete()
        for _ in range(turns):
            if not model.finished:
                model.turn()


@settings(max_examples=80, deadline=None)
@given(events=EVENTS, policy=st.sampled_from(["Always", "OnFailure", "Never"]), with_init=st.booleans())
def test_a_record_of_looks_and_results_replays_to_the_same_facts(
    events: list[tuple[str, Any, Any]], policy: str, with_init: bool
) -> None:
    model = PodModel(make_pod(("a", "b"), init=INIT if with_init else (), policy=policy))
    run(model, events)
    assert replay(model.record) == model.facts
    done = [step.action for step in model.record if isinstance(step, Ended) and step.action is not None]
    assert done == model.journal


@settings(max_examples=50, deadline=None)
@given(events=EVENTS)
def test_the_history_of_a_record_is_the_history_of_its_json_form(events: list[tuple[str, Any, Any]]) -> None:
    model = PodModel(make_pod(("a",), init=INIT))
    run(model, events)
    lived, read = History(), History()
    for step in model.record:
        if isinstance(step, Ended) and step.action is not None:
            lived.add(step.action, step.result, at=step.now.wall, seconds=0.0)
            read.add(step.action, from_json(to_json(step.result)), at=step.now.wall, seconds=0.0)
    assert lived.entries == read.entries
    assert len(lived.entries) > 0


@pytest.mark.parametrize("name", sorted(CLASSES))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_result_is_data_and_applying_it_is_pure(name: str, data: st.DataObject) -> None:
    result = data.draw(results_of(CLASSES[name]))
    assert from_json(to_json(result)) == result
    before = data.draw(st.lists(st.sampled_from(list(CLASSES.values())).flatmap(results_of), max_size=5))
    facts = fresh_facts()
    for number, one in enumerate(before):
        facts = results.apply(facts, one, Now(wall=START, mono=100.0 + number))
    now = Now(wall=START, mono=200.0, draw=0.25)
    inputs = msgspec.json.encode((facts, now)), to_json(result)
    after = results.apply(facts, result, now)
    assert results.apply(facts, result, now) == after
    assert (msgspec.json.encode((facts, now)), to_json(result)) == inputs
