"""``kubeletx runtime``: adds, removes, cordons, describes and lists runtimes of a running agent."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import click
import msgspec

from kubeletx.server.views import PluginReload, RuntimeAddition, RuntimeDetail, RuntimeView

from ..connection.client import AgentClient
from ..options.common import duration, output_option, with_agent
from ..options.completing import complete_runtimes
from ..options.exit_codes import ExitCode
from ..options.go_flags import Group, boolean
from ..output.progress import show_steps
from .get import list_command


@click.group(cls=Group, short_help="Add, remove, cordon and describe runtimes.")
def runtime() -> None:
    """Add, remove, cordon and describe runtimes. Changes survive a restart."""


def _path(name: str, verb: str = "") -> str:
    return f"/v1/runtimes/{quote(name, safe='')}" + (f"/{verb}" if verb else "")


@runtime.command()
@click.argument("endpoint", metavar="TYPE:NAME:URL")
@click.option(
    "--image-service-endpoint", default=None, metavar="URL", help="Image service, if it is on another socket."
)
@with_agent
def add(agent: AgentClient, endpoint: str, image_service_endpoint: str | None) -> None:
    """Add a runtime. It need not be reachable yet."""
    wanted = RuntimeAddition(endpoint=endpoint, image_endpoint=image_service_endpoint)
    made = agent.call("POST", "/v1/runtimes", RuntimeView, body=msgspec.json.encode(wanted))
    click.echo(f"runtime/{made.name} added ({made.status})")


@runtime.command()
@click.argument("name", shell_complete=complete_runtimes)
@boolean("--drain", help="First delete its pods, with their grace period.")
@boolean("--force", help="Do not wait for a runtime that does not answer.")
@duration("--timeout", "5m", "How long --drain waits.")
@with_agent
def remove(agent: AgentClient, name: str, drain: bool, force: bool, timeout: float) -> int:
    """Remove a runtime. Refused while it has pods, unless --drain or --force is given."""
    parameters = {"drain": drain, "force": force, "timeoutSeconds": timeout}
    doing = f"{'draining' if drain else 'removing'} runtime/{name}"
    done = show_steps(doing, agent.lines("DELETE", _path(name), parameters))
    return ExitCode.OK if done else ExitCode.FAILED


@runtime.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_runtimes)
@with_agent
def cordon(agent: AgentClient, names: tuple[str, ...]) -> None:
    """Let runtimes accept no new pods; existing pods stay."""
    for name in names:
        agent.call("POST", _path(name, "cordon"), RuntimeView)
        click.echo(f"runtime/{name} cordoned")


@runtime.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_runtimes)
@with_agent
def uncordon(agent: AgentClient, names: tuple[str, ...]) -> None:
    """Let runtimes accept new pods again."""
    for name in names:
        agent.call("POST", _path(name, "uncordon"), RuntimeView)
        click.echo(f"runtime/{name} uncordoned")


@runtime.command()
@with_agent
def reload(agent: AgentClient) -> int:
    """Load the plugins of newly installed distributions, and reload the drop-in files of runtimes.

    Loaded plugins do not change; another version of one needs a restart of the agent.
    """
    reloaded = agent.call("POST", "/v1/plugins/reload", PluginReload)
    for plugin in reloaded.plugins:
        if plugin.state == "failed":
            click.echo(f"Error: plugin {plugin.name}: {plugin.reason}", err=True)
        else:
            kinds = ", ".join(plugin.kinds)
            click.echo(
                f"plugin/{plugin.name} {plugin.state} ({f'kinds: {kinds}' if kinds else plugin.reason})"
            )
    if not reloaded.plugins:
        click.echo("No new plugins found.")
    for note in reloaded.notes:
        click.echo(f"Warning: {note}", err=True)
    return ExitCode.FAILED if any(item.state == "failed" for item in reloaded.plugins) else ExitCode.OK


@runtime.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_runtimes)
@output_option("json", "yaml")
@with_agent
def describe(agent: AgentClient, names: tuple[str, ...], output: str | None) -> None:
    """Show everything about runtimes, including their capabilities."""
    from .describe import describe_runtimes

    describe_runtimes(agent, names, output)


@runtime.command()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["runtimeclass", "configmap"]),
    metavar="runtimeclass|configmap",
    default="runtimeclass",
    help="A RuntimeClass for every runtime, or one ConfigMap that lists the node's runtime services.  "
    "[default: runtimeclass]",
)
@with_agent
def manifests(agent: AgentClient, output: str) -> None:
    """Print a RuntimeClass for every runtime, or the list of runtimes, for 'kubectl apply -f -'."""
    from ..output.printers import to_yaml

    runtimes = agent.items("/v1/runtimes", RuntimeView)
    details = [agent.get(_path(item.name), RuntimeDetail) for item in runtimes]
    documents: Sequence[object]
    if output == "configmap":
        from kubeletx.kube.types.node import Node

        from .runtime_services import runtime_services

        config_map, notes = runtime_services(details, agent.get("/v1/node", Node).metadata.name)
        documents = (config_map,)
    else:
        from .runtime_manifests import runtime_classes

        documents, notes = runtime_classes(details)
    for note in notes:
        click.echo(f"Warning: {note}", err=True)
    click.echo("\n---\n".join(to_yaml(document) for document in documents))


list_command(runtime, "runtimes")
