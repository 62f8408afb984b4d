"""The nodes: containerd and kubelet of each, and what of the machine is theirs.

That is control groups, bridges and packet rules, mounts and GPUs: made here, and removed.
"""
