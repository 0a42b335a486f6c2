"""SDK for applications that serve sessions on a node of kubeletx or Fornax.

    async def on_open(session: Session) -> None:       # the session is ready when it returns
        counters[session.id] = 0

    await AsyncSessionClient(on_open, on_close).run()  # until SIGTERM

`AsyncSessionClient` is for asyncio, `SessionClient` for threads. Everything exported here is public; other names are private.
"""

from .client import AsyncSessionClient
from .session import Client, Session, SessionState
from .settings import Endpoint, Metadata, Settings, SettingsError
from .threads import SessionClient

__all__ = [
    "AsyncSessionClient",
    "Client",
    "Endpoint",
    "Metadata",
    "Session",
    "SessionClient",
    "SessionState",
    "Settings",
    "SettingsError",
]
