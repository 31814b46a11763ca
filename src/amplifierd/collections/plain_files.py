from __future__ import annotations

from amplifier_foundation.io.files import write_atomically
from amplifier_foundation.sources.store import make_directory, remove
from amplifierd.identifiers import ProfileId
from amplifierd.paths import Paths


def replace_profile_text(paths: Paths, profile_id: ProfileId, text: str) -> None:
    file = paths.profile_file(profile_id)
    make_directory(file.parent)
    write_atomically(file, text.encode())


def remove_profile(paths: Paths, profile_id: ProfileId) -> None:
    remove(paths.profile_dir(profile_id))
