"""What the library raises on purpose, sorted by who can act. References that lead nowhere are the foundation's
`RefResolutionError`.

AmplifierError
├── ProfileError                          anything about one profile
│   ├── ProfileNotFoundError                caller: there is no profile of that id
│   ├── ProfileValidationError              author of the profile: carries every issue found
│   │   └── ProfileCircularInheritanceError   author: profiles extend each other
│   └── ProfileCompilationError             author or network: the build could not be made; `code` says why
├── CollectionError                       owner of the home: a collection cannot be registered, found or read
├── MountPlanError                        author of the plan: carries every issue found
├── AgentNotFoundError (ValueError)       caller: the plan has no such agent
├── ProviderNotInPlanError (ValueError)   caller: the plan has no such provider
├── FormatUnsupportedError                owner of the home: a newer version wrote the file
├── SettingsError                         owner of the home: the settings file or a variable is invalid
│   └── InvalidSettingError                 owner of the home: a value cannot be used
├── AccessError                           caller of the daemon
│   ├── UnauthorizedError                   caller: it did not say who it is, or not credibly
│   ├── ForbiddenError                      caller: it may not do this
│   ├── TokenNotFoundError                  caller: there is no token of that name
│   └── TokenExistsError                    caller: the name is taken
├── RequestRefusedError                   caller: the request cannot be taken on; `code` says why
├── IdempotencyError                      caller: the key of the request was used before
│   ├── IdempotencyConflictError            for another request
│   └── RequestInterruptedError             for a request whose end the daemon did not live to see
├── OperationError                        anything about one operation
│   ├── OperationNotFoundError              caller: there is no operation of that id
│   ├── OperationFinishedError              caller: it is over
│   └── OperationCancelledError             caller: someone cancelled it
├── NotReadyError                         caller: the daemon comes up or goes down, or a worker process ended
├── MemberError                           operator: another member of the cluster cannot be reached
│   └── MemberUntrustedError                someone else answers there, or this one is not taken for a member
├── HomeInUseError                        owner of the home: another daemon serves it
├── UnsafeBindError                       owner of the home: strangers could reach the daemon that way
├── PortInUseError                        owner of the home: another program listens there
├── CheckpointError                       owner of the working directory: a snapshot or an undo is not possible
│   └── SnapshotRefusedError                this directory is never snapshotted; the message says why
├── TrustError                            caller: such a directory cannot be trusted
├── AgreementNeededError                  person: a plan from elsewhere would give keys or variables to its modules
├── RemoteError                           us: another process failed; carries the problem that it described
├── SessionError                          anything about one session
│   ├── SessionNotFoundError                caller: there is no session of that id
│   ├── SessionExistsError                  caller: the id is taken
│   ├── SessionDamagedError                 owner of the home: what is stored of it cannot be read
│   ├── InvalidSessionIdError (ValueError)  caller: the id breaks the rules
│   ├── InvalidLimitsError (ValueError)     caller: limits that cannot be read
│   ├── InvalidTurnError (ValueError)       caller: the session has no such turn
│   ├── InvalidMessageError (ValueError)    caller: a conversation cannot have such a message
│   ├── SessionStateError                   caller: the session's state does not allow it
│   │   └── SessionNameError                caller: a session cannot have this name
│   ├── SessionHeldError                    another process holds it; carries the holder
│   ├── HoldLostError                       another process took it over in the meantime
│   ├── SessionImportError                  sender of the file: it was changed, damaged or is not an export
│   ├── StoreFullError                      operator: there is no room left where the sessions are kept
│   ├── StoreUnavailableError               operator: the database of the sessions cannot be used at the moment
│   │   ├── StoreClosedError                  us: this process has closed it already
│   │   └── OutcomeUnknownError               operator: it went away during a write, which may have taken effect
│   ├── MemberFencedError                   us: others count this process as gone; its sessions are theirs
│   ├── NowhereToRunError                   operator: no machine may run the session; carries each one's reason
│   ├── StoredRequestNotFoundError          caller: no such request was sent to a model
│   ├── ReplayError                         caller: the record does not suffice to run the session again
│   └── MountPlanMissingError               owner of the home: its plan is gone
├── ApprovalError                         anything about a question of a session
│   ├── ApprovalNotFoundError               caller: there is no question of that id
│   ├── ApprovalAlreadyResolvedError        caller: it has its answer
│   ├── ApprovalExpiredError                caller: it was not answered in time
│   └── ApprovalDecisionError (ValueError)  caller: the answer is not one of its options
├── TooManySubscribersError               caller: as many clients watch events as may
└── ExecutionError                        a turn could not be run
    ├── ExecutionInProgressError            caller: one turn at a time
    ├── QueueFullError                      caller: too many prompts wait
    ├── PromptRemovedError                  caller: the prompt was taken out of the queue
    ├── TurnDeadlineError                   caller: the turn did not begin in time
    ├── TurnTimeoutError                    caller: the turn took too long (also a TimeoutError)
    ├── NothingToSteerError                 caller: no turn is running
    ├── SteeringUnsupportedError            author of the loop: it takes no steering
    ├── TurnFailedError                     the one whom the problem of the turn names
    └── BudgetExhaustedError                owner of the session: a limit is reached
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from amplifier_core.exceptions import AmplifierError
from amplifier_core.exceptions import MountPlanError as KernelMountPlanError
from amplifier_foundation.exceptions import RefResolutionError

if TYPE_CHECKING:
    from .issues import Issue

__all__ = [
    "AccessError",
    "AgentNotFoundError",
    "ApprovalAlreadyResolvedError",
    "ApprovalDecisionError",
    "ApprovalError",
    "ApprovalExpiredError",
    "ApprovalNotFoundError",
    "BudgetExhaustedError",
    "CheckpointError",
    "CollectionError",
    "ExecutionError",
    "ExecutionInProgressError",
    "ForbiddenError",
    "FormatUnsupportedError",
    "HoldLostError",
    "HomeInUseError",
    "IdempotencyConflictError",
    "IdempotencyError",
    "InvalidLimitsError",
    "InvalidMessageError",
    "InvalidSessionIdError",
    "InvalidSettingError",
    "InvalidTurnError",
    "MemberError",
    "MemberFencedError",
    "MemberUntrustedError",
    "MountPlanError",
    "MountPlanMissingError",
    "NotReadyError",
    "NothingToSteerError",
    "NowhereToRunError",
    "OperationCancelledError",
    "OperationError",
    "OperationFinishedError",
    "OperationNotFoundError",
    "OutcomeUnknownError",
    "PortInUseError",
    "ProfileCircularInheritanceError",
    "ProfileCompilationError",
    "ProfileError",
    "ProfileNotFoundError",
    "ProfileValidationError",
    "PromptRemovedError",
    "ProviderNotInPlanError",
    "QueueFullError",
    "RefResolutionError",
    "RemoteError",
    "ReplayError",
    "RequestInterruptedError",
    "RequestRefusedError",
    "SessionDamagedError",
    "SessionError",
    "SessionExistsError",
    "SessionHeldError",
    "SessionImportError",
    "SessionNameError",
    "SessionNotFoundError",
    "SessionStateError",
    "SettingsError",
    "SnapshotRefusedError",
    "SteeringUnsupportedError",
    "StoreClosedError",
    "StoreFullError",
    "StoreUnavailableError",
    "StoredRequestNotFoundError",
    "TokenExistsError",
    "TokenNotFoundError",
    "TooManySubscribersError",
    "TrustError",
    "TurnDeadlineError",
    "TurnFailedError",
    "TurnTimeoutError",
    "UnauthorizedError",
    "UnsafeBindError",
]


class ProfileError(AmplifierError):
    """Something is wrong with one profile."""


class ProfileNotFoundError(ProfileError):
    """There is no profile of that id."""


class ProfileValidationError(ProfileError):
    """A profile breaks rules; `issues` has all of them, warnings included."""

    def __init__(self, message: str, issues: Sequence[Issue] = (), *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.issues = tuple(issues)


class ProfileCircularInheritanceError(ProfileValidationError):
    """Profiles extend each other in a circle."""


class ProfileCompilationError(ProfileError):
    """A profile could not be built; the previous build, if any, is untouched. `code` is a stable word."""

    def __init__(
        self, message: str, *, code: str = "compile-failed", problems: Sequence[str] = (), hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.problems = tuple(problems)


class CollectionError(AmplifierError):
    """A collection cannot be registered, found or read. `code` is a stable word."""

    def __init__(self, message: str, *, code: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class MountPlanError(KernelMountPlanError):
    """A mount plan breaks rules; `issues` has all of them."""

    def __init__(self, message: str, issues: Sequence[Issue] = (), *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.issues = tuple(issues)


class AgentNotFoundError(AmplifierError, ValueError):
    """A plan has no agent of that name."""


class ProviderNotInPlanError(AmplifierError, ValueError):
    """A plan has no provider of that name, or none at all."""


class FormatUnsupportedError(AmplifierError):
    """A stored file has a newer format than this version reads; it was left as it is."""


class SettingsError(AmplifierError):
    """The settings file or a variable of the environment is invalid; the message names the key."""


class InvalidSettingError(SettingsError):
    """A setting has a value that cannot be used, or there is no such setting; the message names the key."""


class AccessError(AmplifierError):
    """A caller of the daemon is refused, or a token is not there."""


class UnauthorizedError(AccessError):
    """A caller did not say who it is, or not credibly."""


class ForbiddenError(AccessError):
    """A caller may not do what it asks for."""


class TokenNotFoundError(AccessError):
    """There is no token of that name."""


class TokenExistsError(AccessError):
    """There is a token of that name already."""


class RequestRefusedError(AmplifierError):
    """A request cannot be taken on; `code` is a stable word of the table of problems."""

    def __init__(self, message: str, *, code: str, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code, self.retry_after = code, retry_after


class IdempotencyError(AmplifierError):
    """The key of a request was used before."""


class IdempotencyConflictError(IdempotencyError):
    """The key belongs to another request."""


class RequestInterruptedError(IdempotencyError):
    """The daemon ended while it worked on the first request with this key; what came of it is not known."""


class OperationError(AmplifierError):
    """Something is wrong with an operation."""


class OperationNotFoundError(OperationError):
    """There is no operation of that id."""


class OperationFinishedError(OperationError):
    """The operation is over and cannot be cancelled."""


class OperationCancelledError(OperationError):
    """The operation was cancelled before it was done."""


class NotReadyError(AmplifierError):
    """It cannot be done at the moment: the daemon takes no new work, or the process that had the session has ended."""


class MemberError(AmplifierError):
    """Another member of the cluster cannot be reached, or was lost; one that `was_sent` a request may have done it."""

    def __init__(self, message: str, *, hint: str = "", was_sent: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.was_sent = was_sent


class MemberUntrustedError(MemberError):
    """One of the two does not know the cluster's token."""


class HomeInUseError(AmplifierError):
    """Another daemon serves the home."""


class UnsafeBindError(AmplifierError):
    """A daemon that listens there could be used by strangers; the message says what would make it safe."""


class PortInUseError(AmplifierError):
    """Another program listens at the address."""


class CheckpointError(AmplifierError):
    """A working directory could not be snapshotted, compared or brought back."""


class SnapshotRefusedError(CheckpointError):
    """A directory may not be snapshotted; the message says why."""


class TrustError(AmplifierError, ValueError):
    """A directory cannot be trusted, since everything of the user's would be."""


class RemoteError(AmplifierError):
    """Another process failed in a way that has no name; `problem` is the document that it gave."""

    def __init__(self, message: str = "", *, problem: Mapping[str, Any], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problem = dict(problem)


class SessionError(AmplifierError):
    """Something is wrong with one session."""


class SessionNotFoundError(SessionError):
    """There is no session of that id."""


class SessionExistsError(SessionError):
    """There is a session of that id already."""


class SessionDamagedError(SessionError):
    """What is stored of a session cannot be read; the message names the file."""


class InvalidSessionIdError(SessionError, ValueError):
    """A text is not the id of a session."""


class InvalidLimitsError(SessionError, ValueError):
    """What was given as limits of a session cannot be read as such."""


class InvalidTurnError(SessionError, ValueError):
    """A session has no such turn, or it cannot be used."""


class InvalidMessageError(SessionError, ValueError):
    """A message cannot be added to a conversation; the message says what it lacks."""


class SessionStateError(SessionError):
    """A session is in a state that does not allow what was asked for; the message names both."""


class SessionNameError(SessionStateError):
    """A session cannot have this name; the message says why."""


class SessionHeldError(SessionError):
    """Another process holds the session; `holder` says which, and `address` where its daemon is reached, if any."""

    def __init__(self, message: str, *, holder: Any = None, address: str | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.holder, self.address = holder, address


class HoldLostError(SessionError):
    """Another process took the session over in the meantime: nothing was written."""


class StoreFullError(SessionError):
    """There is no room left to write: no space, no quota or no inode. What was there stays as it was."""


class StoreUnavailableError(SessionError):
    """The sessions' store cannot be used at the moment; unless the class says otherwise, nothing was written."""


class StoreClosedError(StoreUnavailableError):
    """This process has closed the store, for good."""


class OutcomeUnknownError(StoreUnavailableError):
    """It is not known whether a write took effect: only one that is recognised may be given again."""


class MemberFencedError(SessionError):
    """Others count this process as gone, so that it holds no session any more and may take none."""


class NowhereToRunError(SessionError):
    """No machine that is there may run a session; `reasons` has that of each."""

    def __init__(self, message: str, *, reasons: Mapping[str, str], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reasons = dict(reasons)


class SessionImportError(SessionError):
    """A file of exported sessions is refused; nothing of it was stored."""


class StoredRequestNotFoundError(SessionError):
    """A session sent no request of that id to a model."""


class ReplayError(SessionError):
    """A session cannot be run again from its record; the message says what is missing."""


class MountPlanMissingError(SessionError):
    """The plan of a session is gone, so it cannot be resumed."""


class ApprovalError(AmplifierError):
    """Something is wrong with an answer to a question of a session."""


class ApprovalNotFoundError(ApprovalError):
    """There is no question of that id."""


class ApprovalAlreadyResolvedError(ApprovalError):
    """The question has its answer."""


class ApprovalExpiredError(ApprovalError):
    """The question was not answered in time, so its default was applied."""


class ApprovalDecisionError(ApprovalError, ValueError):
    """An answer is not one of the options of the question."""


class AgreementNeededError(AmplifierError):
    """A plan from elsewhere would give keys or variables to its modules; `agreements` are those that are missing."""

    def __init__(self, message: str, agreements: Sequence[Mapping[str, Any]], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.agreements = list(agreements)


class TooManySubscribersError(AmplifierError):
    """As many clients watch events as the daemon serves at a time."""


class ExecutionError(AmplifierError):
    """A turn could not be run."""


class ExecutionInProgressError(ExecutionError):
    """A turn is running, and a session has one at a time."""


class QueueFullError(ExecutionError):
    """As many prompts as the settings allow wait already."""


class PromptRemovedError(ExecutionError):
    """A prompt was taken out of the queue before its turn came."""


class TurnDeadlineError(ExecutionError):
    """A turn that had to begin by a certain time did not, and never will."""


class TurnTimeoutError(ExecutionError, TimeoutError):
    """A turn took longer than it may, and was ended."""


class NothingToSteerError(ExecutionError):
    """There is no running turn that a text could reach."""


class SteeringUnsupportedError(ExecutionError):
    """The session's orchestrator offers no `session.steer`."""


class TurnFailedError(ExecutionError):
    """A turn ran and did not complete; `problem` is the document that it left."""

    def __init__(self, problem: Mapping[str, Any], *, status: str) -> None:
        super().__init__(str(problem.get("detail") or f"the turn was {status}"))
        self.problem = dict(problem)


class BudgetExhaustedError(ExecutionError):
    """A limit of the session tree is reached; `limit`, `used` and `allowed` say which and how far.

    `unpriced_tokens` were used at prices that are not known, so no money was counted for them.
    """

    def __init__(
        self, message: str, *, limit: str, used: float, allowed: float, unpriced_tokens: int = 0, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.limit, self.used, self.allowed, self.unpriced_tokens = limit, used, allowed, unpriced_tokens
