"""One round of what `make soak` does to a cluster a hundred times: machines and databases fail while sessions work."""

from pathlib import Path

from cluster_gate import SCENES, Gate, play
from cluster_place import ClusterPlace
from cluster_tampering import unseen
from cluster_watcher import PATIENCE_S


async def test_nothing_is_lost_or_done_twice_whatever_fails(tmp_path: Path) -> None:
    async with ClusterPlace(seed=1) as place:
        gate = Gate(place)

        counted = await play(gate, SCENES, load=2, rest_s=4.0)

        assert counted["interrupted turns"] >= 3
        assert counted["completed turns"] > counted["interrupted turns"]
        assert len(gate.takeovers) == 3
        assert max(gate.takeovers) < PATIENCE_S  # within ten seconds, on a machine with nothing else to do: make soak
        taken_over = next(each.session_id for each in place.clients if each.session_id.startswith("power"))
        with place.databases.connect() as connection:
            assert not unseen(connection, place.folder, taken_over, tmp_path)
