"""The faults by the names of their kinds. Each is a context: it begins, yields what it hit, and is undone at its end.

A fault has undone what it did when its context is left, whatever happened in between: it waits for an API server that
is away (`Target.undo`). Raises NoVictimError where there is nothing to hit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.chaos.faults import answers, api_server, network, nodes, operators, refusals, specs, workers
from tests.chaos.plan import BEHIND
from tests.chaos.target import Target

Fault = Callable[[Target, float], AbstractContextManager[str]]

FAULTS: dict[str, Fault] = {
    "operator killed": operators.killed,
    "all operators killed": operators.all_killed,
    "operator deleted": operators.deleted,
    "all operators deleted": operators.all_deleted,
    "operator frozen": operators.frozen,
    "leader changed": operators.leader_changed,
    "API server restarted": api_server.restarted,
    "API server killed": api_server.killed,
    "API server frozen": api_server.frozen,
    "etcd frozen": api_server.etcd_frozen,
    "requests answered 429": answers.too_many,
    "requests answered 500": answers.failing,
    "answers lost": answers.lost,
    "answers slow": answers.slow,
    "connections cut": answers.cut,
    "watches expired": answers.watches_expired,
    BEHIND: answers.watches_behind,
    "API server's clock stepped": answers.clock_stepped,
    "webhook away": refusals.webhook_away,
    "pods denied": refusals.pods_denied,
    "quota": refusals.quota,
    "node drained": nodes.drained,
    "kubelet frozen": nodes.kubelet_frozen,
    "kubelet restarted": nodes.kubelet_restarted,
    "node lost": nodes.lost,
    "worker killed": workers.killed,
    "worker deleted": workers.deleted,
    "worker without memory": workers.without_memory,
    "worker frozen": workers.frozen,
    "packets lost": network.packets_lost,
    "worker unplugged": network.unplugged,
    "image missing": specs.image_missing,
    "override": specs.override,
    "Service edited": specs.service_edited,
    "scheduler killed": workers.scheduler_killed,
    "scheduler deleted": workers.scheduler_deleted,
}
