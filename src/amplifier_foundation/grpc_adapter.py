"""Not offered: it serves Python modules to a kernel with a native engine, and this kernel loads them itself."""

raise ImportError(
    "amplifier_foundation.grpc_adapter is not offered: it serves Python modules to a kernel with a native engine, and"
    " this kernel is written in Python and loads them itself; name the module in the mount plan",
    name=__name__,
)
