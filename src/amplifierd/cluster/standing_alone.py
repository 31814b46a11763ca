"""What is said of a daemon that is not part of a cluster."""

STANDS_ALONE = "this daemon is not part of a cluster: it keeps its sessions in files, which it shares with no other"
HOW_TO_JOIN = (
    "name the PostgreSQL that the daemons share in config/daemon.yaml (store: postgresql://user@host/database) and"
    " restart it, or start a cluster to try: amplifierd cluster try"
)
