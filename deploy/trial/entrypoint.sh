#!/bin/sh
# Starts the trial's own containerd, then the agent with the flags given, all inside the pod's namespaces.
set -eu

# cgroup v2 gives controllers to children of a cgroup only if no process is in it
cgroups=/sys/fs/cgroup
if [ -f "$cgroups/cgroup.controllers" ]; then
    mkdir -p "$cgroups/init"
    while read -r pid; do
        echo "$pid" > "$cgroups/init/cgroup.procs" 2> /dev/null || true
    done < "$cgroups/cgroup.procs"
    for controller in $(cat "$cgroups/cgroup.controllers"); do
        echo "+$controller" > "$cgroups/cgroup.subtree_control" || echo "no $controller for pods" >&2
    done
fi

# mounts made for pods are seen by their containers
mount --make-rshared /
mkdir -p /var/lib/kubeletx-trial/containerd /run/kubeletx-trial
containerd --config "${TRIAL_CONFIG:-/etc/kubeletx-trial}/containerd.toml" &
# words without blanks
# shellcheck disable=SC2046
set -- $(sh /dns-flags.sh /etc/resolv.conf) "$@"
exec "${KUBELETX:-/opt/kubeletx/bin/kubeletx}" --config "${TRIAL_CONFIG:-/etc/kubeletx-trial}/config.yaml" "$@"
