"""Checks of names and other short strings.

Each returns "" if the string is valid, otherwise an error phrase that the caller appends to the string, such as
"has an empty prefix before '/'".

Source: apimachinery, pkg/util/validation and pkg/api/validation.
"""

from __future__ import annotations

import base64
import ipaddress
import itertools
import re
from collections.abc import Callable
from typing import Final, TypeAlias

Check: TypeAlias = Callable[[str], str]

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL: Final = re.compile(_LABEL)
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_ENV: Final = re.compile(r"[ -<>-~]+")
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_PORT_NAME: Final = re.compile(r"(?=.*[a-z])[a-z0-9]+(?:-[a-z0-9]+)*")
_SYSCTL: Final = re.compile(r"[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?(?:[./][a-z0-9](?:[-_a-z0-9]*[a-z0-9])?)*")
_HEADER: Final = re.compile(r"[-A-Za-z0-9]+")
_UID: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?")
_SEARCH: Final = re.compile(
    r"\.|[a-z0-9_](?:[-_a-z0-9]*[a-z0-9])?(?:\.[a-z0-9_](?:[-_a-z0-9]*[a-z0-9])?)*\.?"
)
_SSH_KEY_TYPE: Final = re.compile(r"(?:sk-)?(?:ssh|ecdsa)-[-a-z0-9@.]+")
_INTERFACE: Final = re.compile(r"[A-Za-z0-9](?:[-._A-Za-z0-9]*)")
_SIGNAL: Final = re.compile(
    r"SIG(?:ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|PROF|PWR|QUIT|SEGV|STKFLT|STOP|SYS|TERM"
    r"|TRAP|TSTP|TTIN|TTOU|URG|USR1|USR2|VTALRM|WINCH|XCPU|XFSZ|RTMIN(?:\+(?:[1-9]|1[0-5]))?|RTMAX(?:-(?:[1-9]|1[0-4]))?)"
)
_ISCSI: Final = re.compile(
    r"iqn\.[0-9]{4}-[0-9]{2}\.[-.0-9A-Za-z]+:[^,;*&$|\s]+|eui.[0-9A-Za-z]{16}|naa.[0-9A-Za-z]{32}", re.ASCII
)
_WINDOWS_DOMAIN: Final = re.compile(
    r"[^\\/:*?\"<>|.\x00-\x1f][^\\/:*?\"<>|\x00-\x1f]{0,14}|[-.A-Za-z0-9]{1,255}"
)
_WINDOWS_USER: Final = re.compile(r"[^\"/\\:;|=,+*?<>@\[\]\x00-\x1f]{1,104}")
_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")
_RESOURCES: Final = "cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME"


def dns_label(text: str) -> str:
    """Check a DNS label, as names of containers, volumes and namespaces are; returns the problem, or an empty text."""
    return _check(text, _DNS_LABEL, 63, "is not a DNS label (lower-case letters, digits and '-')")


def dns_subdomain(text: str) -> str:
    """Check a DNS subdomain, as names of pods and most other objects are; returns the problem, or an empty text."""
    return _check(text, _SUBDOMAIN, 253, "is not a DNS name (lower-case letters, digits, '-' and '.')")


def machine_name(text: str) -> str:
    """Check a machine's name, a DNS label that may have capitals; returns the problem, or an empty text."""
    return _check(text.lower(), _DNS_LABEL, 63, "is not a DNS label (letters, digits and '-')")


def runtime_name(text: str) -> str:
    """Check the name of a runtime on this node; returns the problem, or an empty text."""
    if "--" in text:
        return "holds '--', which no runtime name does"
    return _check(text, _DNS_LABEL, 30, "is not a runtime name (lower-case letters, digits and '-')")


def qualified_name(text: str) -> str:
    """Check a label key: ``NAME`` or ``DNS-SUBDOMAIN/NAME``; returns the problem, or an empty text."""
    prefix, slash, name = text.rpartition("/")
    if slash and (problem := dns_subdomain(prefix)):
        return f"has a prefix that {problem}" if prefix else "has an empty prefix before '/'"
    return _check(name, _QUALIFIED, 63, "is not a valid key (letters, digits, '-', '_' and '.')")


def finalizer(text: str) -> str:
    """Check the name of a finalizer: ``DOMAIN/NAME``, or one of Kubernetes' own; returns the problem, or an empty text."""
    if "/" not in text and text not in _FINALIZERS:
        return "has no domain before its name"
    return qualified_name(text)


def name_prefix(text: str) -> str:
    """Check a generateName, which may end in '-'; returns the problem, or an empty text."""
    return dns_subdomain(f"{text[:-1]}a" if text.endswith("-") else text)


def container_resource(text: str) -> str:
    """Check the name of a resource that a container requests; returns the problem, or an empty text."""
    if "/" not in text:
        is_known = text in ("cpu", "memory", "ephemeral-storage") or text.startswith("hugepages-")
        return (
            ""
            if is_known and not qualified_name(text)
            else f"is not a resource of a container ({_RESOURCES})"
        )
    if "kubernetes.io/" in text:
        return qualified_name(text)
    if text.startswith("requests."):
        return "starts with 'requests.', as only quotas do"
    return qualified_name(f"requests.{text}")


def pod_resource(text: str) -> str:
    """Check the name of a resource that the pod as a whole requests; returns the problem, or an empty text."""
    is_known = text in ("cpu", "memory") or text.startswith("hugepages-")
    return (
        ""
        if is_known and not qualified_name(text)
        else "is not a resource of a whole pod (cpu, memory, hugepages-SIZE)"
    )


def iscsi_name(text: str) -> str:
    """Check an iSCSI name: iqn., eui. or naa.; returns the problem, or an empty text."""
    return "" if _ISCSI.fullmatch(text) else "is not an iSCSI name (iqn.YEAR-MONTH.DOMAIN:NAME, eui. or naa.)"


def windows_user(text: str) -> str:
    """Check a user of Windows, ``USER`` or ``DOMAIN\\USER``; returns the problem, or an empty text."""
    domain, slash, user = text.rpartition("\\")
    if slash and not _WINDOWS_DOMAIN.fullmatch(domain):
        return "has no valid domain before '\\'"
    return "" if _WINDOWS_USER.fullmatch(user) and user.strip(". ") else "is not the name of a user"


def label_value(text: str) -> str:
    """Check the value of a label, which may be empty; returns the problem, or an empty text."""
    return (
        _check(text, _QUALIFIED, 63, "is not a label value (letters, digits, '-', '_' and '.')")
        if text
        else ""
    )


def env_name(text: str) -> str:
    """Check the name of an environment variable: any printable ASCII but '='; returns the problem, or an empty text."""
    return _check(text, _ENV, 32768, "is not a variable name (printable ASCII without '=')")


def driver_name(text: str) -> str:
    """Check the name of an executable volume driver, whose parts are names of files; returns the problem, or an empty text."""
    is_bad = any(part in ("", ".", "..") or not part.isprintable() for part in text.split("/"))
    if is_bad or text.startswith("."):
        return "is not a driver name"
    return "is longer than 255 bytes" if len(text.encode("utf-8", "replace")) > 255 else ""


def config_key(text: str) -> str:
    """Check a key of a config map or secret; returns the problem, or an empty text."""
    if text in (".", "..") or text.startswith(".."):
        return "may not be '.' or start with '..'"
    return _check(text, _KEY, 253, "is not a key (letters, digits, '-', '_' and '.')")


def port_name(text: str) -> str:
    """Check the name of a port (IANA service name); returns the problem, or an empty text."""
    return _check(text, _PORT_NAME, 15, "is not a port name (lower-case letters, digits and single '-')")


def sysctl_name(text: str) -> str:
    """Check the name of a kernel setting, with '.' or '/' between its parts; returns the problem, or an empty text."""
    return _check(text, _SYSCTL, 253, "is not a sysctl name")


def header_name(text: str) -> str:
    """Check the name of an HTTP header; returns the problem, or an empty text."""
    return _check(text, _HEADER, len(text), "is not a header name (letters, digits and '-')")


def uid(text: str) -> str:
    """Check a pod's UID, which becomes part of directory and cgroup names; returns the problem, or an empty text."""
    return _check(text, _UID, 128, "is not a UID (letters, digits and '-')")


def search_domain(text: str) -> str:
    """Check a search domain of the resolver; returns the problem, or an empty text."""
    return _check(text.removesuffix(".") or text, _SEARCH, 253, "is not a search domain")


def ssh_public_keys(text: str) -> str:
    """Check SSH public keys, as in an authorized_keys file, one per line; returns the problem, or an empty text."""
    for line in text.split("\n"):
        key = line.strip()
        if key and not key.startswith("#") and (problem := _ssh_public_key(key)):
            return problem
    return ""


def _ssh_public_key(line: str) -> str:
    if "PRIVATE KEY" in line:
        return "is a private key; write the public one"
    tokens = line.split()
    for kind, data in itertools.pairwise(tokens):
        if not _SSH_KEY_TYPE.fullmatch(kind):
            continue
        try:
            blob = base64.b64decode(data, validate=True)
        except ValueError:
            return f"has no base64 after {kind}"
        parts = _ssh_parts(blob)
        if len(parts) < 2 or parts[0] != kind.encode():
            return f"is not a key of type {kind}: it is cut off or damaged"
        return ""
    return "is no SSH public key (such as 'ssh-ed25519 AAAA... name')"


def _ssh_parts(blob: bytes) -> list[bytes]:
    """Split a binary SSH key into its fields. Each field is preceded by its length. Source: RFC 4253, 6.6.

    Returns an empty list if the key is incomplete.
    """
    parts = []
    while blob:
        end = 4 + int.from_bytes(blob[:4], "big")
        if len(blob) < 4 or end > len(blob):
            return []
        parts.append(blob[4:end])
        blob = blob[end:]
    return parts


def interface_name(text: str) -> str:
    """Check the name of a network interface; returns the problem, or an empty text."""
    return _check(text, _INTERFACE, 15, "is not an interface name (letters, digits, '-', '_' and '.')")


def network_id(text: str) -> str:
    """Check the name or ID of a network, subnet or port; returns the problem, or an empty text."""
    return _check(text, _INTERFACE, 128, "is not a name (letters, digits, '-', '_' and '.')")


def signal_name(text: str) -> str:
    """Check the name of a signal, such as SIGTERM or SIGRTMIN+3; returns the problem, or an empty text."""
    return _check(text, _SIGNAL, 12, "is not a signal name such as SIGTERM")


def ip_address(text: str) -> str:
    """Check an IPv4 or IPv6 address without a zone; returns the problem, or an empty text."""
    if "%" in text:
        return "is an IP address with a zone"
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return "is not an IP address"
    return ""


def image(text: str) -> str:
    """Check that an image reference has no white space; returns the problem, or an empty text."""
    return "holds white space" if any(c.isspace() for c in text) else ""


def absolute_path(text: str) -> str:
    """Check that a path is absolute and has no part '..'; returns the problem, or an empty text."""
    return no_backsteps(text) if text.startswith("/") else "is not an absolute path"


def relative_path(text: str) -> str:
    """Check that a path is relative and has no part '..'; returns the problem, or an empty text."""
    return "is not a relative path" if text.startswith("/") else no_backsteps(text)


def no_slash(text: str) -> str:
    """Check that a text has no '/'; returns the problem, or an empty text."""
    return "holds '/'" if "/" in text else ""


def host_and_port(text: str) -> str:
    """Check an address as in ``HOST:PORT``; returns the problem, or an empty text."""
    return "" if re.fullmatch(r"\[[^\[\]]*\]:[^:]*|[^:\[\]]*:[^:\[\]]*", text) else "is not HOST:PORT"


def unpadded(text: str) -> str:
    """Check that a text has no white space around it; returns the problem, or an empty text."""
    return "" if text == text.strip() else "has white space around it"


def no_nul(text: str) -> str:
    """Check that a text has no NUL; returns the problem, or an empty text."""
    return "holds a NUL character" if "\0" in text else ""


def no_backsteps(text: str) -> str:
    """Check that a path has no part '..' and no NUL; returns the problem, or an empty text."""
    return no_nul(text) or ("may not hold '..'" if ".." in text.split("/") else "")


def _check(text: str, pattern: re.Pattern[str], longest: int, problem: str) -> str:
    if len(text) > longest:
        return f"is longer than {longest} characters"
    return "" if pattern.fullmatch(text) else problem
