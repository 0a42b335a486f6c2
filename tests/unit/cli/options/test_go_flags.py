"""Options in the forms that users of kubectl and crictl type."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.cli.commands import COMMANDS
from kubeletx.cli.main import cli
from kubeletx.cli.options.go_flags import boolean, command, spell_out, spellings_of


@command()
@click.argument("words", nargs=-1)
@boolean("-i", "--stdin", help="i")
@boolean("-t", "--tty", help="t")
@boolean("--wait/--no-wait", default=True, help="wait")
@click.option("-o", "--output", default="")
@click.option("--tail", type=int, default=0)
def sample(words: tuple[str, ...], stdin: bool, tty: bool, wait: bool, output: str, tail: int) -> None:
    """Print what was understood."""
    click.echo(f"{stdin:d}{tty:d}{wait:d} {output} {tail} {' '.join(words)}".rstrip())


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], "001  0"),
        (["-it", "web"], "111  0 web"),
        (["-i=true", "-t=false", "web"], "101  0 web"),
        (["--stdin", "web"], "101  0 web"),
        (["--stdin=false", "web"], "001  0 web"),
        (["--stdin=T", "--tty=0"], "101  0"),
        (["--stdin", "--stdin=false"], "001  0"),
        (["--wait=false"], "000  0"),
        (["--no-wait"], "000  0"),
        (["--no-wait=false"], "001  0"),
        (["-oyaml"], "001 yaml 0"),
        (["-o=json"], "001 json 0"),
        (["-o", "json", "web"], "001 json 0 web"),
        (["-itoyaml"], "111 yaml 0"),
        (["-ito", "wide", "web"], "111 wide 0 web"),
        (["--tail=-1"], "001  -1"),
        (["--tail", "-1"], "001  -1"),
        (["--output", "-x"], "001 -x 0"),
        (["-o=a=b"], "001 a=b 0"),
        (["-i", "--", "-t", "--tail=3"], "101  0 -t --tail=3"),
        (["web", "-i", "-"], "101  0 web -"),
    ],
)
def test_forms_of_options(args: list[str], expected: str) -> None:
    result = CliRunner().invoke(sample, args)
    assert (result.exit_code, result.stdout.strip("\n")) == (0, expected)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--stdin=maybe"], "'--stdin': 'maybe' is neither true nor false"),
        (["-x"], "No such option '-x'"),
        (["-ix"], "No such option '-x'"),
        (["--stdinn"], "No such option '--stdinn'"),
        (["--tail"], "requires an argument"),
        (["-o"], "requires an argument"),
        (["--help=maybe"], "does not take a value"),
    ],
)
def test_what_is_not_understood_is_reported(args: list[str], said: str) -> None:
    result = CliRunner().invoke(sample, args)
    assert result.exit_code == 2
    assert said in result.stderr


@given(st.lists(st.text("-=iot:a", max_size=6), max_size=6))
def test_what_is_spelled_out_is_not_changed_by_a_second_time(args: list[str]) -> None:
    spellings = spellings_of(sample.params)
    once = spell_out(args, spellings)
    assert spell_out(once, spellings) == once


def commands(group: click.Group, context: click.Context) -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    for name in group.list_commands(context):
        inner = group.get_command(context, name)
        assert inner is not None
        if isinstance(inner, click.Group):
            found += [(f"{name} {path}", one) for path, one in commands(inner, context)]
        else:
            found.append((name, inner))
    return found


@pytest.mark.parametrize(("path", "made"), commands(cli, click.Context(cli)))
def test_every_boolean_of_every_command_takes_true_and_false(path: str, made: click.Command) -> None:
    assert path.split(maxsplit=1)[0] in COMMANDS
    spellings = spellings_of(made.params)
    for option in made.params:
        if isinstance(option, click.Option) and option.is_flag:
            for name in option.opts:
                for form, value in ((name, "true"), (f"{name}=true", "true"), (f"{name}=false", "false")):
                    assert spell_out([form, "web"], spellings) == [f"{option.opts[-1]}={value}", "web"]
