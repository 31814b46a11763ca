"""Programs that can change only what they may.

`confinement` says what a program may see and do, `permissions` derives that from a session's policy. `availability`
finds out whether there is a sandbox at all; `bubblewrap` and `seatbelt` put a confinement into its words; `mounts` and
`whiteouts` decide what is mounted where, and `syscall_filter` closes what namespaces leave open. `limits` bounds
memory, processes and time. `program` runs a program in a sandbox or without, and ends it with everything it started;
`namespace` knows what lives in a sandbox, and `watch` takes a sandbox down when this process is killed. `proxy`
lets a program without a network reach the hosts that it may.
"""
