"""Where each row of the daemon's rules for authentication and transport has a test that tries to break it.

A reader looks here for the row; the names are checked, so that none of them is lost when tests move.
"""

from __future__ import annotations

from pathlib import Path

import pytest

DAEMON = Path(__file__).parents[1]

ROWS = {
    "bind": ["control/test_serving.py::test_it_listens_on_a_unix_socket_that_only_its_owner_may_use"],
    "mode": [
        "http/test_authentication.py::test_the_first_start_makes_a_token_for_the_owner_alone",
        "http/test_authentication.py::test_a_trusted_proxy_says_who_the_user_is",
        "http/test_authentication.py::test_the_header_of_a_proxy_means_nothing_in_token_mode",
        "http/test_authentication.py::test_without_authentication_only_this_machine_is_served",
    ],
    "refusal": ["control/test_serving.py::test_where_strangers_could_use_it_it_does_not_listen"],
    "token": [
        "http/every_operation/test_callers.py::test_a_stranger_learns_nothing",
        "http/every_operation/test_callers.py::test_a_lesser_scope_is_refused",
        "http/every_operation/test_callers.py::test_what_belongs_to_somebody_else_is_not_there",
        "http/test_authentication.py::test_tokens_are_stored_hashed_and_shown_once",
        "http/test_authentication.py::test_a_revoked_token_is_worthless_at_once",
        "http/test_authentication.py::test_a_ticket_opens_one_stream_once",
    ],
    "public paths": [
        "http/test_authentication.py::test_even_what_is_not_there_needs_a_token",
        "http/test_authentication.py::test_the_documentation_needs_a_token_where_strangers_come_by",
    ],
    "client address": ["http/test_authentication.py::test_forwarded_addresses_are_read_from_right_to_left"],
    "host check": [
        "http/test_request_guard.py::test_a_name_that_was_bent_to_lead_here_is_refused",
        "http/every_operation/test_callers.py::test_pages_of_other_sites_are_refused",
    ],
    "origin check": [
        "http/test_request_guard.py::test_pages_of_other_origins_are_refused",
        "http/test_request_guard.py::test_a_cross_site_request_that_changes_something_is_refused",
        "http/test_request_guard.py::test_only_json_is_parsed",
    ],
    "cors": [
        "http/test_request_guard.py::test_pages_of_other_origins_are_refused",
        "http/test_request_guard.py::test_an_allowed_page_may_ask_what_it_may_send",
    ],
    "tls": ["control/test_serving.py::test_it_speaks_tls_with_a_certificate_of_its_own"],
    "headers": ["http/test_request_guard.py::test_every_answer_says_how_it_may_be_used"],
    "limits": [
        "http/test_request_guard.py::test_a_large_body_is_refused_whether_it_says_so_or_not",
        "http/test_request_guard.py::test_headers_are_bounded_and_those_that_decide_come_once",
        "http/test_authentication.py::test_failed_attempts_are_limited_and_a_good_token_still_works",
        "control/test_connections.py::test_so_many_connections_may_come_from_one_address",
        "control/test_connections.py::test_a_request_that_does_not_come_ends_its_connection",
        "control/test_connections.py::test_a_body_that_does_not_come_ends_its_request",
        "http/sessions/test_bounds.py::test_a_session_is_watched_by_so_many",
    ],
    "code execution": ["http/test_library_endpoints.py::test_code_comes_only_from_where_the_settings_allow"],
    "secrets": [
        "security/test_home.py::test_no_answer_of_the_daemon_has_a_secret",
        "security/test_home.py::test_no_file_has_a_secret_but_the_key_store",
        "security/test_home.py::test_another_user_reads_nothing_of_it",
        "http/test_system_endpoints.py::test_keys_go_in_and_do_not_come_out",
    ],
    "audit": [
        "security/test_home.py::test_the_audit_log_says_who_changed_what_and_when",
        "daemon/test_audit.py::test_a_full_file_makes_room_for_the_next",
    ],
    "path containment": ["http/every_operation/test_traversal.py::test_nothing_outside_is_read_or_written"],
}


@pytest.mark.parametrize("row", ROWS)
def test_the_tests_of_a_row_are_there(row: str) -> None:
    for test in ROWS[row]:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (DAEMON / file).read_text(), test
