"""The daemons that share a store: who they are, how they are, and taking one of them out of service."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request
from pydantic import Field

from amplifierd.cluster.channel import Hello
from amplifierd.cluster.cluster_token import HOW_TO_JOIN, STANDS_ALONE
from amplifierd.cluster.member_request import HELLO
from amplifierd.exceptions import ForbiddenError, MemberError, RequestRefusedError
from amplifierd.server.auth.callers import carried
from amplifierd.server.auth.session_access import EventView
from amplifierd.server.daemon import Daemon
from amplifierd.server.events.event_watch import MemberWatch
from amplifierd.server.http.dependencies import Admin, TheDaemon, requires
from amplifierd.server.http.event_stream import EventStreamResponse
from amplifierd.server.http.member_gate import is_relayed, target_of
from amplifierd.server.http.models import Answer, Body, problems
from amplifierd.server.http.routers import api_router, root_router
from amplifierd.server.other_members import MEMBER

if TYPE_CHECKING:
    from amplifierd.cluster.cluster import Cluster

unversioned = root_router(tags=["cluster"])
router = api_router("/cluster", tags=["cluster"])

MemberId = Annotated[str, Path(max_length=200, description="the id of a member")]
Text = Annotated[str, Field(max_length=200)]


class Greeting(Body):
    """The first word of one member to another, which proves that it knows the cluster's token."""

    sender: Text
    receiver: Text
    nonce: Text
    proof: Text


class Welcome(Answer):
    channel_id: str
    nonce: str
    proof: str


class MemberInfo(Answer):
    """A daemon, or another program that holds sessions; `load` is what it said of itself last."""

    member_id: str
    is_self: bool
    kind: str
    host: str
    pid: int
    address: str | None
    version: str
    state: Literal["active", "draining", "late", "fenced", "left"]
    lease_seconds: float
    age_seconds: float
    holds: int
    labels: dict[str, Any]
    load: dict[str, Any]


class ClusterInfo(Answer):
    """`enabled` is false for a daemon that keeps its sessions in files and stands alone."""

    enabled: bool
    member_id: str | None
    members: list[MemberInfo]
    total: int


class Leaving(Answer):
    """A member that is taken out of service; it is `left` when it has no sessions left."""

    member_id: str
    state: Literal["draining"] = "draining"


class Fenced(Answer):
    member_id: str
    fenced: bool = Field(description="false if it was already gone")


@unversioned.post(HELLO, include_in_schema=False)
async def greet(daemon: TheDaemon, body: Greeting) -> Welcome:
    """Open a channel for another member."""
    if daemon.cluster is None:
        raise RequestRefusedError("this daemon is not part of a cluster", code="not-found")
    welcome = daemon.cluster.channels.welcome(Hello(**body.model_dump()))
    return Welcome(**asdict(welcome))


@router.get("", dependencies=[Depends(requires("read"))])
async def show_cluster(daemon: TheDaemon) -> ClusterInfo:
    """Show the daemons that share this one's sessions, and who else holds some of them."""
    cluster = daemon.cluster
    if cluster is None:
        return ClusterInfo(enabled=False, member_id=None, members=[], total=0)
    found = [
        MemberInfo(
            member_id=member.member_id,
            is_self=member.member_id == cluster.member_id,
            kind=member.kind,
            host=member.host,
            pid=member.pid,
            address=member.address,
            version=member.version,
            state="late" if member.state in ("active", "draining") and not member.is_leased else member.state,
            lease_seconds=member.lease_s,
            age_seconds=member.age_s,
            holds=member.holds,
            labels=dict(member.labels),
            load=dict(member.load),
        )
        for member in await cluster.view.look()
    ]
    return ClusterInfo(enabled=True, member_id=cluster.member_id, members=found, total=len(found))


@router.post("/members/{member_id}/drain", status_code=202, responses=problems(404, 502))
async def drain_member(daemon: TheDaemon, caller: Admin, request: Request, member_id: MemberId) -> Leaving:
    """Take a daemon out of service: it starts nothing new, ends its turns, and hands its sessions to the others."""
    cluster = _cluster(daemon)
    if member_id == cluster.member_id:
        daemon.draining.begin()
        return Leaving(member_id=member_id)
    to = next((to for to in cluster.view.daemons(beside=cluster.member_id) if to.member_id == member_id), None)
    if to is None or is_relayed(request):
        raise RequestRefusedError(f"there is no daemon {member_id!r}", code="member-not-found", hint="GET /cluster")
    found = carried(caller, request.state.address)
    async with cluster.peers.send(to, "POST", target_of(request.scope), caller=found) as response:
        if response.status_code != 202:
            raise MemberError(f"{to.address} answered with the status {response.status_code}")
    return Leaving(member_id=member_id)


@router.post("/members/{member_id}/fence", responses=problems(404), dependencies=[Depends(requires("admin"))])
async def fence_member(daemon: TheDaemon, member_id: MemberId) -> Fenced:
    """Shut out a member that no longer responds, before its lease ends; the others take over its sessions."""
    cluster = _cluster(daemon)
    if cluster.view.find(member_id) is None:
        raise RequestRefusedError(f"no member {member_id!r} is known", code="member-not-found", hint="GET /cluster")
    return Fenced(member_id=member_id, fenced=await cluster.store.members.fence(member_id, by_operator=True))


def _cluster(daemon: Daemon) -> Cluster:
    if daemon.cluster is None:
        raise RequestRefusedError(STANDS_ALONE, code="member-not-found", hint=HOW_TO_JOIN)
    return daemon.cluster


class StateInfo(Answer):
    session_id: str
    activity: str
    pending_approvals: list[dict[str, Any]]


class States(Answer):
    """What the sessions do that one daemon has at work."""

    states: list[StateInfo]


async def _member(request: Request) -> None:
    """A dependency: the request comes from another member, for itself."""
    if not is_relayed(request) or request.state.caller != MEMBER:
        raise ForbiddenError("only members of the cluster ask each other for this")


@router.get("/states", include_in_schema=False, dependencies=[Depends(_member)])
async def list_states(daemon: TheDaemon) -> States:
    """Tell another member what the sessions do that are at work here."""
    return States(
        states=[
            StateInfo(
                session_id=state.session_id,
                activity=state.activity,
                pending_approvals=[dict(approval) for approval in state.pending_approvals],
            )
            for state in daemon.live.states()
        ]
    )


@router.get("/events", include_in_schema=False, dependencies=[Depends(_member)], response_class=EventStreamResponse)
async def watch_member(
    daemon: TheDaemon, after: Annotated[str | None, Query(max_length=200)] = None
) -> EventStreamResponse:
    """Tell another member what happens here."""
    watch = MemberWatch(daemon.events, EventView(daemon.access, MEMBER), after)
    return EventStreamResponse(watch, daemon.home.settings.stream.keepalive_seconds)
