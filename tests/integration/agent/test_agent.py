"""Many pods of one agent on two real containerds."""

from __future__ import annotations

from pathlib import Path

from kubeletx_testing.lab import (
    Lab,
    PrivateAgent,
    bound_runtime,
    pod_manifest,
    put_manifest,
)


def test_fifty_pods_over_both_runtimes_have_fifty_addresses_and_reach_each_other(
    agent: PrivateAgent, manifests: Path, lab: Lab
) -> None:
    names = [f"many-{number}" for number in range(50)]
    runtimes = list(lab.containerds)
    for number, name in enumerate(names):
        put_manifest(manifests, pod_manifest(name, runtime=runtimes[number % 2], image="web", command=None))
    pods = [agent.wait_for(name, timeout_seconds=90) for name in names]
    addresses = [pod.status.pod_ip for pod in pods]
    assert len(set(addresses)) == len(names)
    script = "; ".join(
        f"until wget -qO- http://{address}:8080/healthz; do usleep 50000; done" for address in addresses
    )
    for pod in pods[:2]:
        with lab[bound_runtime(pod)].cri() as cri_calls:
            container = cri_calls.containers(pod_uid=str(pod.metadata.uid))[0]
            answer = cri_calls.call(
                "ExecSync", container_id=container.id, cmd=["sh", "-c", script], timeout=60
            )
        assert answer.stdout.count(b"ok\n") == len(names)
