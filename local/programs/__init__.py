"""The programs that a cluster is made of: built from the Go modules in `go/`, or installed from Debian.

Where a bundle is in use both come from there.
"""
