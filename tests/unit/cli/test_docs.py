"""The pages for operators name only commands, flags, fields and exit codes that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from kubeletx.agent.config.load import load_config
from kubeletx.agent.config.tree import BY_KEY
from kubeletx.cli.main import cli
from kubeletx.cli.options.exit_codes import ExitCode
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.manifests.load import load_pods
from kubeletx.kube.manifests.static_refs import refused_references
from kubeletx.kube.validation import validate_pod
from script.walks.quickstart import read_steps

DOCS = Path(__file__).parents[3] / "docs"
PAGES = (
    DOCS / "quickstart.md",
    DOCS / "run.md",
    DOCS / "when-it-fails.md",
    *sorted((DOCS / "coming-from").glob("*.md")),
)
GUIDE = "\n".join(page.read_text() for page in PAGES)


def test_every_command_of_the_guide_exists() -> None:
    context = click.Context(cli)
    said = re.findall(r"`kubeletx ([^`]*)`", GUIDE) + re.findall(
        r"^ *[#$] kubeletx (.*)$", GUIDE, re.MULTILINE
    )
    for line in (re.sub(r"^(?:--\S+ [A-Z]+ )+", "", text) for text in said):
        words = re.findall(r"[a-z][a-z-]*", f" {line}".partition(" -")[0])
        command: click.Command | None = cli
        while words and isinstance(command, click.Group):
            command = command.get_command(context, words.pop(0))
        assert command is not None, line


def flags_of(command: click.Command) -> Iterator[str]:
    """The names of all flags of a command and of the commands below it."""
    context = click.Context(command)
    for param in command.get_params(context):
        yield from (name.removeprefix("--") for name in (*param.opts, *param.secondary_opts))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from flags_of(inner)


def test_every_flag_of_the_guide_exists() -> None:
    others = r"`(?:kubectl|py-spy|curl|podman|k3s|virsh|apt) [^`]*`|(?m:^# (?!kubeletx).*$)"
    ours = re.sub(others, "", GUIDE)
    assert set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", ours)) <= set(flags_of(cli))


def test_every_field_of_the_guide_exists() -> None:
    for key in re.findall(r"`(kubeletx\.(?!io|db|sock)[A-Za-z.]+)`", GUIDE):
        assert key.removesuffix(".KIND") in BY_KEY


def test_the_sample_configuration_is_valid(tmp_path: Path) -> None:
    (text,) = [
        block
        for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
        if "KubeletConfiguration" in block
    ]
    file = tmp_path / "config.yaml"
    file.write_text(text)
    config = load_config(config_file=file)
    assert len(config.runtimes.endpoints) == 2
    assert not config.unused


def test_the_sample_drop_in_is_valid() -> None:
    from kubeletx.runtimes.endpoints.drop_ins import DropIn

    (text,) = [
        block for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL) if "workloadType" in block
    ]
    assert DropIn.__struct_fields__
    assert set(yaml.safe_load(text)) <= set(DropIn.__struct_encode_fields__)


@pytest.mark.parametrize("code", [int(code) for code in re.findall(r"[Ee]xit code (\d+)", GUIDE)])
def test_every_exit_code_of_the_guide_exists(code: int) -> None:
    assert code in list(ExitCode)


def test_the_manifests_of_the_quickstart_are_valid_and_its_commands_use_them() -> None:
    steps = read_steps()
    assert list(steps) == list(range(1, 11))
    manifests = {name: text for step in steps.values() for name, text in step.files.items()}
    assert set(manifests) == {"web.yaml", "first.yaml"}
    assert "image: /var/lib/libvirt/images/" in manifests["first.yaml"], (
        "no other directory is allowed by default"
    )
    for name, text in manifests.items():
        (pod,) = map(set_defaults, load_pods(text.encode(), name))
        assert (validate_pod(pod, name), refused_references(pod, name)) == ((), ())
        assert f"kubeletx apply -f {name}" in "\n".join(
            line for step in steps.values() for line in step.commands
        )
