"""Packets that get lost between pods."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.target import CHAIN, NoVictimError, Target, chosen, iptables

_PODS = "10.244.0.0/16"


@contextmanager
def packets_lost(target: Target, pick: float) -> Iterator[str]:
    """A share of all packets between a worker and anybody else."""
    pod = chosen(target.workers(), pick)
    address, share = pod["status"]["podIP"], 0.05 + 0.45 * (pick * 1000 % 1)
    chance = ("-m", "statistic", "--mode", "random", "--probability", f"{share:.3f}", "-j", "DROP")
    rules = [("-s", address, "-d", _PODS, *chance), ("-s", _PODS, "-d", address, *chance)]
    try:
        for rule in rules:
            iptables("mangle", "-A", CHAIN, *rule)
        yield f"{pod['metadata']['name']}, {share:.0%}"
    finally:
        for rule in rules:
            iptables("mangle", "-D", CHAIN, *rule, check=False)


@contextmanager
def unplugged(target: Target, pick: float) -> Iterator[str]:
    """A worker's network interface is down."""
    pod = chosen(target.workers(), pick)
    link = _interface(pod["status"]["podIP"])
    try:
        _run("ip", "link", "set", link, "down")
        yield f"{pod['metadata']['name']}, {link}"
    finally:
        subprocess.run(["ip", "link", "set", link, "up"], capture_output=True, check=False)  # it may be gone


def _interface(address: str) -> str:
    """The machine's end of a pod's cable: behind which port of its bridge the pod's hardware address was seen last."""
    neighbours = json.loads(_run("ip", "-json", "neighbour", "show", address) or "[]")
    hardware = {each.get("lladdr") for each in neighbours} - {None}
    for entry in json.loads(_run("bridge", "-json", "fdb", "show") or "[]"):
        if entry.get("mac") in hardware and str(entry.get("ifname", "")).startswith("veth"):
            return str(entry["ifname"])
    raise NoVictimError(f"no interface is known for {address}")


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
