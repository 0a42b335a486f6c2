"""The pages for plugin authors: their code is the examples', runs, and says what the contract says."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType

import pluggy
import pytest

from kubeletx import api
from kubeletx.agent.config.load import load_config
from kubeletx.agent.config.tree import AgentConfig
from kubeletx.api import (
    CAPABILITIES,
    FEATURES,
    Host,
    InvalidConfig,
    PluginHost,
    Runtime,
    Traits,
    VolumeDriver,
    VolumeHost,
    base,
    following,
    hookspecs,
    pulls,
    specfiles,
    subprocesses,
)
from kubeletx.api.errors import TABLE
from kubeletx.api.host import HostServices
from kubeletx.kube.manifests.load import load_pods
from kubeletx.plugins import volume_drivers
from kubeletx.plugins.loading import LOAD_SECONDS
from kubeletx.runtimes.endpoints.kinds import KindTable
from kubeletx.runtimes.handles.limits import Limits
from kubeletx.testing import contract
from tests.unit.docs.pages import DOCS, ROOT, first_words, named_blocks, section, words

OF_THE_SUITES = {"pytestmark", "time_factor", "calls", "maker", "runtime", "pod", "records", "volumes"}
"""Names that authors do not override, and the attribute that every suite has."""

TUTORIAL = (DOCS / "plugin-authors.md").read_text()
PAGES = {path.stem: path.read_text() for path in sorted((DOCS / "plugins").glob("*.md"))}
RUNTIMES, REFERENCE = PAGES["runtimes"], PAGES["reference"]
PAGE = "\n".join((TUTORIAL, *PAGES.values()))
EXAMPLE = ROOT / "examples" / "plugins" / "local-process"
PACKAGE = "src/kubeletx_local_process"
BLOCKS = named_blocks(PAGE)


@pytest.mark.parametrize(
    "name", ["pyproject.toml", f"{PACKAGE}/__init__.py", f"{PACKAGE}/plugin.py", f"{PACKAGE}/runtime.py"]
)
def test_the_page_s_code_is_the_example_s(name: str) -> None:
    assert "\n".join(BLOCKS[name]).split() == (EXAMPLE / name).read_text().split()


def test_the_page_s_test_is_a_part_of_the_example_s() -> None:
    (text,) = BLOCKS["tests/test_contract.py"]
    assert text.partition("\nclass ")[2] in (EXAMPLE / "tests" / "test_contract.py").read_text()


OTHERS = sorted(name for name in BLOCKS if (ROOT / "examples" / "plugins" / name).is_file())


@pytest.mark.parametrize("name", OTHERS)
def test_the_page_s_code_of_the_other_hooks_is_the_examples(name: str) -> None:
    file = lines(ROOT / "examples" / "plugins" / name)
    page = [line for block in BLOCKS[name] for line in block.split("\n") if line.strip()]
    assert page == (file[: len(page)] if name.startswith("tests/") or "/tests/" in name else file)


def test_every_hook_beside_runtimes_is_in_the_table() -> None:
    hooks = {name for name in vars(hookspecs) if name.startswith("kubeletx_register_")}
    reported = first_words(section(REFERENCE, "Hooks beside runtimes"))
    assert sorted(reported) == sorted(hooks - {"kubeletx_register_runtimes"})


def test_every_member_of_the_plugin_host_is_in_the_table() -> None:
    members = [name for name in {**vars(HostServices), **vars(PluginHost)} if not name.startswith("_")]
    assert sorted(first_words(section(REFERENCE, "Plugin host"))) == sorted(members)


def test_every_python_block_has_a_name_and_so_a_test() -> None:
    files = sum(len(BLOCKS[name]) for name in BLOCKS if name.endswith(".py"))
    assert PAGE.count("```python") == files + len(BLOCKS["settings"]) + len(BLOCKS["changed-copy"])


def test_a_changed_copy_of_a_spec_leaves_the_spec_as_it_is() -> None:
    page = load("page_copy", BLOCKS["changed-copy"][0])
    assert (page.spec.detail.working_dir, page.elsewhere.detail.working_dir) == ("", "/tmp")
    assert page.elsewhere.detail.command == page.spec.detail.command == ("pwd",)


def test_its_hook_registers_the_kind() -> None:
    kinds = registered(
        load(
            "page_plugin", BLOCKS[f"{PACKAGE}/plugin.py"][0].replace("from .", "from kubeletx_local_process.")
        )
    )
    assert kinds.resolve(name="local", workload_type="container", url="process:///").name == "process"


def test_the_settings_of_the_page_are_checked_by_the_host(tmp_path: Path) -> None:
    kinds = registered(load("page_settings", BLOCKS["settings"][0]))
    file = tmp_path / "config.yaml"
    file.write_text(BLOCKS["settings.yaml"][0])
    sections = load_config(config_file=file).runtimes.plugins
    assert kinds.decode_settings(sections)["process"].stop_signal == "SIGINT"
    with pytest.raises(InvalidConfig, match="unknown field 'stop'"):
        kinds.decode_settings({"process": {"stop": "SIGINT"}})


def test_the_sample_pod_is_valid_and_nothing_that_the_plugin_refuses() -> None:
    from kubeletx_local_process.runtime import ProcessRuntime

    from kubeletx.runtimes.binding.features import missing

    (pod,) = load_pods(BLOCKS["pods/ticker.yaml"][0].encode(), "page")
    assert missing(pod, ProcessRuntime.declared) == ()


def test_every_command_and_flag_exists() -> None:
    import click

    from kubeletx.agent.config.tree import BY_FLAG
    from kubeletx.cli.commands import COMMANDS
    from kubeletx.cli.main import cli

    (text,) = BLOCKS["commands"]
    context = click.Context(cli)
    for line in text.splitlines():
        flags = [word.removeprefix("--") for word in line.split() if word.startswith("--")]
        assert set(flags) <= {*BY_FLAG, "root-dir"}, line
        for word in line.split():
            if word in COMMANDS:
                assert cli.get_command(context, word) is not None


def test_the_tables_name_the_whole_contract() -> None:
    methods = [
        name for name, _ in inspect.getmembers(Runtime, inspect.isfunction) if not name.startswith("_")
    ]
    assert sorted(first_words(section(RUNTIMES, "The contract in short"))) == sorted(methods)
    assert first_words(section(RUNTIMES, "Capabilities")) == [one.__name__ for one in CAPABILITIES]
    assert first_words(section(RUNTIMES, "Traits")) == list(Traits.__struct_fields__)
    members = [name for name in {**vars(HostServices), **vars(Host)} if not name.startswith("_")]
    assert sorted(first_words(section(RUNTIMES, "Host"))) == sorted(members)
    assert sorted(first_words(section(REFERENCE, "Errors"))) == sorted(cls.__name__ for cls in TABLE)


def test_the_deadlines_are_those_of_the_code() -> None:
    limits, plugins = Limits(), AgentConfig().plugins
    stated = {
        name: float(seconds)
        for names, seconds in re.findall(
            r"^\| (.+?) \| (\d+) s", section(REFERENCE, "Deadlines"), re.MULTILINE
        )
        for name in names.replace("`", "").split(", ")
    }
    request = limits.request_seconds
    changing = ("create_unit", "start_unit", "remove_unit", "stop_sandbox", "remove_sandbox", "stop_unit")
    assert stated == {
        **dict.fromkeys(("open", "close"), limits.open_seconds),
        **dict.fromkeys(("version", "health"), limits.probe_seconds),
        "create_sandbox": 2 * request,
        **dict.fromkeys(changing, request),
        "lists and statuses": limits.query_seconds,
        "import and hooks": LOAD_SECONDS,
        "health check of the node": plugins.health_check_seconds,
        "admission check": plugins.admission_check_seconds,
        "first complete set of a pod source": plugins.pod_source_sync_seconds,
        "panel": plugins.panel_seconds,
        "volume driver": plugins.volume_seconds,
    }


def test_the_section_on_volume_drivers_has_the_whole_protocol_with_its_deadlines() -> None:
    text, configured = (
        section(PAGES["volume-drivers"], "Volume drivers"),
        AgentConfig().plugins.volume_seconds,
    )
    methods = [name for name in vars(VolumeDriver) if not name.startswith("_")]
    members = [name for name in vars(VolumeHost) if not name.startswith("_")]
    assert first_words(text) == [*methods, *members]
    stated = {
        name: float(seconds)
        for name, seconds in re.findall(r"^\| `(\w+)` .* (\d+) s \|$", text, re.MULTILINE)
    }
    assert stated == {
        "open": volume_drivers.SECONDS["open"],
        "close": volume_drivers.SECONDS["close"],
        "stats": volume_drivers.SECONDS["stats"],
        **dict.fromkeys(("prepare", "release", "expand"), configured),
    }


def test_every_feature_is_named() -> None:
    text = section(RUNTIMES, "Features").partition(":")[2]
    assert sorted(words(text)) == sorted(FEATURES)


def test_the_helpers_are_all_named() -> None:
    modules = {module.__name__ for module in (base, specfiles, following, pulls, subprocesses)}
    offered = [name for name in api.__all__ if getattr(getattr(api, name), "__module__", None) in modules]
    assert sorted(first_words(section(RUNTIMES, "Helpers"))) == sorted([*offered, "every_feature_but"])


def test_the_example_has_as_many_lines_as_the_page_says() -> None:
    said = re.search(r"`runtime.py` has (\d+) lines of code, not counting", TUTORIAL)
    assert said is not None
    assert int(said[1]) == code_lines((EXAMPLE / PACKAGE / "runtime.py").read_text()) <= 150


def code_lines(text: str) -> int:
    """Lines that hold code: no blank ones, comments or docstrings."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    texts = [node for node in nodes if isinstance(node.value, ast.Constant)]
    prose = {n for node in texts for n in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    code = [line for n, line in enumerate(text.splitlines(), 1) if n not in prose]
    return sum(1 for line in code if line.strip() and not line.lstrip().startswith("#"))


def lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.strip()]


def load(name: str, text: str) -> ModuleType:
    module = ModuleType(name)
    exec(compile(text, f"docs/plugin-authors.md ({name})", "exec"), module.__dict__)
    return module


def registered(plugin: ModuleType) -> KindTable:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(plugin)
    kinds = KindTable()
    manager.hook.kubeletx_register_runtimes(register=kinds.registrar("page"))
    return kinds


def test_the_table_of_the_suites_names_every_fixture_and_attribute() -> None:
    table = section(REFERENCE, "Fixtures and attributes of the suites")
    shown: dict[str, set[str]] = {}
    for suite, names in re.findall(r"^\| (?:`(\w+)`)? ?\| (.*?) \|", table, re.MULTILINE):
        shown.setdefault(suite or list(shown)[-1], set()).update(re.findall(r"`(\w+)`", names))
    assert shown == {
        name: {
            key
            for key in dir(getattr(contract, name))
            if not key.startswith(("_", "test_", "new_")) and key not in OF_THE_SUITES
        }
        for name in contract.__all__
        if name != "ContractBase"
    }
