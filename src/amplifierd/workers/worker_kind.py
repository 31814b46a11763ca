"""Which sessions may share a process: those that run the same code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from amplifier_core.mount_plan import MountPlan
from amplifierd.session_store.record import SessionRecord


def worker_kind(record: SessionRecord, plan: Mapping[str, Any]) -> str:
    """Return what a session's worker serves: a build, a bundle, or the sources of a plan."""
    if record.profile_name is not None:
        return f"{record.profile_name}@{record.build_id}"
    if record.bundle is not None:
        return f"bundle {record.bundle}"
    sources = sorted({json.dumps([entry.module_id, entry.source], default=str) for entry in MountPlan(plan).entries()})
    return f"plan {hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:12]}"
