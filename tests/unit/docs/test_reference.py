"""docs/reference.md names exactly what the code has."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kubeletx.agent.backend.present import PROBLEM
from kubeletx.api import names
from kubeletx.api.errors import TABLE, FieldError
from kubeletx.cli.options.group import show
from kubeletx.pods.status.conditions import OURS
from kubeletx.runtimes.registry import RuntimeRegistry
from tests.unit.docs.pages import DOCS, ROOT, first_words, rows, section, words

PAGE = (DOCS / "reference.md").read_text()
PUBLIC_ROOMS = ("api", "cri", "kube", "streaming", "testing", "testing.contract")
PUBLIC_MODULES = sorted(path.stem for path in (ROOT / "kubeletx" / "linux").glob("[!_]*.py"))
CONSTANTS = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
EVENTS = {value for name, value in vars(names.Event).items() if name.isupper()}


def part(title: str, last: str) -> str:
    """The text from one heading to another, with the sections between."""
    return PAGE.partition(f"\n## {title}\n")[2].partition(f"\n## {last}\n")[0]


def test_every_pod_condition_is_there() -> None:
    assert set(first_words(section(PAGE, "Pod conditions"))) == OURS | {names.DISRUPTION_TARGET}


def test_every_node_condition_is_there() -> None:
    from datetime import UTC, datetime

    from kubeletx.agent.edge.conditions import edge_conditions
    from kubeletx.node.readiness import CheckFacts, NodeFacts, RuntimeFacts, node_conditions
    from kubeletx.runtimes.handles.health import RuntimeState

    now = datetime(2026, 1, 1, tzinfo=UTC)
    state = RuntimeState(since=now)
    facts = NodeFacts(
        runtimes=(RuntimeFacts(name="NAME", workload_type="container", state=state),),
        checks=(CheckFacts(name="NAME", status="True", reason="CheckPassed"),),
        others=edge_conditions(None),
    )
    types = [condition.type for condition in node_conditions(facts, now=now)]
    assert first_words(section(PAGE, "Node conditions")) == types
    assert f"{names.RUNTIME_CONDITION_PREFIX}NAME" in types


def test_every_event_is_there_and_used() -> None:
    assert sorted(first_words(section(PAGE, "Events"))) == sorted(EVENTS)
    source = "\n".join(path.read_text() for path in (ROOT / "kubeletx").rglob("*.py"))
    used = set(re.findall(r"\b(?:Event|Reason)\.([A-Z0-9_]+)\b", source))
    assert {name for name in vars(names.Event) if name.isupper()} - used == set()


def test_every_label_and_annotation_is_there() -> None:
    text = section(PAGE, "Annotations and labels")
    conditions = {
        names.RUNTIME_REACHABLE,
        names.UNITS_RUNNING,
        names.STANDBY_CONDITION,
        names.RUNTIME_CONDITION_PREFIX,
        names.MANIFEST_VALID,
    }
    ours = {value for value in CONSTANTS.values() if "/" in value or value.startswith("io.")} - conditions
    reported = {word for word in words(text) if "/" in word or word.startswith("io.")}
    assert reported == ours | {PROBLEM}


REASON = re.compile(r"[A-Z][a-z]+(?:[A-Z][A-Za-z]*)+|OOMKilled")
NO_REASONS = {
    "AdmissionNode",
    "AlwaysVerify",
    "AnonPages",
    "BlockDevice",
    "CharDevice",
    "ClusterFirst",
    "ConfigMap",
    "ContainerConfigError",
    "CredentialProviderConfig",
    "CredentialProviderRequest",
    "CredentialProviderResponse",
    "DirectoryOrCreate",
    "DiskPressure",
    "DoesNotExist",
    "FallbackToLogsOnError",
    "FieldPath",
    "FileOrCreate",
    "FreeDiskSpaceFailed",
    "HostToContainer",
    "HugePages",
    "IfNotPresent",
    "IfPossible",
    "InhibitDelayMaxUSec",
    "InternalIP",
    "IsolatedRuntime",
    "KillUnit",
    "KubeletHas",
    "LimitedSwap",
    "MemAvailable",
    "MemFree",
    "MemTotal",
    "MemoryLimit",
    "MemoryMax",
    "MemoryPressure",
    "NeverVerify",
    "NeverVerifyAllowlistedImages",
    "NeverVerifyPreloadedImages",
    "NoExecute",
    "NoSchedule",
    "NoSwap",
    "NodeAdmission",
    "NodeContext",
    "NotIn",
    "NotReady",
    "OnFailure",
    "OrCreate",
    "OutOf",
    "PodWarning",
    "PreferNoSchedule",
    "PrepareForShutdown",
    "PreparingForShutdown",
    "ProbeKind",
    "ProbeSet",
    "ProbeTarget",
    "RestartAllContainers",
    "RestartContainer",
    "RestartRequested",
    "RuntimeDefault",
    "SandboxConfigError",
    "ServiceAccount",
    "SetUp",
    "SpecChanged",
    "SwapFree",
    "SwapTotal",
}


def reasons_in_code() -> Iterator[tuple[str, Path]]:
    """Words in CamelCase that may reach users as a reason."""
    for room in ("pods", "node", "runtimes"):
        for path in sorted((ROOT / "kubeletx" / room).rglob("*.py")):
            if path.name != "__init__.py":
                for node in ast.walk(ast.parse(path.read_text())):
                    if (
                        isinstance(node, ast.Constant)
                        and isinstance(node.value, str)
                        and REASON.fullmatch(node.value)
                    ):
                        yield node.value, path


def test_every_reason_of_the_code_is_there() -> None:
    reported = {word.removeprefix("KubeletHas") for word in words(part("Reasons", "Annotations and labels"))}
    missing = {
        f"{word} ({path.name})" for word, path in reasons_in_code() if word not in reported | NO_REASONS
    }
    assert not missing, "add them to docs/reference.md, or to NO_REASONS if users never see them"


def test_every_reason_of_the_page_is_in_the_code() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "kubeletx").rglob("*.py"))
    for word in first_words(part("Reasons", "Events")):
        known = word.removeprefix("OutOf").removeprefix("KubeletHas")
        assert f'"{known}"' in source or known in ("...",), word


def test_the_error_table_is_the_code_s() -> None:
    table = [(words(row[0])[0], *row[1:]) for row in rows(section(PAGE, "Errors"))]
    assert table == [
        (cls.__name__, row.grpc_code, row.event_reason, "yes" if row.retry else "no")
        for cls, row in TABLE.items()
    ]


def test_exit_codes_are_as_said(capsys: pytest.CaptureFixture[str]) -> None:
    for cls in TABLE:
        error = cls(field="f", problem="p") if issubclass(cls, FieldError) else cls("text")
        assert show(error) == (2 if issubclass(cls, FieldError) else 1)


def test_the_eight_operations_exist() -> None:
    table = rows(section(PAGE, "RuntimeManager"))
    assert len(table) == 8
    for row in table:
        assert callable(getattr(RuntimeRegistry, words(row[1])[0]))


@pytest.mark.parametrize("room", PUBLIC_ROOMS)
def test_public_names_are_the_listed_ones(room: str) -> None:
    module = importlib.import_module(f"kubeletx.{room}")
    listed = [line for line in (DOCS / "public-names.txt").read_text().splitlines() if line]
    mine = [line.rpartition(".")[2] for line in listed if line.rpartition(".")[0] == f"kubeletx.{room}"]
    assert mine == sorted(module.__all__), (
        "a public name was added or removed: docs/public-names.txt and changelog/"
    )
    for name in mine:
        assert hasattr(module, name)
    assert f"kubeletx.{room}" in section(PAGE, "Public names")


@pytest.mark.parametrize(
    ("room", "stems"), [("linux", PUBLIC_MODULES), ("kube", ("masking", "start_timeline"))]
)
def test_public_names_of_modules_are_the_listed_ones(room: str, stems: Sequence[str]) -> None:
    own = [
        f"kubeletx.{room}.{stem}.{name}"
        for stem in stems
        for name, value in vars(importlib.import_module(f"kubeletx.{room}.{stem}")).items()
        if name[0] != "_" and getattr(value, "__module__", "") == f"kubeletx.{room}.{stem}"
    ]
    listed = (DOCS / "public-names.txt").read_text().split()
    assert [line for line in listed if re.match(rf"kubeletx\.{room}\.\w+\.", line)] == sorted(own)
