"""The endpoint grammar: all forms, all refusals, and the round trip of the printed form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import Endpoint, InvalidConfig, RuntimeName
from kubeletx.runtimes.endpoints.grammar import format_endpoints, is_name, parse_endpoints
from kubeletx.runtimes.endpoints.kinds import KindTable, RuntimeKind


def no_factory(*_args: Any) -> Any:
    raise AssertionError("parsing makes no runtimes")


def kind(name: str, types: tuple[str, ...], schemes: tuple[str, ...], **more: Any) -> RuntimeKind:
    return RuntimeKind(name=name, factory=no_factory, workload_types=types, schemes=schemes, **more)


KINDS = KindTable(
    [
        kind("containerd", ("container",), ("unix", "tcp"), default_claim=True, parameters=("handler",)),
        kind("libvirt", ("vm",), ("qemu", "test"), default_claim=True, parameters=("socket",)),
        kind("quark", ("container",), ("unix",)),
        kind("local", ("process",), ("local",), default_claim=True),
    ]
)


def parse(*runtime: str, images: tuple[str, ...] = ()) -> tuple[Endpoint, ...]:
    return parse_endpoints(runtime, images, KINDS, "flag")


def refusal(*runtime: str, images: tuple[str, ...] = ()) -> str:
    with pytest.raises(InvalidConfig) as caught:
        parse(*runtime, images=images)
    return str(caught.value)


def test_the_design_documents_form_is_split_at_the_first_two_colons() -> None:
    first, second = parse("container:containerd:unix:///run/a.sock;vm:kvm:qemu:///system")
    assert (first.name, first.workload_type, first.url, first.kind) == (
        "containerd",
        "container",
        "unix:///run/a.sock",
        "containerd",
    )
    assert (second.name, second.workload_type, second.url, second.kind) == (
        "kvm",
        "vm",
        "qemu:///system",
        "libvirt",
    )


def test_the_arktos_form_is_told_by_a_comma_before_the_first_colon() -> None:
    (endpoint,) = parse("runc,container,unix:///run/a:c.sock")
    assert (endpoint.name, endpoint.workload_type, endpoint.url) == (
        "runc",
        "container",
        "unix:///run/a:c.sock",
    )


@pytest.mark.parametrize("text", ["/run/a.sock", "unix:///run/a.sock"])
def test_a_bare_url_or_path_is_the_default_container_runtime(text: str) -> None:
    (endpoint,) = parse(text)
    assert (endpoint.name, endpoint.workload_type, endpoint.url) == (
        "default",
        "container",
        "unix:///run/a.sock",
    )


def test_the_flag_may_be_repeated_and_items_are_numbered_over_all() -> None:
    assert [e.name for e in parse("container:a:/a", "container:b:/b;container:c:/c")] == ["a", "b", "c"]
    assert "item 3" in refusal("container:a:/a;container:b:/b", "container:a:/c")


def test_no_flag_means_no_endpoint() -> None:
    assert parse() == ()
    assert parse("") == ()


def test_a_semicolon_in_a_url_is_written_in_percent() -> None:
    (endpoint,) = parse("container:a:unix:///run/x%3By.sock")
    assert endpoint.url == "unix:///run/x;y.sock"


def test_the_hosts_parameters_are_taken_out_of_the_url() -> None:
    (endpoint,) = parse("container:a:unix:///run/a.sock?plugin=quark")
    assert (endpoint.kind, endpoint.url, endpoint.isolation) == ("quark", "unix:///run/a.sock", "")
    (endpoint,) = parse("container:a:unix:///a?handler=crun&isolation=process")
    assert (endpoint.url, endpoint.isolation) == ("unix:///a?handler=crun", "process")
    (endpoint,) = parse("container:a:unix:///a?isolation=none")
    assert endpoint.isolation == "none"
    assert format_endpoints([endpoint])[0].endswith("isolation=none")


def test_the_kind_called_like_the_endpoint_comes_before_the_default_claim() -> None:
    (endpoint,) = parse("container:quark:unix:///run/q.sock")
    assert endpoint.kind == "quark"


def test_a_scheme_with_a_transport_belongs_to_its_base() -> None:
    (endpoint,) = parse("vm:far:qemu+ssh://host/system?socket=/x")
    assert (endpoint.kind, endpoint.url) == ("libvirt", "qemu+ssh://host/system?socket=/x")


def test_an_image_endpoint_belongs_to_the_runtime_of_its_name() -> None:
    first, second = parse(
        "container:a:/a;container:b:/b", images=("container:b:/images", "a,container,/other")
    )
    assert (first.image_url, second.image_url) == ("unix:///other", "unix:///images")


def test_a_bare_image_endpoint_belongs_to_the_only_runtime() -> None:
    assert parse("container:a:/a", images=("/i",))[0].image_url == "unix:///i"
    assert parse("/a", images=("unix:///i",))[0].image_url == "unix:///i"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["container:a:/a;container:a:/b"], ["item 2", "'a' is used by an earlier item"]),
        (["container:default:/a"], ["item 1", "'default' is reserved"]),
        (["container:a--b:/a"], ["item 1", "bad runtime name 'a--b'"]),
        (["container:" + "a" * 31 + ":/a"], ["bad runtime name"]),
        (["container:A:/a"], ["bad runtime name 'A'"]),
        (["wasm:a:/a"], ["item 1", "unknown workload type 'wasm'", "container, process, vm"]),
        (["container:a"], ["item 1", "has 2 fields instead of 3"]),
        (["container"], ["has 1 field instead of 3"]),
        (["a,container"], ["has 2 fields instead of 3"]),
        (["container::/a"], ["the name in 'container::/a' is empty"]),
        (["container:a:"], ["the URL in 'container:a:' is empty"]),
        (["container:a:run.sock"], ["'run.sock' is not a URL"]),
        (["container:a:/a;"], ["item 2", "the item is empty", "extra semicolon"]),
        (["a,container,/a,/b"], ["item 1", "has 4 fields instead of 3"]),
        (["container:a:unix:///a,unix:///b"], ["item 1", "holds a comma", "an item of its own"]),
        (["unix:///a,/b"], ["item 1", "holds a comma"]),
        (["container:a:tcp://h:1,i:2"], ["item 1", "holds a comma"]),
        (["container:a:/a;;vm:b:qemu:///x"], ["item 2", "empty"]),
        (["/a;container:b:/b"], ["item 1", "must be the only item"]),
        (["container:b:/b", "/a"], ["item 2", "must be the only item"]),
        (["container:a:http://x"], ["no installed plugin serves container over http://"]),
        (["vm:a:unix:///x"], ["no installed plugin serves vm over unix://"]),
        (["container:a:/a?plugin=none-such"], ["plugin=none-such", "containerd, libvirt, local, quark"]),
        (["container:a:/a?plugin=libvirt"], ["'libvirt' does not serve container over unix://"]),
        (["container:a:/a?colour=red"], ["'containerd' has no URL parameter 'colour'", "handler, plugin"]),
        (["container:a:/a?isolation=vm"], ["isolation=vm is unknown", "none, process"]),
        (["container:a:/a?isolation="], ["isolation= is unknown", "none, process"]),
        (["container:a:/a?plugin=quark&plugin=containerd"], ["plugin= is given twice"]),
    ],
)
def test_a_refusal_names_the_item_what_was_found_and_the_fix(flags: list[str], words: list[str]) -> None:
    message = refusal(*flags)
    assert "--container-runtime-endpoint item" in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ("container:c:/i", ["unknown runtime 'c'", "a, b"]),
        ("vm:a:/i", ["'a' is of type container, not vm"]),
        ("/i", ["does not say which of 2 runtimes"]),
        ("container:a:/i;container:a:/j", ["item 2", "second image endpoint"]),
        ("container:a:/i?plugin=quark", ["no meaning"]),
    ],
)
def test_a_wrong_image_endpoint_is_refused(images: str, words: list[str]) -> None:
    message = refusal("container:a:/a;container:b:/b", images=(images,))
    assert "--image-service-endpoint item" in message
    for word in words:
        assert word in message


def test_all_wrong_items_are_named_in_one_message() -> None:
    message = refusal("wasm:a:/a;container:b;container:c:/c")
    assert message.startswith("2 problems: ")
    assert "item 1" in message
    assert "item 2" in message


def test_two_default_claims_are_refused_with_the_kinds_named() -> None:
    table = KindTable([*KINDS, kind("other", ("container",), ("unix",), default_claim=True)])
    with pytest.raises(
        InvalidConfig, match=r"several plugins claim container over unix://: containerd, other; add plugin="
    ):
        parse_endpoints(["container:a:/a"], [], table, "flag")


def test_a_type_without_a_claim_names_who_could_serve_it() -> None:
    table = KindTable([kind("quark", ("container",), ("unix",))])
    with pytest.raises(InvalidConfig, match=r"these can serve it: quark; add plugin="):
        parse_endpoints(["container:a:/a"], [], table, "flag")


names_ = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?", fullmatch=True).filter(
    lambda n: is_name(n) and n != "default"
)
tails = st.text(alphabet="abc/:;.-_~%20=@+", max_size=20).filter(lambda t: "%3b" not in t.lower())
parameters = st.lists(st.tuples(st.just("handler"), st.text(alphabet="ab;:,%/", max_size=5)), max_size=2)


@st.composite
def endpoints(draw: st.DrawFn) -> Endpoint:
    query = "&".join(f"{k}={v}" for k, v in draw(parameters) if "%3b" not in v.lower())
    return Endpoint(
        name=RuntimeName(draw(names_)),
        workload_type="container",
        url=f"unix:///{draw(tails)}".rstrip() + (f"?{query}" if query else ""),
        kind=draw(st.sampled_from(["containerd"])),
        image_url=draw(st.none() | tails.map(lambda t: f"tcp://x{t}")),
        isolation=draw(st.sampled_from(["", "none", "process"])),
    )


@given(st.lists(endpoints(), min_size=1, max_size=4, unique_by=lambda e: e.name))
def test_parsing_the_printed_form_gives_the_same_endpoints(wanted: list[Endpoint]) -> None:
    runtime, images = format_endpoints(wanted)
    assert parse_endpoints([runtime], [images], KINDS, "flag") == tuple(wanted)


@given(st.lists(st.text(alphabet="abc:;,/%3B?=& .-", max_size=40), max_size=3))
def test_no_text_makes_the_parser_fail_in_another_way(flags: list[str]) -> None:
    try:
        parsed = parse_endpoints(flags, [], KINDS, "flag")
    except InvalidConfig:
        return
    assert len({e.name for e in parsed}) == len(parsed)


def test_an_item_of_a_file_is_named_by_its_field() -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_endpoints(
            ["container:a:/a;container:b:/b", "wasm:c:/c", "container:d"],
            ["container:z:/z"],
            KINDS,
            places=["", "c.yaml: endpoints[0]", "c.yaml: endpoints[1]"],
            image_places=["c.yaml: images[0]"],
        )
    assert "c.yaml: endpoints[0]: unknown workload type 'wasm'" in str(caught.value)
    assert "c.yaml: endpoints[1]: 'container:d' has 2 fields" in str(caught.value)
