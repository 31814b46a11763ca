"""For providers: what all of them do alike, so that a provider is left with its vendor's wire format.

`vendor` is the provider in front of a vendor's own client, `settings` what all of these are configured with. Before a
call: `messages`, `tool_sequence`, `options`, `models` and `identity_cache`. During it: `call`, `gate`, `retry`,
`errors`, `stream` and `events`. After it: `response` and `cost`.
"""
