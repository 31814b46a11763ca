"""The HTTP session that fetches share."""

import asyncio
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING

from amplifier_kit.client_slot import ClientSlot
from amplifier_kit.tools.input import ToolFailure

from .settings import MODULE_ID, Settings

if TYPE_CHECKING:
    import httpx2

_ACCEPT = "text/html,text/plain,application/json;q=0.9,*/*;q=0.5"
_NO_COOKIES = DefaultCookiePolicy(allowed_domains=[])


class WebSession:
    """Makes one client when it is first needed; what one fetch learns does not reach the next."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_first = asyncio.Lock()
        self._slot: ClientSlot[httpx2.AsyncClient | None] = ClientSlot(MODULE_ID, lambda: None, _close)

    async def client(self) -> "httpx2.AsyncClient":
        """Return the client; raises `ToolFailure` where httpx2 is not installed."""
        async with self._is_first:
            client = self._slot.get()
            if client is None:
                try:
                    client = await asyncio.to_thread(_build, self._settings)
                except ModuleNotFoundError as exc:
                    raise ToolFailure(
                        "web_fetch needs the package httpx2; install amplifier[web]", "capability_missing"
                    ) from exc
                self._slot.put(client)
        return client

    async def close(self) -> None:
        """Close the client, if there is one; a second call does nothing."""
        await self._slot.close()


def _build(settings: Settings) -> "httpx2.AsyncClient":
    # Imported here, in a worker thread: it takes a while, and not every session fetches something.
    import httpx2

    from .pinned_connections import PinnedTransport

    policy = settings.policy
    return httpx2.AsyncClient(
        # Without a transport of ours the client goes through the proxies that the environment names.
        transport=PinnedTransport(policy.must_be_public, timeout_s=settings.timeout_s)
        if policy.guards_private_networks
        else None,
        headers={"User-Agent": settings.user_agent, "Accept": _ACCEPT, "Accept-Encoding": "gzip, deflate"},
        cookies=CookieJar(_NO_COOKIES),
        follow_redirects=False,
        timeout=None,
    )


async def _close(client: "httpx2.AsyncClient | None") -> None:
    if client is not None:
        await client.aclose()
