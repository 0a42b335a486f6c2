"""Translates libvirt's errors to errors of `kubeletx.api`."""

from __future__ import annotations

import libvirt

from kubeletx.api import (
    AlreadyExists,
    Conflict,
    Internal,
    KubeletxError,
    NotFound,
    PermissionDenied,
    TimedOut,
    Unavailable,
    Unsupported,
)

_CODES: dict[type[KubeletxError], tuple[int, ...]] = {
    NotFound: (
        libvirt.VIR_ERR_NO_DOMAIN,
        libvirt.VIR_ERR_NO_DOMAIN_METADATA,
        libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT,
        libvirt.VIR_ERR_NO_NETWORK,
        libvirt.VIR_ERR_DEVICE_MISSING,
    ),
    Unavailable: (
        libvirt.VIR_ERR_NO_CONNECT,
        libvirt.VIR_ERR_INVALID_CONN,
        libvirt.VIR_ERR_RPC,
        libvirt.VIR_ERR_SYSTEM_ERROR,
        libvirt.VIR_ERR_GNUTLS_ERROR,
        libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
        libvirt.VIR_ERR_AGENT_UNSYNCED,
    ),
    PermissionDenied: (
        libvirt.VIR_ERR_AUTH_FAILED,
        libvirt.VIR_ERR_ACCESS_DENIED,
        libvirt.VIR_ERR_OPERATION_DENIED,
    ),
    Unsupported: (
        libvirt.VIR_ERR_NO_SUPPORT,
        libvirt.VIR_ERR_OPERATION_UNSUPPORTED,
        libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED,
        libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
    ),
    Conflict: (
        libvirt.VIR_ERR_OPERATION_INVALID,
        libvirt.VIR_ERR_OPERATION_FAILED,
        libvirt.VIR_ERR_OPERATION_ABORTED,
        libvirt.VIR_ERR_RESOURCE_BUSY,
    ),
    TimedOut: (libvirt.VIR_ERR_OPERATION_TIMEOUT,),
    AlreadyExists: (libvirt.VIR_ERR_DOM_EXIST,),
}
_CLASSES = {code: kind for kind, codes in _CODES.items() for code in codes}


def translate(error: libvirt.libvirtError) -> KubeletxError:
    """Convert libvirt's error to the class of `kubeletx.api` that fits its error code.

    An error code without a class becomes Internal. The message contains libvirt's text.
    """
    code = error.get_error_code()
    message = f"libvirt: {error.get_error_message() or error}"
    if code == libvirt.VIR_ERR_INTERNAL_ERROR and error.get_error_domain() == libvirt.VIR_FROM_RPC:
        return Unavailable(message)  # such as a keep-alive that was not answered
    return _CLASSES.get(code, Internal)(message)


def code_of(error: libvirt.libvirtError) -> int:
    """Return libvirt's error code; 0 if the error has none."""
    return error.get_error_code() or 0
