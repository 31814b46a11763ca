"""Where our contract suites fail on the reference kernel, and the decision that explains each difference.

Decisions with a number are those of the specification; the others are improvements that keep existing modules working.
"""

ONE_CLASS = (
    "one class in Python for what the reference has twice: it can be derived from, inspected and given attributes"
)
D1 = "D1: a plan that is missing or lacks its parts is a ValueError, and any mapping will do"
D2 = "D2: the loader that a session is given is the one it uses"
D3 = "D3: errors of initialize() come through as they were raised"
D8 = "D8: `session` with a name is another spelling of the slot"
D10 = "D10: what no handler changed comes back as the emitter's own object"
D11 = "D11: payloads are handed on by reference, whatever they hold; only models at the top are dumped"
D12 = "D12: an answer that cannot be understood is a denial that is logged"
D14 = "D14: injections are limited by default, in bytes; the default limit leaves out and reports"
D15 = "D15: orchestrator and context may be written by name"
D18 = "D18: a tool's schema is optional and read in either spelling"
D19 = "D19: get_mounted() belongs to every coordinator"
D20 = "D20: protocols can be used with isinstance"
D24 = "D24: ToolResult(is_error=…) is understood"
D28 = "D28: an orchestrator is given the coordinator only if it takes one"
D31 = "D31: ToolCall.input reads the arguments"
HAS_HANDLERS = "improvement: has_handlers() tells an emitter whether somebody listens"
INTERRUPTIONS = "improvement: whoever waits can be cancelled, and the end of the process is not swallowed"
LOGGED = "improvement: what goes wrong, and what hooks ask for, is in the log under our own texts"
TOLERANT = "improvement: odd input is an answer or an error of ours, never an exception from inside"
CLEANUPS = "improvement: every cleanup runs once, also one registered meanwhile, and its error keeps its own text"
STATUS = "improvement: the status keeps the failures to load"
DISPLAY = "improvement: a display is called as its protocol says, and awaited when it is async"
REQUEST_IDS = "improvement: only a text can be a request id, and every request opens a call"
ERRORS = "improvement: every provider error takes the same keywords and can be copied"
CONTENT = "improvement: a tool result is checked and copied all through, and always has a text"
VALIDATOR = "improvement: the validator never raises, reads in a fixed order and shows no secret"
DISCOVERY = "improvement: discovery lists module folders only, and survives any of them"
INJECTORS = "improvement: find_injector() names the hook whose text went into one request only"
HOOKS_ASYNC = "improvement: emit is a coroutine function, and any callable is a handler"

DIFFERENCES: dict[str, dict[str, list[str]]] = {
    "cancellation": {
        LOGGED: ["test_a_callback_that_fails_is_logged_and_the_others_run"],
        INTERRUPTIONS: [
            "test_the_end_of_the_process_is_raised_after_the_last_callback",
            "test_cancelling_the_task_that_waits_is_not_swallowed",
        ],
    },
    "content_models": {},
    "coordinator": {
        D19: [
            "test_mount_points_can_be_changed_from_outside",
            "test_a_slot_holds_one_module_and_ignores_names",
            "test_a_collection_holds_modules_by_name",
            "test_mounting_a_name_again_replaces_in_place",
            "test_unmounting_takes_one_module_away",
            "test_hooks_are_registered_and_not_mounted",
            "test_other_keys_among_the_mount_points_are_inert",
            "test_an_unknown_mount_point_is_refused",
        ],
        ONE_CLASS: ["test_attributes_can_be_set", "test_a_subclass_may_have_another_constructor"],
        D14: ["test_injection_limits_come_from_the_plan"],
        D8: ["test_the_session_spelling_names_a_slot"],
        TOLERANT: ["test_the_summary_names_what_is_there"],
    },
    "coordinator_callbacks": {
        INTERRUPTIONS: [
            "test_cancelling_who_collects_is_not_swallowed",
            "test_cancelling_a_cleanup_lets_the_others_run",
        ],
        CLEANUPS: [
            "test_contributors_registered_meanwhile_wait_for_the_next_collection",
            "test_cleanups_run_once_last_one_first_whatever_kind_of_callable",
            "test_a_cleanup_registered_during_cleanup_runs_too",
            "test_a_cleanup_that_fails_is_logged_and_the_others_run",
            "test_an_interruption_is_raised_after_the_last_cleanup",
        ],
    },
    "correlation": {
        REQUEST_IDS: [
            "test_a_request_opens_a_call_with_a_new_id",
            "test_a_terminal_event_closes_the_call_in_flight",
            "test_an_interim_event_belongs_to_the_call_in_flight",
        ],
    },
    "emit_correlation": {
        REQUEST_IDS: [
            "test_an_id_that_is_no_text_is_replaced",
            "test_a_payload_that_is_no_dict_opens_a_call_all_the_same",
        ],
    },
    "events_and_capabilities": {},
    "hook_effects": {
        TOLERANT: [
            "test_nothing_to_inject_is_a_continue",
            "test_control_characters_and_lone_surrogates_are_removed",
            "test_a_result_from_an_older_release_has_no_list_of_items",
            "test_an_ephemeral_result_from_an_older_release_becomes_a_new_one",
        ],
        LOGGED: ["test_every_injection_is_logged"],
        INJECTORS: [
            "test_a_text_for_one_request_can_be_traced_to_its_hook",
            "test_only_the_latest_texts_are_remembered",
        ],
    },
    "hook_effects_limits": {
        D14: [
            "test_the_size_of_an_injection_is_limited_in_bytes",
            "test_one_item_that_is_too_large_prevents_every_effect",
            "test_the_default_limit_leaves_out_what_is_too_large_and_says_so",
            "test_more_tokens_than_the_budget_of_the_turn_are_a_warning_only",
            "test_limits_are_read_when_they_apply",
        ],
    },
    "hook_effects_user": {
        DISPLAY: ["test_a_message_is_shown_with_its_level_and_source"],
        LOGGED: [
            "test_an_error_of_the_display_is_logged_and_nothing_more",
            "test_without_a_display_a_message_is_logged_and_cut",
            "test_a_wish_to_suppress_output_is_only_noted",
        ],
    },
    "hooks": {
        HAS_HANDLERS: [
            "test_unregistering_by_name_removes_the_latest_registration_whatever_its_event_or_priority",
            "test_has_handlers_speaks_of_live_handlers_of_exactly_that_event",
            "test_listing_knows_every_event_ever_registered",
        ],
        HOOKS_ASYNC: [
            "test_anything_that_can_be_called_is_a_handler",
            "test_emitting_gives_a_coroutine_that_can_become_a_task",
        ],
    },
    "hooks_answers": {
        D10: [
            "test_a_denial_is_returned_as_it_is_and_later_handlers_never_run",
            "test_the_first_question_wins_over_later_ones_and_over_injections",
            "test_an_answer_of_a_derived_class_stays_the_object_it_is",
            "test_a_question_or_an_injection_carries_what_was_modified",
        ],
        D12: ["test_an_answer_that_cannot_be_understood_counts_as_a_denial"],
    },
    "hooks_collect": {
        D11: [
            "test_handlers_get_the_payload_and_nothing_else",
            "test_a_payload_that_is_no_dict_reaches_handlers_unchanged",
        ],
        INTERRUPTIONS: ["test_a_handler_that_raises_is_logged_and_skipped"],
        TOLERANT: ["test_no_time_out_means_no_limit"],
    },
    "hooks_data": {
        D11: [
            "test_a_payload_that_is_no_dict_reaches_handlers_unchanged",
            "test_values_are_handed_on_by_reference",
            "test_values_are_not_looked_into",
            "test_models_at_the_top_level_are_dumped_for_handlers_and_come_back_as_they_were",
            "test_values_that_json_cannot_hold_pass_unharmed",
            "test_without_handlers_the_payload_comes_back_and_nothing_is_added",
        ],
        D10: [
            "test_what_a_modifying_handler_leaves_equal_is_still_the_emitters_own_object",
            "test_what_a_modifying_handler_changes_is_what_the_emitter_gets",
            "test_a_dumped_model_that_a_handler_changed_in_place_is_not_replaced_by_the_original",
        ],
    },
    "interfaces": {
        D20: [
            "test_an_object_with_the_members_fulfils_the_contract",
            "test_an_object_that_lacks_a_member_does_not",
            "test_a_tool_may_offer_a_schema_but_need_not",
        ],
        D18: ["test_a_tool_that_inherits_the_contract_has_an_empty_schema_unless_it_has_one"],
    },
    "llm_errors": {
        ERRORS: [
            "test_the_message_is_the_text_and_the_facts_are_attributes",
            "test_an_error_survives_copying_and_pickling",
        ],
    },
    "message_models": {D31: ["test_the_arguments_of_a_tool_call_can_be_read_as_input_but_are_dumped_once"]},
    "models": {
        STATUS: [
            "test_a_model_has_its_fields_and_defaults",
            "test_unknown_fields_are_ignored",
            "test_two_instances_share_no_default",
            "test_a_session_status_starts_now_and_dumps_what_is_set",
        ],
        D24: ["test_a_tool_result_may_be_given_as_an_error"],
        CONTENT: [
            "test_any_other_currency_is_refused",
            "test_content_that_a_model_cannot_take_is_refused",
            "test_a_deep_copy_shares_nothing",
            "test_the_model_is_told_the_output_or_what_became_of_it",
            "test_hooks_are_shown_a_note_in_place_of_an_image",
            "test_hooks_see_three_keys_when_there_is_no_content",
        ],
    },
    "mount_plan_validator": {
        D15: [
            "test_each_mistake_is_one_error_with_its_own_message",
            "test_what_is_right_is_said_too",
            "test_unknown_sections_are_a_warning_with_their_names_in_order",
            "test_a_string_with_its_source_and_its_section_is_a_complete_spec",
            "test_the_summary_counts_checks_errors_and_warnings",
            "test_errors_are_formatted_as_a_numbered_list",
            "test_a_plan_without_errors_says_so",
            "test_a_plan_that_holds_itself_is_validated_like_any_other",
        ],
        VALIDATOR: [
            "test_keys_of_any_type_can_be_unknown_sections",
            "test_a_plan_is_read_in_a_fixed_order",
            "test_every_mistake_is_reported_at_once",
            "test_secrets_never_reach_a_message",
            "test_a_spec_nested_deeper_than_python_can_print_is_still_reported",
            "test_a_plan_that_cannot_be_read_is_an_error_not_an_exception",
            "test_a_spec_that_cannot_be_printed_is_still_reported",
            "test_nothing_makes_the_validator_raise",
        ],
    },
    "session": {
        D1: [
            "test_a_plan_without_the_required_parts_is_refused_at_construction",
            "test_any_mapping_will_do_as_a_plan",
        ],
        ONE_CLASS: [
            "test_arguments_are_taken_by_position_in_their_documented_order",
            "test_a_session_without_an_id_gets_a_uuid",
            "test_a_given_id_is_used_verbatim",
            "test_a_new_session_is_running_and_not_initialized",
            "test_a_subclass_works_like_the_class_itself",
            "test_public_coroutines_are_coroutine_functions",
            "test_a_coordinator_put_in_place_of_the_first_is_the_one_that_is_used",
        ],
        D2: [
            "test_initializing_twice_loads_once",
            "test_concurrent_calls_of_initialize_load_once_and_all_find_the_session_ready",
            "test_the_sessions_loader_is_handed_to_the_coordinator",
            "test_a_loader_assigned_to_the_session_replaces_its_own",
            "test_a_loader_assigned_to_the_coordinator_is_kept_and_the_session_follows",
            "test_a_loader_given_to_the_session_beats_one_assigned_to_the_coordinator",
            "test_a_session_without_a_loader_gets_one_and_gives_its_paths_back",
        ],
        D3: ["test_a_failed_initialize_leaves_the_session_uninitialized_and_can_be_repeated"],
        D28: [
            "test_a_cancelled_initialize_leaves_the_session_uninitialized_and_usable",
            "test_a_child_session_shares_what_the_application_gives_it",
        ],
    },
    "truncate": {},
    "discovery": {
        DISCOVERY: [
            "test_discovery_lists_what_cannot_be_imported_by_its_id",
            "test_discovery_looks_at_module_folders_only",
        ],
    },
}
