"""``kubeletx setup``: writes the files that a node lacks: settings, service, pod network, completions, man pages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import click

from kubeletx.api.errors import InvalidConfig, Unsupported

from ...options.exit_codes import ExitCode
from ...options.go_flags import boolean, command

if TYPE_CHECKING:
    from ...setup.install import SetupFiles, SetupStep

_SYSTEMD_RUNS: Final = "/run/systemd/system"
_ROOT: Final = Path("/")


@command(short_help="Write the files that this node lacks, or remove them.")
@boolean("--dry-run", help="Only print what would be written or removed.")
@boolean("--remove", help="Remove the files that setup wrote and that are unchanged.")
@boolean("--start", help="Then enable and start the service.")
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    default=_ROOT,
    metavar="DIR",
    help="Root of the file system of the node, for an image.  [default: /]",
)
@click.pass_context
def setup(ctx: click.Context, dry_run: bool, remove: bool, start: bool, root: Path) -> int:
    """Write the files that this node lacks, each with its purpose: settings with the runtimes that are here, the
    service, a pod network if there is none, completions of shells, man pages.

    A file that exists is not overwritten, unless setup wrote it and it is unchanged: it is renewed, as after an
    upgrade. Settings and pod network are never renewed. The service is started, or restarted with new files, only with
    --start. --remove removes the files that setup wrote; one that was changed since then stays.
    """
    from ...setup.install import SetupFiles

    if start and remove:
        raise click.UsageError("give one of --start and --remove")
    if start:
        _check_systemd(root)
    if root == _ROOT and os.geteuid() != 0 and not dry_run:
        raise click.ClickException(
            "setup writes below /etc and /usr/local: run it as root (sudo); --dry-run shows the files"
        )
    try:
        files = SetupFiles(root)
        if remove:
            _remove(files, dry_run=dry_run)
        else:
            _write(files, cast(click.Group, ctx.find_root().command), dry_run=dry_run, start=start)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    return ExitCode.OK


def _write(files: SetupFiles, program: click.Group, *, dry_run: bool, start: bool) -> None:
    from kubeletx.plugins.installed import installed_plugins

    from ...setup.files import UNIT, program_path, wanted_files
    from ...setup.found import find_runtimes, free_subnet

    plugins = {plugin.name for plugin in installed_plugins() if not plugin.reason}
    runtimes, missing = find_runtimes(files.root, plugins)
    subnet = free_subnet(Path("/proc/net/route").read_text())
    wanted = wanted_files(program, executable=program_path(files.root), runtimes=runtimes, subnet=subnet)
    steps = files.plan(wanted)
    click.echo(f"Runtimes found: {', '.join(runtime.name for runtime in runtimes) or 'none'}.")
    _show(steps)
    for plugin in missing:
        click.echo(f"No plugin for {plugin}, which is here: pip install 'kubeletx[{plugin}]'")
    if not runtimes:
        click.echo("Install containerd, or name a runtime in the settings.")
    if subnet is None:
        click.echo("No pod network is written: no subnet is free. See 'The pod network' in docs/install.md.")
    if dry_run:
        return
    files.write(steps)
    if start:
        _systemctl("daemon-reload")
        files.record.started = True
        files.save()
        _systemctl("enable", UNIT)
        _systemctl("restart" if any(step.file for step in steps) else "start", UNIT)
        click.echo(f"{UNIT} is enabled and started. Next: kubeletx doctor")
    elif any(step.file for step in steps):
        click.echo("Next: kubeletx doctor; then kubeletx setup --start")


def _remove(files: SetupFiles, *, dry_run: bool) -> None:
    from ...setup.files import UNIT

    steps = files.removal()
    if not steps:
        click.echo(f"Setup wrote no files below {files.root}.")
    is_enabled = files.at(f"/etc/systemd/system/multi-user.target.wants/{UNIT}").is_symlink()
    is_removed = any(step.verb == "remove" and step.path.endswith(f"/{UNIT}") for step in steps)
    if is_enabled and is_removed and not files.record.started:
        raise InvalidConfig(
            field=UNIT,
            problem="is enabled",
            fix=f"run 'systemctl disable --now {UNIT}' first; pods keep running",
        )
    _show(steps)
    if dry_run:
        return
    if is_enabled and is_removed:
        click.echo(f"Stopping and disabling {UNIT}; pods keep running.")
        _systemctl("disable", "--now", UNIT)
    files.remove(steps)


def _show(steps: list[SetupStep]) -> None:
    width = max((len(step.path) for step in steps), default=0)
    for step in steps:
        click.echo(f"{step.verb:<7}{step.path:<{width}}  {step.reason}")


def _check_systemd(root: Path) -> None:
    if root != _ROOT:
        raise click.UsageError("--start is for this machine, not for another --root")
    if not Path(_SYSTEMD_RUNS).is_dir():
        raise Unsupported(
            "systemd does not run on this machine; leave out --start, and run 'kubeletx --config /etc/kubeletx/config.yaml' "
            "by another service manager"
        )


def _systemctl(*arguments: str) -> None:
    from kubeletx.linux.programs import run_blocking

    result = run_blocking(["systemctl", *arguments], seconds=120)
    if result.exit_code:
        raise result.problem(f"systemctl {' '.join(arguments)}")
