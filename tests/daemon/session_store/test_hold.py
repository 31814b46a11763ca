"""Telling a process that is there from one that is gone, and from a later one with the same number."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys

import pytest

from amplifierd.store.hold import Holder, find_start, find_start_from_ps


def test_this_process_is_alive(me: Holder) -> None:
    assert me.is_alive()
    assert (me.pid, me.kind) == (os.getpid(), "test")


def test_a_later_process_with_the_same_number_is_another_one(me: Holder) -> None:
    assert not dataclasses.replace(me, started=me.started + 1).is_alive()


def test_a_process_that_ended_is_gone_even_before_it_is_reaped(me: Holder) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = find_start(child.pid)
    assert started is not None
    holder = dataclasses.replace(me, pid=child.pid, started=started)
    assert holder.is_alive()

    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert not holder.is_alive()
    child.communicate()
    assert not holder.is_alive()


def test_what_cannot_be_seen_from_here_is_taken_for_alive(me: Holder) -> None:
    assert dataclasses.replace(me, host="elsewhere", boot_id="x").is_alive()
    boot = me.boot_id.partition("/")[0]
    assert dataclasses.replace(me, boot_id=f"{boot}/pid:[1]", pid=2**22 + 1).is_alive()


def test_nothing_survives_a_restart_of_the_machine(me: Holder) -> None:
    assert not dataclasses.replace(me, boot_id="another/pid:[1]").is_alive()


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps")
def test_where_there_is_no_proc_the_system_is_asked() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    started = find_start_from_ps(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert started is not None
    assert find_start_from_ps(child.pid) is None
    child.communicate()
    assert find_start_from_ps(child.pid) is None
