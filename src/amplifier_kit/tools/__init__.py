"""For tools: reading the input, staying within the allowed paths, and doing the work without blocking the session.

`answering` is a tool that always answers, `input` reads what a model gave and answers failures, `paths` and
`descriptors` keep to what is allowed, `effects` says what a tool does to the world, `runs` works in threads and
announces, and `processes` runs programs.
"""
