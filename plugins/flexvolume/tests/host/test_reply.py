"""Reading the output of a driver."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_flexvolume.host.reply import (
    BadReply,
    DriverCapabilities,
    DriverReply,
    ReplyStatus,
    quoted,
    read_reply,
)

OK = b'{"status": "Success"}'


def reply(stdout: bytes, stderr: bytes = b"", exit_code: int = 0) -> DriverReply:
    return read_reply(exit_code, stdout, stderr)


def test_the_fields_of_a_reply_are_read() -> None:
    found = reply(
        b'{"status":"Success","message":"m","device":"/dev/x","volumeName":"v","attached":true,"volumeNewSize":7}'
    )
    assert found == DriverReply(
        status=ReplyStatus.SUCCESS,
        message="m",
        device="/dev/x",
        volume_name="v",
        attached=True,
        new_size_bytes=7,
    )


@pytest.mark.parametrize("key", ["STATUS", "Status", "\u017ftatus"])
def test_keys_are_compared_without_case_as_go_does(key: str) -> None:
    assert reply(json.dumps({key: "Success"}).encode()).status is ReplyStatus.SUCCESS


def test_of_equal_keys_the_last_one_counts() -> None:
    assert reply(b'{"status":"Success","Status":"Failure","STATUS":"Success"}').status is ReplyStatus.SUCCESS
    assert reply(b'{"status":"Success","status":"Failure"}').status is ReplyStatus.FAILURE


def test_missing_capabilities_are_the_kubelets_defaults() -> None:
    found = reply(OK).capabilities
    assert found == DriverCapabilities(
        attach=True, selinux_relabel=True, supports_metrics=False, fs_group=True, requires_fs_resize=True
    )


@pytest.mark.parametrize("key", ["capabilities", "Capabilities"])
def test_partial_capabilities_change_only_their_keys(key: str) -> None:
    found = reply(b'{"status":"Success","%s":{"ATTACH":false,"fsGroup":null,"other":1}}' % key.encode())
    assert found.capabilities == DriverCapabilities(attach=False)


@pytest.mark.parametrize("field", ["message", "device", "capabilities", "attached", "volumeNewSize"])
def test_null_leaves_a_field_as_it_is(field: str) -> None:
    assert reply(b'{"status":"Success","%s":null}' % field.encode()) == reply(OK)


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"null",
        b"[]",
        b'"Success"',
        b"{",
        b'{"status":"Success"',
        b'{"message":"x"}',
        b'{"status":"Success"} x',
        b'x {"status":"Success"}',
        b'{"status":NaN}',
        b'{"status":["Success"]}',
        b'{"status":"Success","attached":1}',
        b'{"status":"Success","volumeNewSize":"7"}',
        b'{"status":"Success","volumeNewSize":7.5}',
        b'{"status":"Success","volumeNewSize":true}',
        b'{"status":"Success","volumeNewSize":99999999999999999999}',
        b'{"status":"Success","capabilities":[]}',
        b'{"status":"Success","capabilities":{"attach":"false"}}',
        b'{"status":"Success","x":' + b"9" * 10_000 + b"}",
        b"\xff\xfe",
    ],
)
def test_output_that_is_not_a_reply_is_refused(output: bytes) -> None:
    with pytest.raises(BadReply):
        reply(output)


def test_not_supported_and_failure_count_with_every_exit_code() -> None:
    for code in (0, 1, 255, -9):
        assert reply(b'{"status":"Not supported"}', exit_code=code).status is ReplyStatus.NOT_SUPPORTED
        found = reply(b'{"status":"Failure","message":"m"}', exit_code=code)
        assert (found.status, found.message) == (ReplyStatus.FAILURE, "m")


def test_a_status_is_compared_exactly() -> None:
    for status in ("success", "Success ", "not supported", "NotSupported", "Done", ""):
        found = reply(json.dumps({"status": status}).encode())
        assert found.status is ReplyStatus.FAILURE


def test_success_with_an_exit_code_is_an_error() -> None:
    with pytest.raises(BadReply, match="exit code 3, and its status is Success"):
        reply(OK, exit_code=3)


def test_cut_output_is_an_error() -> None:
    with pytest.raises(BadReply, match="more output than 1 MiB"):
        read_reply(0, OK, b"", is_cut=True)


@pytest.mark.parametrize(
    ("stdout", "stderr"),
    [
        (b"mounting\n" + OK, b""),
        (OK, b"+ mount x\nwarning: {x}\n"),
        (b"", b"chatter\n" + OK),
        (b'{"level":"info"}\n' + OK, b""),
        (b'chatter\n{\n  "status": "Success"\n}\n', b""),
        (OK + b"\n" + OK, b""),
    ],
)
def test_chatter_around_the_last_object_is_tolerated(stdout: bytes, stderr: bytes) -> None:
    found = reply(stdout, stderr)
    assert found.status is ReplyStatus.SUCCESS
    assert found.has_chatter


@pytest.mark.parametrize(
    ("stdout", "stderr"),
    [
        (b'{"status":"Failure"}\n' + OK, b""),
        (OK, b'{"status":"Failure"}'),
        (OK, b'error\n{"status":"Not supported"}\n'),
        (b'{"status":"Failure", broken\n' + OK, b""),
        (OK, b"{broken"),
        (OK + b"\nError: it failed", b""),
    ],
)
def test_output_that_contradicts_itself_is_not_a_success(stdout: bytes, stderr: bytes) -> None:
    with pytest.raises(BadReply):
        reply(stdout, stderr)


def test_the_output_is_kept_for_the_message_as_it_is() -> None:
    with pytest.raises(BadReply) as error:
        reply(b"out", b"err")
    assert error.value.output == "out err"
    assert "out" not in str(error.value).replace("output", "")


def test_quoted_text_is_one_short_printable_line() -> None:
    text = quoted("a\nb\x1b[31m\ud800" + "x" * 5000)
    assert len(text) < 500
    assert text.startswith("'a b?[31m\\\\ud800xxx")


bytes_of_drivers = st.one_of(
    st.binary(max_size=200),
    st.text(alphabet='{}[]":, \nstauSce\\u0', max_size=80).map(str.encode),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
)


@given(bytes_of_drivers, bytes_of_drivers, st.integers(-64, 255))
def test_arbitrary_output_gives_a_reply_or_a_bad_reply(stdout: bytes, stderr: bytes, exit_code: int) -> None:
    try:
        found = read_reply(exit_code, stdout, stderr)
    except BadReply:
        return
    if found.status is ReplyStatus.SUCCESS:
        assert exit_code == 0
        assert b'"Success"' in stdout + stderr or b"\\u" in stdout + stderr


@given(bytes_of_drivers, st.sampled_from([b"", b"\n", b"chatter\n"]), bytes_of_drivers)
def test_a_failure_is_never_read_as_success(before: bytes, between: bytes, stderr: bytes) -> None:
    failed = b'{"status": "Failure", "message": "m"}'
    try:
        found = read_reply(0, before + b"\n" + failed + b"\n" + between, stderr)
    except BadReply:
        return
    assert found.status is ReplyStatus.FAILURE


@given(
    st.dictionaries(
        st.sampled_from(["attach", "fsGroup", "supportsMetrics", "selinuxRelabel"]), st.booleans()
    )
)
def test_given_capabilities_are_read_and_others_are_defaults(given_values: dict[str, bool]) -> None:
    found = reply(json.dumps({"status": "Success", "capabilities": given_values}).encode()).capabilities
    names = {
        "attach": "attach",
        "fsGroup": "fs_group",
        "supportsMetrics": "supports_metrics",
        "selinuxRelabel": "selinux_relabel",
    }
    for key, name in names.items():
        assert getattr(found, name) == given_values.get(key, getattr(DriverCapabilities(), name))
