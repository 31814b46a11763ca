"""For orchestrators: a complete turn, which a loop subclasses where it differs.

`turn` holds the loop and `orchestrator` the object around it; `settings` is what all loops share. The steps of a
turn have a file each: `requests`, `provider_choice`, `tool_calls`, `hook_points`, `announcements`, `transcript`,
`cancellation`, `turn_task` and `identifiers`. `scheduling` is for hooks that choose among tools.
"""
