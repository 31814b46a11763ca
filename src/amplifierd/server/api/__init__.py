"""The endpoints, one file per resource. A router reads the request, calls one service, and shapes the answer."""
