"""By what callers are known: tokens, logins of browsers and tickets, of this home or of the whole cluster."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import beat, cancelled
from amplifierd.exceptions import RequestRefusedError, TokenNotFoundError
from amplifierd.limits import Limits
from amplifierd.paths import Paths

from .callers import Caller, Scope
from .logins import Logins
from .shared_credentials import SharedLogins, SharedTokens
from .tickets import Purpose, SharedTickets, Tickets
from .tokens import Token, Tokens

if TYPE_CHECKING:
    from amplifierd.store.postgres.store import PostgresStore

logger = logging.getLogger(__name__)

_LOOK_S = 10.0
"""How often members look at what they share, even if none says that something has changed."""

_STALLS_S = 30.0
"""Who learns nothing of credentials for so long would let in whom others shut out, and gives up its lease."""

_MOMENT_S = 0.25
"""Those who are not known here and ask within so short a time are looked for together."""


class TicketBook(Protocol):
    """Tickets, here or shared."""

    async def issue(self, caller: Caller, purpose: Purpose) -> str: ...

    async def find(self, ticket: str, purpose: Purpose) -> Caller | None: ...

    async def redeem(self, ticket: str, purpose: Purpose) -> Caller | None: ...


class LoginBook(Protocol):
    """Logins, here or shared."""

    async def begin(self, caller: Caller) -> str: ...

    def find(self, secret: str) -> Caller | None: ...

    def is_known(self, digest: str) -> bool: ...

    async def end(self, secret: str) -> None: ...


class Credentials:
    """Everything by which one daemon knows callers."""

    def __init__(self, paths: Paths, tokens: Tokens) -> None:
        self.tokens = tokens
        self.tickets: TicketBook = Tickets()
        self.logins: LoginBook = Logins(paths.logins_file, tokens)
        self._paths = paths
        self._store: PostgresStore | None = None
        self._shared_tokens: SharedTokens | None = None
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = 0.0
        self._alone = asyncio.Lock()
        self._woken = asyncio.Event()

    async def load(self) -> None:
        """Know again who was let in before the daemon was restarted."""
        if isinstance(self.logins, Logins):
            await asyncio.to_thread(self.logins.load)

    async def share(self, store: PostgresStore) -> None:
        """Know what all members of a cluster know, from now on."""
        self._store = store
        self._shared_tokens = SharedTokens(store.shared, self.tokens, self._paths.home)
        self.tickets, self.logins = SharedTickets(store.shared), SharedLogins(store.shared, self.tokens)
        self.tokens.others = lambda: self._shared_tokens.others if self._shared_tokens else ()
        await self.look()
        store.notifications.subscribe("amplifier_cluster", lambda word: self._woken.set())
        self._looking = store.supervisor.start(
            "credentials of other members", self._keep_looking, stalls_after_s=_STALLS_S
        )

    async def look(self, *, unless_since: float = float("inf")) -> None:
        """Learn what other members know, unless that was begun after a moment and is done."""
        async with self._alone:
            if self._shared_tokens is None or not isinstance(self.logins, SharedLogins):
                return
            if self._looked_at <= unless_since:
                self._looked_at = time.monotonic()
                await self._shared_tokens.look()
                await self.logins.look()

    async def find(self, presented: str) -> Caller | None:
        """Return whose token it is, also if another member made it just now."""
        caller = self.tokens.find(presented)
        if caller is None:
            await self.look_again()
            caller = self.tokens.find(presented)
        return caller

    async def look_again(self) -> None:
        """Look whether others know a caller who is not known here; a member may have let them in just now."""
        if self._store is None:
            return
        began_at = time.monotonic()
        await asyncio.sleep(self._looked_at + _MOMENT_S - began_at)
        await self.look(unless_since=began_at)

    async def _keep_looking(self) -> None:
        while True:
            beat()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _LOOK_S)
            self._woken.clear()
            try:
                await self.look()
            except (AmplifierError, OSError) as error:
                logger.warning("it is not known whom other members let in: %s", error)

    async def create_token(
        self,
        name: str,
        scope: Scope,
        *,
        owner: str | None = None,
        limits: Limits | None = None,
        roots: Sequence[str] = (),
    ) -> tuple[Token, str]:
        """Make a token for this home, or for the cluster. Raises what `Tokens.create` raises."""
        if self._shared_tokens is None:
            return await asyncio.to_thread(self.tokens.create, name, scope, owner=owner, limits=limits, roots=roots)
        created = await self._shared_tokens.create(name, scope, owner=owner, limits=limits, roots=roots)
        await self._tell()
        return created

    async def revoke_token(self, name: str) -> None:
        """Make a token worthless at once. Raises what `Tokens.revoke` raises."""
        if self._shared_tokens is None or not await self._shared_tokens.revoke(name):
            try:
                await asyncio.to_thread(self.tokens.revoke, name)
            except TokenNotFoundError as error:
                if name in {token.name for token in self.tokens.list()}:
                    error.hint = "it is kept in the home of another member: revoke it there"
                raise
            await self.look()
        await self._tell()

    async def _tell(self) -> None:
        """Have other members look."""
        if self._store is not None:
            await self._store.notifications.notify("amplifier_cluster")

    async def close(self) -> None:
        await cancelled(self._looking)


_ATTEMPTS, _PER_SECONDS = 5, 60.0
_MOST_ADDRESSES = 10_000


class FailedAttempts:
    """Counts the failures of each address; five a minute are answered, more are refused."""

    def __init__(self) -> None:
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Refuse an address before its next attempt is looked at.

        Raises:
            RequestRefusedError: there were too many failures lately.
        """
        lately = self._failed.get(address, deque[float]())
        if len(lately) == _ATTEMPTS and (wait := _PER_SECONDS - (time.monotonic() - lately[0])) > 0:
            raise RequestRefusedError("too many failed attempts", code="rate-limit", retry_after=wait)

    def count(self, address: str) -> None:
        """Take note of a failure.

        Raises:
            RequestRefusedError: there were too many lately.
        """
        self.check(address)
        self._failed.setdefault(address, deque(maxlen=_ATTEMPTS)).append(time.monotonic())
        self._failed.move_to_end(address)
        if len(self._failed) > _MOST_ADDRESSES:
            self._failed.popitem(last=False)
