"""Messages as they are stored and sent: their shapes, the tool calls and results in them, and their size in tokens.

`conversation` reads responses and makes messages, `tool_pairs` tells which message answers which call, `stored` says
what a history keeps, `token_estimate` measures. All other rooms use this one, and some modules do.
"""
