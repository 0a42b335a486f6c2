from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import InvalidPod
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec
from kubeletx.pods.model.sources import Accepted, Refused
from kubeletx.static.manifest_ownership import ManifestOwnership
from tests.unit.static.recording_sink import RecordingSink

ORIGINS = ("/m/a", "/m/b", "/m/c")
NAMES = ("one", "two", "three")


def pod(origin: str, name: str, version: int) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"{origin}-{name}-{version}"),
        spec=PodSpec(containers=(Container(name="c", image=f"app:{version}"),)),
    )


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("set"),
            st.sampled_from(ORIGINS),
            st.dictionaries(st.sampled_from(NAMES), st.integers(1, 2), max_size=3),
        ),
        st.tuples(st.just("error"), st.sampled_from(ORIGINS), st.none()),
        st.tuples(st.just("drop"), st.sampled_from(ORIGINS), st.none()),
    ),
    max_size=20,
)


@given(steps)
def test_the_sink_always_has_what_the_first_manifest_of_each_name_says(
    history: list[tuple[str, str, dict[str, int] | None]],
) -> None:
    sink = RecordingSink()
    claims = ManifestOwnership(sink, "file")
    held: dict[str, dict[str, int]] = {}
    broken: set[str] = set()
    for step, origin, pods in history:
        if step == "set":
            assert pods is not None
            held[origin] = pods
            broken.discard(origin)
            claims.set_pods(origin, tuple(pod(origin, name, version) for name, version in pods.items()))
        elif step == "error":
            broken.add(origin)
            claims.set_error(origin, InvalidPod(obj=origin, field="", problem="is broken"))
        else:
            held.pop(origin, None)
            broken.discard(origin)
            claims.drop(origin)
        winners = {name: origin for origin in sorted(held, reverse=True) for name in held[origin]}
        assert set(sink.pods) == {f"{origin}-{name}-{held[origin][name]}" for name, origin in winners.items()}
        refused = {origin for origin, names in held.items() for name in names if winners[name] != origin}
        assert set(sink.errors) == broken | refused
        assert claims.origins() == held.keys() | broken
        for one in broken:
            uid = sink.errors[one][1]
            assert uid is None or uid.startswith(one)


def test_nothing_is_reported_twice() -> None:
    sink = RecordingSink()
    claims = ManifestOwnership(sink, "file")
    for _ in range(2):
        claims.set_pods("/m/a", (pod("/m/a", "one", 1),))
        claims.set_error("/m/b", InvalidPod(obj="/m/b", field="", problem="is broken"))
    claims.drop("/m/b")
    claims.drop("/m/b")
    assert sink.calls == ["update one", "invalid b", "valid b"]


def test_a_new_manifest_does_not_touch_the_pods_of_others() -> None:
    sink = RecordingSink()
    claims = ManifestOwnership(sink, "file")
    claims.set_pods("/m/b", (pod("/m/b", "one", 1), pod("/m/b", "two", 1)))
    claims.set_pods("/m/a", (pod("/m/a", "three", 1),))
    assert sink.calls == ["update one", "update two", "update three"]
    assert claims.owner("default/one") == "/m/b"
    assert claims.owner("default/four") is None


def test_a_pod_that_the_sink_refuses_is_an_error_of_its_manifest() -> None:
    sink = RecordingSink()
    sink.answer = Refused("pod default/one of source 'applied' has UID u")
    claims = ManifestOwnership(sink, "file")
    claims.set_pods("/m/a", (pod("/m/a", "one", 1),))
    assert "has UID u" in sink.errors["/m/a"][0]
    sink.answer = Accepted()
    claims.set_pods("/m/a", (pod("/m/a", "one", 2),))
    assert not sink.errors
