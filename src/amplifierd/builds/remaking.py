"""A build made again from its lock: the very same one, or none."""

from __future__ import annotations

from amplifierd.documents.inheritance import MergedProfile
from amplifierd.exceptions import ProfileCompilationError

from .build import Build
from .compilation import Compilation
from .fingerprints import Fingerprints
from .lock import ProfileLock, compute_build_id, platform_name, python_version
from .profile_catalogue import Roots
from .resources import find_wanted
from .staleness import Inspection, Reason
from .workshop import Workshop


async def remake(
    workshop: Workshop, merged: MergedProfile, roots: Roots, lock: ProfileLock, fingerprints: Fingerprints
) -> Build:
    """Make the build that a lock describes, beside the published one; the caller holds the lock of the profile.

    Raises:
        ProfileCompilationError: what is on this machine, or what its sources have now, makes another one.
    """
    _check_same(merged, lock)
    wanted = find_wanted(merged, roots, [key for key, _ in lock.resources()])
    missing = {key: "resource-missing" for key, entry in lock.resources() if entry["status"] == "ok"}
    reasons = tuple(Reason(code, "/".join(key)) for key, code in missing.items())
    if wanted.keys() != dict(lock.resources()).keys():
        raise _refused(merged, lock, "the collection has other agents")
    inspection = Inspection(None, lock, wanted, reasons, stale=missing)
    compilation = Compilation(workshop, merged, roots, inspection, fingerprints, frozen=True, only=lock.build_id)
    return await compilation.run()


def _check_same(merged: MergedProfile, lock: ProfileLock) -> None:
    made_for, here = (lock.data["python"], lock.data["platform"]), (python_version(), platform_name())
    if made_for != here:
        told = f"it was made for Python {made_for[0]} on {made_for[1]}, and this is Python {here[0]} on {here[1]}"
        raise _refused(merged, lock, told)
    if compute_build_id(merged, lock.resources()) != lock.build_id:
        raise _refused(merged, lock, "the profile, one that it extends or its overlay is different here")


def _refused(merged: MergedProfile, lock: ProfileLock, why: str) -> ProfileCompilationError:
    text = f"build {lock.build_id} of profile {merged.profile_id} cannot be made here: {why}"
    return ProfileCompilationError(text, code="frozen", problems=[why])
