"""What the modules share, so that no module imports another; the rooms match the contracts.

`messages` knows what a conversation consists of, `loops` is for orchestrators and schedulers, `contexts` for context
managers, `providers` for providers, `tools` for tools. Beside the rooms lies what all of them use: `config` and
`lenient_config` read a configuration, `mounting` deals with the coordinator, `files` writes what must survive a crash,
`log_views` tells data that was masked for logs, `client_slot` keeps the client of a service, and `undeclared` holds
what modules of the ecosystem mean without saying so.
"""
