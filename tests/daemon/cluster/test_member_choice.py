"""Where a session may run, told from its record and the members: who, why not, and who first."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifierd.cluster.member_choice import choose, eligible, labels_of
from amplifierd.exceptions import NowhereToRunError
from amplifierd.settings import ClusterSettings
from amplifierd.store.postgres.members import Member
from amplifierd.store.record import SessionRecord


def machine(member_id: str = "m", host: str = "a", kind: str = "daemon", **facts: Any) -> Member:
    return Member(member_id, kind, host, pid=1, started=1.0, boot_id="b", address=None, version="1", **facts)


def session(scope: str = "host", host: str | None = "a", pool: str | None = None, **more: Any) -> SessionRecord:
    place = {"working_dir_scope": scope, "working_dir_host": host, "working_dir_pool": pool, "working_dir": "/srv/x"}
    return SessionRecord.model_validate({"session_id": "s", "created_at": "2026-01-01T00:00:00Z", **place, **more})


def shared(*paths: str, **labels: str) -> dict[str, Any]:
    return labels_of(ClusterSettings(labels=labels, shared_paths=tuple(map(Path, paths))))


REFUSED = {
    "another host": (session(), machine("m", host="b"), "the working directory is on a"),
    "another pool": (
        session("pool", pool="big"),
        machine("m", labels=shared(pool="small")),
        "the working directory is on the machines of the pool big, and it is in small",
    ),
    "no pool": (
        session("pool", pool="big"),
        machine("m", labels=shared("/srv")),
        "the working directory is on the machines of the pool big, and it is in none",
    ),
    "a path that is not shared": (
        session("shared", host="b"),
        machine("m", labels=shared("/srv/xx", "/mnt")),
        "it does not share /srv/x (cluster.shared_paths: /srv/xx, /mnt)",
    ),
    "nothing shared": (
        session("shared", host="b"),
        machine("m"),
        "it does not share /srv/x (cluster.shared_paths: none)",
    ),
    "draining": (session(), machine("m", state="draining"), "it is draining"),
    "fenced": (session(), machine("m", state="fenced"), "it is fenced"),
    "late": (session(), machine("m", is_leased=False), "its lease has expired"),
    "a command": (session(), machine("m", kind="command"), "it is not a daemon, but a command"),
}


@pytest.mark.parametrize(("record", "refused", "told"), REFUSED.values(), ids=list(REFUSED))
def test_a_member_is_refused_with_the_reason(record: SessionRecord, refused: Member, told: str) -> None:
    with pytest.raises(NowhereToRunError) as caught:
        choose(record, [refused])

    assert caught.value.reasons == {f"{refused.host} (m)": told}
    assert caught.value.message.endswith(f"\n  {refused.host} (m): {told}")


def test_without_members_that_is_said() -> None:
    with pytest.raises(NowhereToRunError, match="cannot run on any machine: there are none"):
        choose(session(), [])


@pytest.mark.parametrize(
    ("record", "able"),
    [
        (session(), {"a1", "a2"}),
        (session(host=None), {"a1", "a2", "b1"}),
        (session("pool", pool="big"), {"a2", "b1"}),
        (session("shared", host="gone"), {"a1", "b1"}),
    ],
    ids=["host", "a host that is not known", "pool", "shared"],
)
def test_those_may_run_it_that_have_its_directory(record: SessionRecord, able: set[str]) -> None:
    machines = [
        machine("a1", labels=shared("/srv/x")),
        machine("a2", labels=shared("/mnt", pool="big")),
        machine("b1", host="b", labels=shared("/", pool="big")),
    ]

    assert {member.member_id for member in eligible(record, machines).members} == able


def test_the_least_busy_one_is_first() -> None:
    busy = machine("busy", load={"turns": 3, "sessions": 3})
    full = machine("full", load={"turns": 1, "sessions": 900})
    idle = machine("idle", load={"turns": 1, "sessions": 20})
    assert [member.member_id for member in eligible(session(), [busy, full, idle]).members] == ["idle", "full", "busy"]

    assert choose(session(), [busy, full, idle]) == idle


def test_many_sessions_at_once_are_spread_and_never_go_to_the_busier_half() -> None:
    members = [machine(f"m{number}", load={"turns": number // 2}) for number in range(20)]

    chosen = [choose(session(session_id=f"s{number}"), members).member_id for number in range(500)]

    assert {*chosen} == {f"m{number}" for number in range(10)}
    assert max(map(chosen.count, chosen)) < 150
    again = [choose(session(session_id=f"s{number}"), members).member_id for number in range(500)]
    assert chosen == again


members = st.builds(
    machine,
    member_id=st.sampled_from([f"m{number}" for number in range(8)]),
    host=st.sampled_from(["a", "b"]),
    kind=st.sampled_from(["daemon", "command"]),
    state=st.sampled_from(["active", "draining", "fenced", "left"]),
    is_leased=st.booleans(),
    labels=st.sampled_from([{}, shared("/srv"), shared(pool="big"), {"shared_paths": None}]),
    load=st.sampled_from([{}, {"turns": 2}, {"turns": None, "sessions": 5}]),
)
records = st.builds(session, st.sampled_from(["host", "pool", "shared"]), st.sampled_from([None, "a", "b"]))


@given(records, st.lists(members, unique_by=lambda member: member.member_id))
def test_every_member_is_either_chosen_from_or_refused_with_a_reason(
    record: SessionRecord, machines: list[Member]
) -> None:
    found = eligible(record, machines)

    assert len(found.members) + len(found.refused) == len(machines)
    assert all(found.refused.values())
