"""Messages as they are stored and sent: their shapes, the tool calls and results in them, and their size in tokens.

`conversation` reads responses and makes messages, `results` gives the text of a tool's result, `tool_pairs` keeps
results with their calls, `stored` says what a history keeps, `token_estimate` measures. All other rooms use this one,
and some modules do. The calls and results themselves are read by the kernel's `utils.tool_messages`.
"""
