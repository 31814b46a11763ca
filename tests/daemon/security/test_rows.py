"""Where each row of the daemon's rules for authentication and transport has a test that tries to break it.

A reader looks here for the row; the names are checked, so that none of them is lost when tests move.
"""

from __future__ import annotations

import ast
from functools import cache
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
    "cookies": [
        "http/test_login.py::test_the_cookie_is_for_the_browser_alone",
        "http/test_login.py::test_over_tls_the_cookie_is_secure",
        "http/test_login.py::test_a_cookie_changes_nothing_for_another_site",
        "http/test_login.py::test_a_cookie_shows_nothing_to_another_site",
        "http/test_login.py::test_a_second_cookie_of_the_name_makes_both_worthless",
        "http/test_login.py::test_a_damaged_file_means_logging_in_again",
        "http/test_login.py::test_a_login_ends_with_its_token",
    ],
    "tls": [
        "control/test_serving.py::test_it_speaks_tls_with_a_certificate_of_its_own_or_one_that_is_given",
        "control/test_serving.py::test_a_certificate_that_cannot_be_used_ends_it",
    ],
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
    "code execution": [
        "http/test_library_endpoints.py::test_code_comes_only_from_where_the_settings_allow",
        "security/test_home.py::test_the_audit_log_says_who_added_a_collection_and_not_with_which_password",
    ],
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


RULES = {
    *("bind", "mode", "refusal", "token", "public paths", "client address", "host check", "origin check", "cors"),
    *("cookies", "tls", "headers", "limits", "code execution", "secrets", "audit", "path containment"),
}


def test_every_rule_has_a_row() -> None:
    assert ROWS.keys() == RULES


@pytest.mark.parametrize("row", ROWS)
def test_the_tests_of_a_row_are_there_and_are_run(row: str, request: pytest.FixtureRequest) -> None:
    collected = {(item.path, getattr(item, "originalname", "")) for item in request.session.items}
    looked_into = {path for path, _ in collected} if has_all(request.config) else set()
    for test in ROWS[row]:
        file, _, name = test.partition("::")
        path = DAEMON / file
        assert name in names_in(path), test
        assert path not in looked_into or (path, name) in collected, test


def has_all(config: pytest.Config) -> bool:
    """Say whether every test of the files of this run was collected."""
    chosen = (config.option.keyword, config.option.markexpr, config.option.deselect, config.option.lf)
    return not any(chosen) and not any("::" in argument for argument in config.args)


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the tests of a file that are not always skipped."""
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not any(ast.unparse(each).startswith("pytest.mark.skip(") for each in node.decorator_list)
    )
