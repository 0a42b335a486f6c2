"""Allowed mount options. They become one argument of mount(8), so each is matched as a whole; commas cannot appear."""

from __future__ import annotations

import re
from typing import Final

_FLAGS: Final = frozenset(
    (
        "nosuid",
        "nodev",
        "noexec",
        "noatime",
        "nodiratime",
        "relatime",
        "strictatime",
        "lazytime",
        "nolazytime",
        "sync",
        "dirsync",
        "iversion",
        "noiversion",
        "discard",
        "nodiscard",
        "barrier",
        "nobarrier",
        "auto_da_alloc",
        "noauto_da_alloc",
        "delalloc",
        "nodelalloc",
        "journal_checksum",
        "user_xattr",
        "nouser_xattr",
        "acl",
        "noacl",
        "grpid",
        "nogrpid",
        "bsddf",
        "minixdf",
        "nouuid",
        "inode64",
        "inode32",
        "largeio",
        "nolargeio",
        "swalloc",
        "norecovery",
        "noload",
        "hard",
        "soft",
        "softreval",
        "intr",
        "nointr",
        "tcp",
        "udp",
        "rdma",
        "lock",
        "nolock",
        "ac",
        "noac",
        "cto",
        "nocto",
        "rdirplus",
        "nordirplus",
        "resvport",
        "noresvport",
        "sharecache",
        "nosharecache",
        "fsc",
        "nofsc",
    )
)
_NUMBERS: Final = (
    "acdirmax",
    "acdirmin",
    "acregmax",
    "acregmin",
    "actimeo",
    "allocsize",
    "commit",
    "inode_readahead_blks",
    "journal_ioprio",
    "logbsize",
    "logbufs",
    "max_batch_time",
    "min_batch_time",
    "nconnect",
    "port",
    "retrans",
    "retry",
    "rsize",
    "stripe",
    "sunit",
    "swidth",
    "timeo",
    "wsize",
)
_WORDS: Final = {
    "data": "journal|ordered|writeback",
    "data_err": "ignore|abort",
    "errors": "continue|remount-ro|panic",
    "local_lock": "all|flock|posix|none",
    "lookupcache": "all|none|pos|positive",
    "nfsvers": r"[234](\.[0-9])?",
    "proto": "tcp6?|udp6?|rdma6?",
    "sec": "sys|none|krb5|krb5i|krb5p",
    "vers": r"[234](\.[0-9])?",
}
_VALUE: Final = {name: re.compile(r"[0-9]{1,10}[kmgKMG]?") for name in _NUMBERS} | {
    name: re.compile(pattern) for name, pattern in _WORDS.items()
}


def is_allowed(option: str) -> bool:
    """Return True if volumes may be mounted with this option."""
    name, has_value, value = option.partition("=")
    if not has_value:
        return name in _FLAGS
    return name in _VALUE and _VALUE[name].fullmatch(value) is not None
