"""Allowed mount options of each file system.

They become one argument of mount(8), so each is matched as a whole; commas cannot appear. An option is allowed if it
concerns this mount only: with ``errors=panic``, for example, a damaged volume stops the node. Sources: mount(8),
ext4(5), xfs(5), nfs(5).
"""

from __future__ import annotations

import re
from typing import Final

DIRECTORY: Final = "directory"
"""In place of a file system: a directory that is bind-mounted."""

_ALL: Final = "nosuid nodev noexec noatime nodiratime relatime strictatime"
_DEVICE: Final = f"{_ALL} lazytime nolazytime sync dirsync discard nodiscard grpid nogrpid"
_EXT: Final = (
    f"{_DEVICE} acl noacl user_xattr nouser_xattr iversion noiversion barrier nobarrier delalloc nodelalloc "
    "auto_da_alloc noauto_da_alloc journal_checksum bsddf minixdf norecovery noload commit= inode_readahead_blks= "
    "journal_ioprio= max_batch_time= min_batch_time= stripe= data= data_err= errors="
)
_OPTIONS: Final = {
    DIRECTORY: _ALL,
    "ext3": _EXT,
    "ext4": _EXT,
    "xfs": f"{_DEVICE} nouuid inode64 inode32 largeio nolargeio swalloc norecovery allocsize= logbsize= logbufs= sunit= "
    "swidth=",
    "nfs": f"{_ALL} sync acl noacl hard soft softreval intr nointr tcp udp rdma lock nolock ac noac cto nocto rdirplus "
    "nordirplus resvport noresvport sharecache nosharecache fsc nofsc acdirmax= acdirmin= acregmax= acregmin= "
    "actimeo= nconnect= port= retrans= retry= rsize= timeo= wsize= local_lock= lookupcache= nfsvers= proto= sec= "
    "vers=",
}
_ALLOWED: Final = {name: frozenset(words.split()) for name, words in _OPTIONS.items()}
_NUMBER: Final = "[0-9]{1,10}[kmgKMG]?"
_VALUES: Final = {
    "data": "journal|ordered|writeback",
    "data_err": "ignore|abort",
    "errors": "continue|remount-ro",
    "local_lock": "all|flock|posix|none",
    "lookupcache": "all|none|pos|positive",
    "nfsvers": r"[234](\.[0-9])?",
    "proto": "tcp6?|udp6?|rdma6?",
    "sec": "sys|none|krb5|krb5i|krb5p",
    "vers": r"[234](\.[0-9])?",
}


def problem_with_option(option: str, file_system: str) -> str:
    """Return why a volume of this file system must not be mounted with an option; empty: it may."""
    name, has_value, value = option.partition("=")
    if f"{name}{has_value}" not in _ALLOWED[file_system]:
        return f"{option!r} is not allowed for {file_system}"
    pattern = _VALUES.get(name, _NUMBER)
    if has_value and re.fullmatch(pattern, value) is None:
        return f"{option!r} is not allowed: the value must match {pattern}"
    return ""


def known_options(file_system: str) -> str:
    """Return the options of a file system, for messages."""
    return ", ".join(_OPTIONS[file_system].split())
