"""For context managers: a context that keeps everything and shows a request what fits.

`compacting` holds the context and `settings` its configuration. It shows a `compacted_view` of `groups` of `units`;
when that grows too large, an `escalation` chooses among the `candidates` what is cut, `shortening` makes messages
shorter, `notice` tells the model, and `token_budget` says what is too large.
"""
