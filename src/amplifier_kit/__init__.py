"""What the modules share, so that no module imports another.

For authors of orchestrators: `turn` and `orchestrator`. For authors of context managers: `compacting_context`. For
authors of providers: `provider_*`. For authors of tools: `tool_input`, `tool_paths`, `tool_runs`, `process_trees` and
`descriptors`. For authors of schedulers: `scheduling`. For everyone: `config`, `mounting` and `files`.
"""
