"""The swap of the operators under load, without a kubelet: what the stock operator makes runs as processes."""
