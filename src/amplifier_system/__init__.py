"""What the kit and the foundation share about the operating system.

`files` writes what must survive a crash, `threads` runs blocking work that can be stopped, `tasks` awaits work to its
end and keeps loops running, `processes` runs programs and ends them with everything they started, which `process_table`
finds; `startup` is about a program's start, `urls` shows addresses without their secrets and knows public hosts from
private ones, `visible` shows text from outside, `policy` says what a session may touch of all that, and `model_choice`
which model does it. This package lies at the bottom: it imports the standard library only, and the kernel does not know
it.
"""
