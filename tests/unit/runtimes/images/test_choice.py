"""Which images may go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import (
    ImageStatus,
    PodUid,
    SandboxId,
    StoreId,
    UnitId,
    UnitState,
    UnitSummary,
    find_image_reference,
)
from kubeletx.runtimes.images import choice
from kubeletx.runtimes.images.choice import (
    FilesystemUsage,
    bytes_to_free,
    choose,
    deletable,
    too_old,
    used_images,
)
from kubeletx.runtimes.images.records import ImageRecord
from kubeletx.runtimes.images.settings import CollectionSettings

NOW = datetime(2030, 1, 1, tzinfo=UTC)
STORE = StoreId("s")
MIN_AGE = timedelta(minutes=2)


def image(name: str, **more: object) -> ImageStatus:
    more.setdefault("tags", (f"docker.io/library/{name}:latest",))
    more.setdefault("size_bytes", 100)
    return ImageStatus(id=f"sha256:{name}", ref=f"sha256:{name}", **more)  # type: ignore[arg-type]


def record(name: str, minutes: float, used: float | None = None) -> ImageRecord:
    used = minutes if used is None else used
    return ImageRecord(
        store=STORE,
        image=f"sha256:{name}",
        requested=name,
        pulled_at=NOW - timedelta(minutes=minutes),
        used_at=NOW - timedelta(minutes=used),
    )


def unit(**more: str) -> UnitSummary:
    return UnitSummary(
        id=UnitId("u"),
        sandbox_id=SandboxId("s"),
        uid=PodUid("p"),
        name="c",
        attempt=0,
        state=UnitState.EXITED,
        created_at_ns=0,
        **more,  # type: ignore[arg-type]
    )


def records(*all_records: ImageRecord) -> dict[str, ImageRecord]:
    return {r.image: r for r in all_records}


def test_the_thresholds_are_the_kubelets() -> None:
    settings = CollectionSettings()
    assert bytes_to_free(FilesystemUsage(capacity_bytes=1000, available_bytes=160), settings) == 0
    assert bytes_to_free(FilesystemUsage(capacity_bytes=1000, available_bytes=150), settings) == 50
    assert bytes_to_free(FilesystemUsage(capacity_bytes=1000, available_bytes=0), settings) == 200
    assert bytes_to_free(FilesystemUsage(capacity_bytes=0, available_bytes=0), settings) == 0


def test_an_image_is_used_by_any_unit_and_by_what_pods_want() -> None:
    images = [image("a"), image("b"), image("c"), image("d")]
    units = [unit(image_id="sha256:a"), unit(image="b:latest")]
    assert used_images(images, units, ["docker.io/library/c"]) == {"sha256:a", "sha256:b", "sha256:c"}


def test_an_image_that_a_pod_needs_by_tag_and_digest_is_used() -> None:
    digest = "sha256:" + "0" * 64
    by_digest = image("a", tags=(), digests=(f"r.io/a@{digest}",))
    assert used_images([by_digest], [], [f"r.io/a:1@{digest}"]) == {"sha256:a"}


def test_each_name_is_read_once_however_many_pods_and_images_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    monkeypatch.setattr(
        choice, "find_image_reference", lambda text: read.append(text) or find_image_reference(text)
    )
    images = [image(f"i{number}") for number in range(50)]
    assert len(used_images(images, [], [f"i{number}:latest" for number in range(0, 100, 2)])) == 25
    assert len(read) <= 100


def test_only_our_unpinned_unused_images_of_some_age_may_go_oldest_use_first() -> None:
    images = [
        image("foreign"),
        image("pinned", pinned=True),
        image("used"),
        image("young"),
        image("x"),
        image("y"),
    ]
    known = records(
        record("pinned", 99), record("used", 99), record("young", 1), record("x", 50), record("y", 60, 9)
    )
    found = deletable(images, used=frozenset({"sha256:used"}), records=known, min_age=MIN_AGE, now=NOW)
    assert [i.id for i in found] == ["sha256:x", "sha256:y"]


def test_a_clock_that_jumped_back_makes_nothing_old() -> None:
    found = deletable(
        [image("x")], used=frozenset(), records=records(record("x", -500)), min_age=MIN_AGE, now=NOW
    )
    assert found == []


def test_no_more_goes_than_is_needed() -> None:
    images = [image("a"), image("b"), image("c")]
    assert choose(images, 0) == []
    assert choose(images, 101) == images[:2]
    assert choose(images, 10_000) == images


def test_age_alone_may_be_enough() -> None:
    images = [image("a"), image("b")]
    known = records(record("a", 100, 90), record("b", 100, 5))
    assert too_old(images, known, max_age=timedelta(hours=1), now=NOW) == [images[0]]


names_ = st.sampled_from("abcdef")


@given(
    st.lists(st.builds(image, names_, pinned=st.booleans()), unique_by=lambda i: i.id),
    st.lists(st.builds(record, names_, st.integers(0, 10), st.integers(0, 10)), unique_by=lambda r: r.image),
    st.frozensets(names_.map(lambda n: f"sha256:{n}")),
)
def test_what_is_chosen_is_ours_unused_and_unpinned(
    images: list[ImageStatus], known: list[ImageRecord], used: frozenset[str]
) -> None:
    found = deletable(images, used=used, records=records(*known), min_age=MIN_AGE, now=NOW)
    for one in found:
        assert one.id in {r.image for r in known}
        assert one.id not in used
        assert not one.pinned
