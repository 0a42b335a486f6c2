"""jsonpath, Go templates and custom columns print what kubectl prints; `get` sorts and selects by fields.

kubectl_templates.json has what kubectl 1.32 printed for its object; null: kubectl refused the template. Made with
``kubectl annotate --local -f POD.json x- -o jsonpath=EXPRESSION`` and ``-o go-template=TEMPLATE``. Left out: templates
whose output depends on the order of Go's maps.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeletx.api import InvalidConfig
from kubeletx.cli.output.go_template import GoTemplate
from kubeletx.cli.output.jsonpath import JsonPath
from kubeletx.kube.types.core import ObjectMeta, ObjectReference
from kubeletx.kube.types.event import Event
from tests.unit.cli.commands.objects import Run
from tests.unit.cli.commands.test_get import pod

KUBECTL = json.loads(Path(__file__).with_name("kubectl_templates.json").read_text())
T0 = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(("template", "printed"), KUBECTL["jsonpath"])
def test_a_jsonpath_prints_what_kubectl_prints(template: str, printed: str | None) -> None:
    check(JsonPath, template, printed)


@pytest.mark.parametrize(("template", "printed"), KUBECTL["go-template"])
def test_a_go_template_prints_what_kubectl_prints(template: str, printed: str | None) -> None:
    check(GoTemplate, template, printed)


def check(kind: type[JsonPath] | type[GoTemplate], template: str, printed: str | None) -> None:
    if printed is None:
        with pytest.raises(InvalidConfig):
            kind(template).print(KUBECTL["object"])
    else:
        assert kind(template).print(KUBECTL["object"]) == printed


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{define `x`}}{{end}}", "function 'define' is not supported"),
        ("{{html .x}}", "function 'html' is not supported; supported are and, eq"),
        ('{{printf "%U" 1}}', "printf does not support %U"),
        ('{{printf "%s-%d" "a"}}', "printf of %s-%d, a: %d has no argument"),
        ('{{index .x "a"}}', "index of <nil>, a: 'NoneType' object is not subscriptable"),
    ],
)
def test_what_a_go_template_cannot_do_here_is_refused_by_name(template: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(words)):
        GoTemplate(template).print({})


@pytest.fixture
def pods(agent: Any) -> Any:
    for number, name in enumerate(("web", "db-10", "db-9")):
        made = pod(name)
        created = msgspec.structs.replace(made.metadata, creation_timestamp=T0 - timedelta(minutes=number))
        spec = msgspec.structs.replace(made.spec, node_name=("node-1", "10Gi", "200Mi")[number])
        agent.backend.put(msgspec.structs.replace(made, metadata=created, spec=spec))
    status = msgspec.structs.replace(pod().status, phase="Pending")
    agent.backend.put(pod("new", "kube-system", status=status))
    return agent


@pytest.mark.parametrize(
    ("output", "printed"),
    [
        ("jsonpath={.items[*].metadata.name}", "db-10 db-9 web"),
        ("go-template={{range .items}}{{.metadata.name}} {{end}}", "db-10 db-9 web "),
        ("go-template={{len .items}}", "3"),
        (
            "custom-columns=NAME:.metadata.name,L:metadata.labels,C:{.spec.containers[*].image},N:.spec.none",
            "NAME    L                C         N\n"
            "db-10   map[app:db-10]   busybox   <none>\n"
            "db-9    map[app:db-9]    busybox   <none>\n"
            "web     map[app:web]     busybox   <none>\n",
        ),
    ],
)
def test_get_prints_lists_with_templates(pods: Any, kubeletx: Run, output: str, printed: str) -> None:
    result = kubeletx("get", "pods", "-o", output)
    assert (result.exit_code, result.stdout) == (0, printed)


def test_a_single_object_is_not_in_a_list_and_columns_may_have_no_headings(pods: Any, kubeletx: Run) -> None:
    assert kubeletx("get", "pod", "web", "-o=jsonpath={.metadata.name}").stdout == "web"
    result = kubeletx("get", "pod/web", "-ocustom-columns=N:.metadata.name", "--no-headers")
    assert result.stdout == "web\n"
    assert kubeletx("get", "runtimes", "-o", "jsonpath={.items}").stdout == "[]"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("-o", "jsonpath"), "-o jsonpath needs a text, such as jsonpath='{.metadata.name}'"),
        (("-o", "jsonpath={.a"), "'{.a': an expression is not closed; close it with }"),
        (("-o", "custom-columns=A"), "'A' is not HEADER:PATH"),
        (("-o", "jsonpaht={}"), "is not one of 'wide', 'json', 'yaml', 'name'"),
        (("--sort-by=.spec.nope",), "no object has the field '.spec.nope'"),
        (("--field-selector=status.nope=1",), "pods have no field 'status.nope'; write FIELD=VALUE"),
        (("--field-selector=x y",), "'x y' is not understood"),
    ],
)
def test_what_is_wrong_is_named(pods: Any, kubeletx: Run, args: tuple[str, ...], words: str) -> None:
    result = kubeletx("get", "pods", *args)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (".metadata.name", ["db-10", "db-9", "web"]),
        ("{.metadata.creationTimestamp}", ["db-9", "db-10", "web"]),
        ("spec.nodeName", ["db-9", "db-10", "web"]),  # 200Mi < 10Gi < node-1
    ],
)
def test_get_sorts_by_a_field_as_kubectl(pods: Any, kubeletx: Run, path: str, names: list[str]) -> None:
    found = kubeletx("get", "pods", f"--sort-by={path}", "-o=jsonpath={.items[*].metadata.name}")
    assert found.stdout.split() == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=web", ["web"]),
        ("metadata.namespace!=default", ["new"]),
        ("status.phase==Running,spec.nodeName!=node-1", ["db-10", "db-9"]),
        ("status.phase=Pending", ["new"]),
        ("spec.restartPolicy=Never", []),
    ],
)
def test_fields_select_pods(pods: Any, kubeletx: Run, selector: str, names: list[str]) -> None:
    found = kubeletx("get", "pods", "-A", f"--field-selector={selector}", "-o", "name")
    assert found.stdout.split() == [f"pod/{name}" for name in names]


def test_fields_select_events(agent: Any, kubeletx: Run) -> None:
    for number, (kind, name) in enumerate((("Pod", "web"), ("Pod", "db"), ("Node", "web"))):
        agent.backend.record(
            Event(
                metadata=ObjectMeta(name=f"e{number}", namespace="default"),
                involved_object=ObjectReference(kind=kind, name=name, api_version="v1"),
                type="Warning",
                reason="Failed",
            )
        )
    selector = "involvedObject.kind=Pod,involvedObject.name!=db,type=Warning,reason=Failed"
    assert kubeletx("get", "events", f"--field-selector={selector}", "-oname").stdout == "event/e0\n"
    assert (
        len(kubeletx("get", "ev", "--field-selector=involvedObject.apiVersion=v1", "-oname").stdout.split())
        == 3
    )
