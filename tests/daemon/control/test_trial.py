"""`amplifierd cluster`: a cluster to try, and what it says of itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

AMPLIFIERD = [sys.executable, "-m", "amplifierd"]
PATIENCE_S = 120


def test_a_cluster_to_try_starts_says_who_is_there_and_ends_as_a_whole() -> None:
    environment = {**os.environ, "AMPLIFIERD_OFFLINE": "1"}
    command = [*AMPLIFIERD, "cluster", "try", "--members", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as trying:
        assert trying.stdout is not None
        told = [line.split() for line in islice(trying.stdout, 5)]
        assert len(told) == 5, told
        homes = [line[-1] for line in told[:2]]
        try:
            own = [*AMPLIFIERD, "--home", homes[1]]
            token = subprocess.run([*own, "token", "create", "ci"], capture_output=True, text=True, check=True)
            listed = subprocess.run([*AMPLIFIERD, "--home", homes[0], "token", "list"], capture_output=True)
            shown = subprocess.run([*own, "cluster", "status", "--json"], capture_output=True, check=True)
            drained = subprocess.run([*own, "cluster", "drain", "--wait"], capture_output=True, text=True)
        finally:
            trying.send_signal(signal.SIGINT)
        assert trying.wait(PATIENCE_S) == 0

    members = json.loads(shown.stdout)["members"]
    assert {member["address"] for member in members} == {line[2] for line in told[:2]}
    assert {member["state"] for member in members} == {"active"}
    assert token.stdout.startswith("amp_")
    assert b"ci  run" in listed.stdout
    assert "can be stopped" in drained.stdout
    assert not [home for home in homes if Path(home).exists()]
