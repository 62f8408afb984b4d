"""etcd, API server, controllers and CoreDNS: how each is started, as whom, where it listens, whether it is healthy.

Each program is described here as a part to keep running; `clusters` starts it.
"""
