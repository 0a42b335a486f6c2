"""Clouds of nodes by ``spec.providerID``, and the fence agents that restart their instances. Pure.

Sources of the forms: cloud-provider-aws, cloud-provider-gcp, cloud-provider-openstack, cloud-provider-azure,
cloud-provider-vsphere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

VARIABLES: Final = ("NodeName", "InstanceName", "Region", "Zone", "Project", "Subscription", "ResourceGroup")
"""Variables that values of properties may use, as ``{{.NodeName}}``; all but the first come from the providerID."""


class Cloud(NamedTuple):
    """A cloud: the form of its providerIDs, and the properties of method ``restart-instance``.

    The secret ``secret-fence-CLOUD`` is optional, since a node of the control plane may have an identity of its own.
    """

    form: re.Pattern[str]
    properties: Mapping[str, str]


CLOUDS: Final[Mapping[str, Cloud]] = {
    "aws": Cloud(
        re.compile(
            r"aws://[^/\s]*/(?P<Zone>(?P<Region>[a-z]{2,}(-[a-z]+)+-\d+)[a-z0-9-]*)/(?P<InstanceName>i-\w+)"
        ),
        {"agent": "fence_aws", "plug": "{{.InstanceName}}", "region": "{{.Region}}"},
    ),
    "gce": Cloud(
        re.compile(r"gce://(?P<Project>[^/\s]+)/(?P<Zone>[^/\s]+)/(?P<InstanceName>[^/\s]+)"),
        {
            "agent": "fence_gce",
            "plug": "{{.InstanceName}}",
            "zone": "{{.Zone}}",
            "project": "{{.Project}}",
            "method": "onoff",  # the agent's default is cycle, which verifies nothing
        },
    ),
    "openstack": Cloud(
        re.compile(r"openstack://(?P<Region>[^/\s]*)/(?P<InstanceName>[^/\s]+)"),
        {"agent": "fence_openstack", "plug": "{{.InstanceName}}"},
    ),
    "azure": Cloud(
        re.compile(
            r"azure:///subscriptions/(?P<Subscription>[^/\s]+)/resourceGroups/(?P<ResourceGroup>[^/\s]+)"
            r"/providers/Microsoft\.Compute/virtualMachines/(?P<InstanceName>[^/\s]+)",
            re.IGNORECASE,
        ),
        {
            "agent": "fence_azure_arm",
            "plug": "{{.InstanceName}}",
            "resourceGroup": "{{.ResourceGroup}}",
            "subscriptionId": "{{.Subscription}}",
        },
    ),
    "vsphere": Cloud(
        re.compile(r"vsphere://(?P<InstanceName>[^/\s]+)"),
        {"agent": "fence_vmware_rest", "plug": "{{.NodeName}}", "ssl": "1"},
    ),
}


def cloud_of(provider_id: str) -> tuple[Cloud | None, dict[str, str]]:
    """Return the node's cloud and the variables that its providerID gives; None and no variables if it has another form."""
    cloud = CLOUDS.get(provider_id.partition("://")[0])
    found = cloud.form.fullmatch(provider_id) if cloud else None
    return (cloud, found.groupdict()) if found else (None, {})
