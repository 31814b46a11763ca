"""Sessions on disk and in memory: reading, cutting, forking, diagnosing and finding them."""

from typing import TYPE_CHECKING

from amplifier_system.lazy_names import lazy_names

if TYPE_CHECKING:
    from .capabilities import WORKING_DIR_CAPABILITY, get_working_dir, set_working_dir
    from .diagnosis import (
        DiagnosisResult,
        IncompleteTurn,
        build_tool_index,
        diagnose_transcript,
        repair_transcript,
        rewind_transcript,
    )
    from .events import (
        count_events,
        get_event_summary,
        get_last_timestamp_for_turn,
        slice_events_for_fork,
        slice_events_to_timestamp,
    )
    from .finder import find_sessions, resolve_session, session_info
    from .fork import (
        ForkResult,
        fork_session,
        fork_session_in_memory,
        get_fork_preview,
        get_session_lineage,
        list_session_forks,
    )
    from .messages import (
        add_synthetic_tool_results,
        count_turns,
        find_orphaned_tool_calls,
        get_turn_boundaries,
        get_turn_summary,
        is_real_user_message,
        slice_to_turn,
    )
    from .store import (
        EVENTS_FILENAME,
        METADATA_FILENAME,
        TRANSCRIPT_FILENAME,
        backup,
        load_metadata,
        load_transcript,
        load_transcript_with_lines,
        read_jsonl,
        write_jsonl,
        write_metadata,
        write_transcript,
    )

__all__ = [
    "EVENTS_FILENAME",
    "METADATA_FILENAME",
    "TRANSCRIPT_FILENAME",
    "WORKING_DIR_CAPABILITY",
    "DiagnosisResult",
    "ForkResult",
    "IncompleteTurn",
    "add_synthetic_tool_results",
    "backup",
    "build_tool_index",
    "count_events",
    "count_turns",
    "diagnose_transcript",
    "find_orphaned_tool_calls",
    "find_sessions",
    "fork_session",
    "fork_session_in_memory",
    "get_event_summary",
    "get_fork_preview",
    "get_last_timestamp_for_turn",
    "get_session_lineage",
    "get_turn_boundaries",
    "get_turn_summary",
    "get_working_dir",
    "is_real_user_message",
    "list_session_forks",
    "load_metadata",
    "load_transcript",
    "load_transcript_with_lines",
    "read_jsonl",
    "repair_transcript",
    "resolve_session",
    "rewind_transcript",
    "session_info",
    "set_working_dir",
    "slice_events_for_fork",
    "slice_events_to_timestamp",
    "slice_to_turn",
    "write_jsonl",
    "write_metadata",
    "write_transcript",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".capabilities": ("WORKING_DIR_CAPABILITY", "get_working_dir", "set_working_dir"),
        ".diagnosis": (
            "DiagnosisResult",
            "IncompleteTurn",
            "build_tool_index",
            "diagnose_transcript",
            "repair_transcript",
            "rewind_transcript",
        ),
        ".events": (
            "count_events",
            "get_event_summary",
            "get_last_timestamp_for_turn",
            "slice_events_for_fork",
            "slice_events_to_timestamp",
        ),
        ".finder": ("find_sessions", "resolve_session", "session_info"),
        ".fork": (
            "ForkResult",
            "fork_session",
            "fork_session_in_memory",
            "get_fork_preview",
            "get_session_lineage",
            "list_session_forks",
        ),
        ".messages": (
            "add_synthetic_tool_results",
            "count_turns",
            "find_orphaned_tool_calls",
            "get_turn_boundaries",
            "get_turn_summary",
            "is_real_user_message",
            "slice_to_turn",
        ),
        ".store": (
            "EVENTS_FILENAME",
            "METADATA_FILENAME",
            "TRANSCRIPT_FILENAME",
            "backup",
            "load_metadata",
            "load_transcript",
            "load_transcript_with_lines",
            "read_jsonl",
            "write_jsonl",
            "write_metadata",
            "write_transcript",
        ),
    },
)
