"""What the modules share, so that no module imports another; the rooms match the contracts.

`messages` knows what a conversation consists of, `loops` is for orchestrators and schedulers, `contexts` for context
managers, `providers` for providers, `tools` for tools; in the `sandbox` programs run that may change little.

Beside the rooms lies what all of them use. `types` has the words of the contracts, and what modules of the ecosystem
mean without saying so; `config` reads a configuration, `mounting` deals with the coordinator, `files` writes what must
survive a crash, `client_slot` keeps the client of a service. `policy` is what a session may touch, `approval` and
`concerns` are about asking a person first.
"""
