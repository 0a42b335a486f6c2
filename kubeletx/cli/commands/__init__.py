"""The commands of ``kubeletx``; each is in a module that is imported only when the command is used."""

from __future__ import annotations

import textwrap
from typing import Final

from ..options.group import Lazy

_BY_PURPOSE: Final = {
    "Run": {
        "agent": ("node.agent:agent", "Run the agent of this node."),
        "health": ("node.processes:health", "Run this node's guardian: watchdog, OS upgrades, reboots."),
        "remedy": (
            "node.processes:remedy",
            "Run the cluster's node remedy: fence, repair and bring back sick nodes.",
        ),
    },
    "First steps": {
        "setup": ("node.setup:setup", "Write the files that this node lacks, or remove them."),
        "doctor": ("node.doctor:doctor", "Show whether this node is well, and what to do."),
        "plugins": ("plugins:plugins", "Show the plugins that were found."),
        "config": ("config:config", "Show the effective configuration."),
        "version": ("version:version", "Show the versions of this command and of the agent."),
        "completion": ("completion:completion", "Print the completion script of a shell."),
    },
    "Look": {
        "get": ("get:get", "Show pods, runtimes, the node, images, volumes or events."),
        "describe": ("describe:describe", "Show everything about a pod, the node, a runtime or a volume."),
        "logs": ("logs:logs", "Print the log of a container."),
        "top": ("top:top", "Show usage of pods, runtimes or the node."),
        "events": ("objects.events:events", "Show events."),
        "wait": ("objects.wait:wait", "Wait until objects have a condition or are gone."),
        "explain": ("objects.explain:explain", "Show the fields of pods and machines, and our annotations."),
        "panel": ("panel:panel", "Show panels of plugins."),
        "ui": ("node.ui:ui", "Open a page about the node in a browser."),
        "report": ("node.report:report", "Write a folder about the node for a bug report."),
    },
    "Change": {
        "apply": ("apply:apply", "Create or change pods from a file."),
        "replace": ("replace:replace", "Replace pods from a file."),
        "diff": ("objects.diff:diff", "Show what apply of a file would change."),
        "edit": ("objects.edit:edit", "Change an applied pod in an editor."),
        "label": ("objects.label:label", "Change labels of applied pods."),
        "annotate": ("objects.label:annotate", "Change annotations of applied pods."),
        "restart": ("objects.restart:restart", "Restart containers of a pod."),
        "delete": ("delete:delete", "Delete pods, config maps, secrets or claims."),
    },
    "Inside a pod": {
        "exec": ("exec:exec_", "Run a command in a container."),
        "attach": ("attach:attach", "Join the streams of a running container."),
        "debug": ("objects.debug:debug", "Add a container with other tools to a running pod."),
        "cp": ("objects.cp:cp", "Copy files to and from containers."),
        "port-forward": ("port_forward:port_forward", "Forward local ports to a pod."),
    },
    "Freeze and wake": {
        "pod": ("pod:pod", "Freeze, hibernate and wake pods."),
        "session": ("session.verbs:session", "Open, list, describe, close and measure sessions."),
    },
    "Machines": {
        "vm": ("vm.verbs:vm", "Pause, snapshot, resize and look into virtual machines."),
    },
    "Node": {
        "runtime": ("runtime:runtime", "Add, remove, cordon and describe runtimes."),
        "drain": ("node.drain:drain", "End all pods of the node; new ones are refused."),
        "cordon": ("node.drain:cordon", "Refuse new pods on this node."),
        "uncordon": ("node.drain:uncordon", "Accept new pods again."),
        "fornaxcore": ("fornaxcore.status:fornaxcore", "Show the node's connections to FornaxCores."),
        "image": ("image:image", "List, pull, remove and prune images."),
    },
    "Extend": {
        "plugin": ("plugin.verbs:plugin", "Write, check, install, list and remove plugins."),
        "fornaxcore-sim": ("fornaxcore.simulator:simulator", "Run a simulated FornaxCore."),
        "man": ("node.man:man", "Write the man pages into a directory."),
    },
}

COMMANDS: Final = {
    name: Lazy(f"{__name__}.{target}", text)
    for commands in _BY_PURPOSE.values()
    for name, (target, text) in commands.items()
}

INSTEAD: Final = {
    "run": "kubeletx apply -f FILE",
    "create": "kubeletx apply -f FILE",
    "rm": "kubeletx delete pod NAME",
    "ps": "kubeletx get pods",
    "images": "kubeletx image list",
    "pull": "kubeletx image pull IMAGE",
    "rmi": "kubeletx image rm IMAGE",
    "prune": "kubeletx image prune",
    "list": "kubeletx get pods",
    "pods": "kubeletx get pods",
    "inspect": "kubeletx describe pod NAME",
    "stats": "kubeletx top pods",
    "stop": "kubeletx delete pod NAME",
    "kill": "kubeletx delete pod NAME",
    "rollout": "kubeletx restart NAME",
    "info": "kubeletx describe node",
    "dashboard": "kubeletx ui",
    "system": "kubeletx doctor",
    "start": "kubeletx vm start NAME",
    "shutdown": "kubeletx vm stop NAME",
    "console": "kubeletx vm console NAME",
    "dumpxml": "kubeletx vm dump-xml NAME",
    "domifaddr": "kubeletx vm ip NAME",
}
"""Command to use for a command of kubectl, crictl or docker that kubeletx lacks."""


def overview() -> str:
    """Return the help of the whole program: one screen with the names of all commands by purpose."""
    lines = [_HEAD]
    for purpose, commands in _BY_PURPOSE.items():
        lines += textwrap.wrap(
            ", ".join(commands), 79, initial_indent=f"  {purpose:<17}", subsequent_indent=" " * 19
        )
    return "\n".join([*lines, _END])


_HEAD = """\
Usage: kubeletx [--root-dir DIR] [-n NAMESPACE] COMMAND [ARGS]...
       kubeletx [agent] FLAGS...

Runs containers, standby containers and virtual machines side by side on a node.
Commands talk to the agent on --root-dir; 'kubeletx agent' is that agent.
"""
_END = """
  kubeletx COMMAND --help     what a command does, and its flags
  kubeletx agent --help       flags of the agent; 'kubeletx FLAGS' runs it, too
  kubeletx get pods -o wide   a first look
  --version, -h, --help       this program's version, this page"""
