"""What the kit and the foundation share about the operating system.

`files` writes what must survive a crash, `threads` runs blocking work that can be stopped, `tasks` awaits work to its
end, and `processes` runs programs and ends them with everything they started. This package lies at the bottom: it
imports the standard library only, and the kernel does not know it.
"""
