"""Builds the pod's DNS resolver settings from the host's resolv.conf, the cluster's DNS and `dnsConfig`.

The limits are common resolvers' limits: 3 servers, 32 search domains, 2048 characters of search line. Entries beyond
them are dropped, with a warning that the caller records as an event. See docs/kubelet-parity.md, row E4. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from kubeletx.api import Dns, Unavailable
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Pod, PodDNSConfig

from ..model.node_context import NodeContext
from ..model.spec_errors import CONFIG_POD_SANDBOX_ERROR, describe

MAX_SERVERS: Final = 3
MAX_SEARCHES: Final = 32
MAX_SEARCH_CHARACTERS: Final = 2048
MAX_DOMAIN_CHARACTERS: Final = 253
DNS_CONFIG_FORMING: Final = "DNSConfigForming"


class PodWarning(msgspec.Struct, frozen=True, kw_only=True):
    """Reason and message of a Warning event that the caller must record for the pod."""

    reason: str
    message: str


class DnsResult(msgspec.Struct, frozen=True, kw_only=True):
    """Resolver settings of a pod, with warnings about dropped entries and missing cluster DNS."""

    dns: Dns
    warnings: tuple[PodWarning, ...] = ()


def build_dns(pod: Pod, context: NodeContext) -> DnsResult:
    """Build the pod's resolver settings. Raises Unavailable if the host's resolv.conf cannot be read."""
    warnings: list[PodWarning] = []
    dns = _base(pod, context, warnings)
    if pod.spec.dns_config is not None:
        dns = _merge(dns, pod.spec.dns_config)
    return DnsResult(dns=_fit(dns, warnings), warnings=tuple(warnings))


def parse_resolv_conf(text: str) -> Dns:
    """Parse the text of a resolv.conf.

    If it has several search or options lines, the last one counts. The root domain as a search domain is left out,
    since musl resolves no name with it. Source: kubelet, pkg/kubelet/network/dns.
    """
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    for line in text.split("\n"):
        words = line.split()
        if not words or words[0][0] in "#;":
            continue
        if words[0] == "nameserver" and len(words) > 1:
            servers.append(words[1])
        elif words[0] == "search":
            searches = [word.removesuffix(".") for word in words[1:] if word != "."]
        elif words[0] == "options":
            options = words[1:]
    return Dns(servers=tuple(servers), searches=tuple(searches), options=tuple(options))


def _base(pod: Pod, context: NodeContext, warnings: list[PodWarning]) -> Dns:
    policy = pod.spec.dns_policy or "ClusterFirst"
    if policy == "None":
        return Dns()
    if policy == "Default" or (policy == "ClusterFirst" and pod.spec.host_network):
        return _host(context)
    if not context.cluster_dns:
        if context.in_cluster:
            warnings.append(
                PodWarning(
                    reason=Event.MISSING_CLUSTER_DNS,
                    message=f'pod: "{describe(pod)}". kubelet does not have ClusterDNS IP configured and cannot '
                    'create Pod using "ClusterFirst" policy. Falling back to "Default" policy.',
                )
            )
        return _host(context)
    searches = _host_file(context).searches
    if context.cluster_domain:
        domain = context.cluster_domain
        searches = _unique((f"{pod.namespace}.svc.{domain}", f"svc.{domain}", domain, *searches))
    return Dns(servers=context.cluster_dns, searches=searches, options=("ndots:5",))


def _host(context: NodeContext) -> Dns:
    if context.resolv_conf is not None:
        return _host_file(context)
    servers = tuple("::1" if ":" in ip else "127.0.0.1" for ip in context.host_ips)
    return Dns(servers=servers or ("127.0.0.1",), searches=(".",))


def _host_file(context: NodeContext) -> Dns:
    if context.resolv_conf is None:
        return Dns()
    try:
        return parse_resolv_conf(context.read_file(context.resolv_conf))
    except OSError as err:
        raise Unavailable(
            f"cannot read resolver settings from {str(context.resolv_conf)!r}: {err.strerror}; "
            "make the file readable or set resolvConf",
            reason=CONFIG_POD_SANDBOX_ERROR,
        ) from err


def _merge(dns: Dns, extra: PodDNSConfig) -> Dns:
    options = dict(option.partition(":")[::2] for option in dns.options)
    options.update({option.name: option.value or "" for option in extra.options})
    return Dns(
        servers=_unique((*dns.servers, *extra.nameservers)),
        searches=_unique((*dns.searches, *extra.searches)),
        options=tuple(f"{name}:{value}" if value else name for name, value in options.items()),
    )


def _fit(dns: Dns, warnings: list[PodWarning]) -> Dns:
    servers = dns.servers[:MAX_SERVERS]
    if len(servers) < len(dns.servers):
        warnings.append(
            PodWarning(
                reason=DNS_CONFIG_FORMING,
                message=f"More than {MAX_SERVERS} name servers; the applied nameserver line is: "
                + " ".join(servers),
            )
        )
    searches = [name for name in dns.searches[:MAX_SEARCHES] if len(name) <= MAX_DOMAIN_CHARACTERS]
    while len(" ".join(searches)) > MAX_SEARCH_CHARACTERS:
        searches.pop()
    if len(searches) < len(dns.searches):
        warnings.append(
            PodWarning(
                reason=DNS_CONFIG_FORMING,
                message=f"Search line goes beyond {MAX_SEARCHES} domains, {MAX_SEARCH_CHARACTERS} characters or "
                f"{MAX_DOMAIN_CHARACTERS} of one domain; the applied search line is: {' '.join(searches)}",
            )
        )
    return Dns(servers=servers, searches=tuple(searches), options=dns.options)


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))
