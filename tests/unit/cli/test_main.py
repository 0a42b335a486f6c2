"""The outer command: help, flags of the agent, the way to `run_agent`, and what must not be imported."""

from __future__ import annotations

import errno
import operator
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from kubeletx.agent.config.kinds import Boolean
from kubeletx.agent.config.kubelet_options import OPTION_BY_FIELD, OPTION_BY_FLAG
from kubeletx.agent.config.tree import BY_FLAG, BY_KEY, AgentConfig
from kubeletx.api import InvalidConfig
from kubeletx.cli.commands import COMMANDS, INSTEAD
from kubeletx.cli.main import cli
from kubeletx.cli.options.exit_codes import ExitCode
from kubeletx.cli.options.go_flags import spell_out, spellings_of
from kubeletx.cli.options.group import show
from script.cli_reference.page import page

ENDPOINT = "--container-runtime-endpoint=container:a:unix:///a"
HEAVY = ("grpc", "google.protobuf", "sqlalchemy", "aiohttp", "rich", "yaml", "cryptography", "asyncio",
         "prometheus_client", "structlog", "kubeletx.kube", "kubeletx.server")  # fmt: skip


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, list(args), prog_name="kubeletx")
    return result.exit_code, result.stdout, result.stderr


def imported_by(*args: str) -> set[str]:
    code = (
        "import sys, runpy\n"
        f"sys.argv = ['kubeletx', *{list(args)!r}]\n"
        "from kubeletx.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("args", [("--help",), (), ("--version",)])
def test_help_imports_nothing_heavy(args: tuple[str, ...]) -> None:
    assert not imported_by(*args) & set(HEAVY)


@pytest.mark.parametrize("args", [("get", "pods"), ("exec", "web", "--", "true")])
def test_quick_commands_import_little(args: tuple[str, ...], tmp_path: Path) -> None:
    found = imported_by("--root-dir", str(tmp_path), *args)
    heavy = {
        "grpc",
        "sqlalchemy",
        "aiohttp",
        "rich",
        "cryptography",
        "asyncio",
        "email",
        "http.client",
        "ssl",
        "shutil",
    }
    assert not found & {*heavy, "kubeletx.kube.types.core", "kubeletx.server.views"}


def test_without_any_argument_help_is_printed() -> None:
    code, out, _ = run()
    assert code == 0
    assert out == run("--help")[1]
    lines = out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert set(COMMANDS) <= set(re.findall(r"[\w-]+", out))
    assert "--container-runtime-endpoint" in run("agent", "--help")[1]
    assert "--container-runtime-endpoint" in run("--as-kubelet", "--help")[1]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_and_says_the_same_in_the_list(name: str) -> None:
    code, out, _ = run(name, "--help")
    assert code == 0
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    assert command.get_short_help_str(200) == COMMANDS[name].help
    assert out.lower().startswith(f"usage: kubeletx {name}")  # health: argparse


def test_typos_in_flags_and_commands_get_a_suggestion() -> None:
    assert "did you mean '--max-pods'?" in run("--max-podz", "3")[2]
    code, _, err = run("gte", "pods")
    assert code == 2
    assert "did you mean 'get'?" in err


@pytest.mark.parametrize(("word", "use"), INSTEAD.items())
def test_a_command_of_other_programs_names_the_command_to_use(word: str, use: str) -> None:
    code, _, err = run(word, "web")
    assert code == 2
    assert f"unknown command '{word}'; use '{use}'" in err
    verbs = [part for part in use.split()[1:] if part.islower() and part[0] != "-" and part != "pod"]
    assert run(*verbs, "--help")[0] == 0


@pytest.mark.parametrize("rest", [(), ("--max-pods=3",), ("get", "pods")])
def test_a_boolean_flag_with_its_value_after_a_space_names_the_right_spelling(rest: tuple[str, ...]) -> None:
    code, _, err = run("--max-pods", "3", "--cgroups-per-qos", "false", *rest)
    assert code == 2
    assert "Error: --cgroups-per-qos and its value are two arguments; write --cgroups-per-qos=false\n" in err


def test_a_word_such_as_true_that_follows_no_boolean_flag_is_an_unknown_command() -> None:
    assert "unknown command 'true'" in run("--max-pods=3", "true")[2]
    assert "unknown command 'true'" in run("true")[2]


def test_an_empty_endpoint_flag_is_refused_and_does_not_look_for_sockets() -> None:
    code, _, err = run("--container-runtime-endpoint=", "--max-pods=3")
    assert (code, err) == (
        2,
        "Error: --container-runtime-endpoint: is empty; leave the flag out, or write TYPE:NAME:URL\n",
    )


def test_flags_of_the_agent_do_not_go_with_commands() -> None:
    code, _, err = run("--max-pods", "3", "get", "pods")
    assert code == 2
    assert "--max-pods is for starting the agent" in err


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[AgentConfig]:
    """Configurations with which an agent would have been run."""
    found: list[AgentConfig] = []
    module = ModuleType("kubeletx.agent.main")

    async def run_agent(config: AgentConfig, *, on_signals: Callable[[], None]) -> int:
        found.append(config)
        return 3

    module.run_agent = run_agent  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kubeletx.agent.main", module)
    logs = ModuleType("kubeletx.agent.host.logging")
    logs.set_up_logging = lambda *_: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kubeletx.agent.host.logging", logs)
    return found


def test_flags_without_a_command_run_the_agent(started: list[AgentConfig], tmp_path: Path) -> None:
    code, _, err = run(
        "--root-dir", str(tmp_path), "--share-runtime", "--seccomp-default=false", "-v", "4",
        "--container-runtime-endpoint", "container:a:unix:///a", "--container-runtime-endpoint", "vm:b:qemu:///system",
        "--node-labels", "a=1", "--runtime-request-timeout", "30s",
    )  # fmt: skip
    assert (code, err) == (3, "")
    config = started[0]
    assert config.root_dir == tmp_path
    assert config.runtimes.share_runtime
    assert not config.pods.seccomp_default
    assert config.logs.verbosity == 4
    assert [endpoint.text for endpoint in config.runtimes.endpoints] == [
        "container:a:unix:///a",
        "vm:b:qemu:///system",
    ]
    assert config.runtimes.request_timeout_seconds == 30


def test_bad_flags_do_not_start_it_and_each_has_its_line(started: list[AgentConfig]) -> None:
    code, _, err = run("--max-pods", "many", "--node-readiness-policy", "some")
    assert code == 2
    assert not started
    assert err.splitlines() == [
        "Error: --max-pods: 'many' is not a whole number",
        "Error: --node-readiness-policy: 'some' is not known; use one of partial, all, primary",
    ]


def test_what_follows_a_command_is_not_touched() -> None:
    spellings = spellings_of(cli.params)
    args = ["--hostname-override", "get", "--share-runtime", "exec", "web", "--", "--share-runtime"]
    assert spell_out(args, spellings, only_front=True) == [
        "--hostname-override=get",
        "--share-runtime=true",
        "exec",
        "web",
        "--",
        "--share-runtime",
    ]
    assert spell_out(["--"], spellings, only_front=True) == ["--"]


@pytest.mark.parametrize(
    "flag", sorted(flag for flag, one in BY_FLAG.items() if isinstance(one.kind, Boolean))
)
def test_every_boolean_flag_takes_the_forms_of_the_kubelet(
    flag: str, started: list[AgentConfig], tmp_path: Path
) -> None:
    get = operator.attrgetter(BY_FLAG[flag].path)
    needed = {
        "authentication-token-webhook": [f"--kubeconfig={tmp_path}/kubeconfig"],
        "cgroups-per-qos": ["--enforce-node-allocatable=none"],
    }.get(flag, [])
    for form, expected in ((f"--{flag}", True), (f"--{flag}=true", True), (f"--{flag}=false", False)):
        code, _, err = run("--root-dir", str(tmp_path), ENDPOINT, *needed, form, "--max-pods", "7")
        assert (code, err) == (3, "")
        assert get(started[-1]) is expected
        assert started[-1].node.max_pods == 7


def test_values_take_the_forms_of_the_kubelet(started: list[AgentConfig], tmp_path: Path) -> None:
    code, _, err = run(
        f"--root-dir={tmp_path}", ENDPOINT, "--v=2", "--runtime-request-timeout=2m0s", "--node-labels", "a=b,c=d",
        "--node-labels=e=f", "--cluster-dns=10.0.0.10,10.0.0.11", "--eviction-hard=memory.available<5%",
        "--system-reserved", "cpu=100m,memory=1Gi", "--node-ip=::1", "--pod-max-pids=-1",
        "--container-log-max-size=5Mi", "--manifest-url-header=A:b,C:d", "--manifest-url=http://h/m", "--image-gc-high-threshold=90",
    )  # fmt: skip
    assert (code, err) == (3, "")
    config = started[0]
    assert config.logs.verbosity == 2
    assert config.runtimes.request_timeout_seconds == 120
    assert config.node.labels == {"a": "b", "c": "d", "e": "f"}
    assert config.network.cluster_dns == ("10.0.0.10", "10.0.0.11")
    assert config.pods.pids_limit == -1
    assert config.sources.manifest_url_headers == {"A": ("b",), "C": ("d",)}


def test_a_namespace_is_for_commands() -> None:
    code, _, err = run("-n", "x", ENDPOINT)
    assert code == 2
    assert "--namespace is for commands" in err


def test_the_reference_has_every_command_flag_and_field() -> None:
    text = page()
    missing = [f"kubeletx {name}" for name in COMMANDS if f"### kubeletx {name}\n" not in text]
    missing += [f"--{flag}" for flag in (*BY_FLAG, *OPTION_BY_FLAG) if f"`--{flag}`" not in text]
    missing += [field for field in (*BY_KEY, *OPTION_BY_FIELD) if f"`{field}`" not in text]
    assert missing == []


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, ExitCode.FAILED), (errno.EADDRINUSE, ExitCode.FAILED), (errno.EACCES, ExitCode.USAGE)],
)
def test_only_an_error_that_a_retry_cannot_mend_is_one_of_the_configuration(number: int, code: int) -> None:
    error = InvalidConfig(field="--root-dir", problem="cannot be used", fix="choose another")
    error.__cause__ = OSError(number, "why")
    assert show(error) is code
