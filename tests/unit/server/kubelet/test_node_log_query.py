"""Queries of the node's logs: what is understood, what is refused, and what journalctl is then called with."""

from __future__ import annotations

import pytest

from kubeletx.server.kubelet.node_log_query import (
    ImpossibleQuery,
    LogQuery,
    UnreadableQuery,
    is_in_journal,
    journal_arguments,
    parse_query,
)

ALWAYS = ["--utc", "--no-pager", "--output=short-precise"]


def test_a_path_without_a_query_is_none() -> None:
    assert parse_query([]) is None
    assert parse_query([("other", "x"), ("tailLines", "")]) is None


def test_services_with_all_options_are_arguments_of_journalctl() -> None:
    query = parse_query(
        [
            ("query", "kubelet"),
            ("query", "crio@1.service"),
            ("sinceTime", "2026-01-02T03:04:05.5+01:00"),
            ("untilTime", "2026-01-02T03:04:05Z"),
            ("tailLines", "7"),
            ("boot", "-1"),
            ("pattern", "--help me"),
        ]
    )
    assert query is not None
    assert journal_arguments(query) == [
        *ALWAYS,
        "--since=@1767319445.500000",
        "--until=@1767323045.000000",
        "--pager-end",
        "--lines=7",
        "--unit=kubelet",
        "--unit=crio@1.service",
        "--grep=--help me",
        "--boot=-1",
    ]


def test_a_slash_makes_it_a_file() -> None:
    assert parse_query([("query", "/audit/audit.log")]) == LogQuery(file="/audit/audit.log")
    assert parse_query([("query", "audit\\audit.log")]) == LogQuery(file="audit/audit.log")


@pytest.mark.parametrize(
    ("pairs", "reported"),
    [
        ([("query", " ")], "query: cannot be empty"),
        ([("query", "")], "query: cannot be empty"),
        ([("query", "a"), ("tailLines", "x")], "tailLines: is not a number"),
        ([("query", "a"), ("boot", "0x1")], "boot: is not a number"),
        ([("query", "a"), ("sinceTime", "yesterday")], "sinceTime: is not a time"),
        ([("query", "a"), ("untilTime", "2026-01-02 03:04:05")], "untilTime: is not a time"),
        ([("query", "a"), ("untilTime", "2026-13-02T03:04:05Z")], "untilTime: is not a time"),
    ],
)
def test_what_has_not_its_form_is_unreadable(pairs: list[tuple[str, str]], reported: str) -> None:
    with pytest.raises(UnreadableQuery, match=reported):
        parse_query(pairs)


@pytest.mark.parametrize(
    ("pairs", "reported"),
    [
        ([("query", "a"), ("query", "/b")], "a file and a service"),
        ([("query", "/a"), ("query", "/b")], "more than one file"),
        ([("query", "/a"), ("tailLines", "1")], "a file takes no options"),
        ([("tailLines", "1")], "query: is required with the options"),
        ([("query", str(one)) for one in range(5)], "more than 4 services"),
        ([("query", "a;b")], "not the name of a service"),
        ([("query", "a b")], "not the name of a service"),
        ([("query", "x" * 257)], "not the name of a service"),
        (
            [("query", "a"), ("sinceTime", "2026-01-02T03:04:05Z"), ("untilTime", "2026-01-01T00:00:00Z")],
            "must be after",
        ),
        ([("query", "a"), ("boot", "1")], "boot: must be less than 1"),
        ([("query", "a"), ("tailLines", "100001")], "tailLines: is not 0 to 100000"),
        ([("query", "a"), ("tailLines", "-1")], "tailLines: is not 0 to 100000"),
        ([("query", "a"), ("pattern", "a\0b")], "pattern: is not text"),
    ],
)
def test_what_cannot_be_meant_is_refused(pairs: list[tuple[str, str]], reported: str) -> None:
    with pytest.raises(ImpossibleQuery, match=reported):
        parse_query(pairs)


def test_a_service_is_known_by_its_unit() -> None:
    units = ["ssh.service", "user@0.service", "dev-sda.device"]
    assert [is_in_journal(one, units) for one in ("ssh", "ssh.service", "sh", "dev-sda.device")] == [
        True,
        True,
        False,
        True,
    ]
