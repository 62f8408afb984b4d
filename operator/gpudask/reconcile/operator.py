"""The operator's parts, put together from the settings: clients, caches, election and the registry of loops."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from gpudask.api import Json
from gpudask.api.resource import (
    API_VERSION,
    CRON_JOB_KIND,
    CRON_JOB_PLURAL,
    JOB_KIND,
    JOB_PLURAL,
    LABEL_CLUSTER,
    LABEL_JOB,
    LABEL_PRELOAD,
)
from gpudask.clients.clock import Clock
from gpudask.clients.errors import ApiError
from gpudask.clients.events import EventRecorder
from gpudask.clients.kubernetes import Kubernetes
from gpudask.clients.lease import Lease
from gpudask.clients.reflector import Caches, Reflector
from gpudask.clients.scheduler import SchedulerClient
from gpudask.clients.transport import ApiServer
from gpudask.heap import Heap
from gpudask.jobs.runner_pods import parse_runner_pod
from gpudask.metrics.operator import Metrics
from gpudask.metrics.server import EventLoopLag, MetricsServer, Options
from gpudask.mirror.definitions import DefinitionsWatcher
from gpudask.mirror.objects import API_VERSION as MIRROR_API_VERSION
from gpudask.mirror.state import observe_mirror
from gpudask.planning.observed.parser import parse_pod
from gpudask.planning.observed.pods import Pod
from gpudask.preload import files
from gpudask.reconcile.context import Context, merge_pods
from gpudask.reconcile.drift_repair import KINDS, observe_owned
from gpudask.reconcile.election import Election
from gpudask.reconcile.jobs.cron.registry import CronJobRegistry
from gpudask.reconcile.jobs.registry import JobRegistry, observe_cron_job, observe_job
from gpudask.reconcile.loop import Registry
from gpudask.reconcile.preload_configmaps import Preloads, observe_shared
from gpudask.reconcile.records.keeper import RecordKeeper
from gpudask.reconcile.records.store import Records
from gpudask.reconcile.served_schema import ServedSchema, require_resource
from gpudask.reconcile.supervisor import Supervisor
from gpudask.settings import Settings

_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = 3.0
# The Lease is renewed or read every second: without an answer for so long the API server is unavailable.
_UNANSWERED_SECONDS = 60.0
# At least so long between two checks of the mirror's definitions.
_MIN_CHECK_INTERVAL_SECONDS = 5.0
_KEY = "key"
_KEY_BYTES = 16


class KeyRefusedError(Exception):
    """The Secret with the operator's key has no usable one; the message says what to do."""


class Operator:
    """Everything that runs beside kopf. `check_interval_seconds`: between two checks for a mirror's definitions.

    `heap`: of the process, where this operator has one to itself.
    """

    def __init__(self, settings: Settings, *, check_interval_seconds: float = 60.0, heap: Heap | None = None) -> None:
        self.settings = settings
        self.registry = Registry()
        self.jobs = JobRegistry(self.registry)
        self.cron_jobs = CronJobRegistry(self.jobs)
        self.registry.on_cluster = self.jobs.cluster_changed
        self.registry.find_job, self.jobs.on_job = self.jobs.find, self.registry.wake_serving
        self.supervisor = Supervisor()
        self.schema = ServedSchema()
        self.cannot_start = ""  # what somebody has to fix before it can start
        # Set when all that this process knows may have been undone, so that only a restart helps.
        self.must_restart = asyncio.Event()
        self._context: Context | None = None
        self._records: Records | None = None
        self._mirror: DefinitionsWatcher | None = None
        self._check_interval_seconds = check_interval_seconds
        self._heap = heap
        self._election: Election | None = None
        self.election_clock: Callable[[], float] = time.monotonic  # by which a Lease that is not renewed runs out
        self._lease_api: ApiServer | None = None
        self._key_problem = ""  # why there is no key
        self._reflectors: list[Reflector[Any]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.metrics = Metrics(version=self.settings.version)
        self.metrics_server: MetricsServer | None = None
        self._exporting: list[asyncio.Task[None]] = []  # the tasks of the metrics, which run while it starts, too
        self._read_metrics()

    @property
    def synced(self) -> bool:
        """Whether the caches are as complete as the API server allows, and this operator stands for election."""
        return self._election is not None

    @property
    def leads(self) -> bool:
        """Whether this operator is the leader."""
        return self._election is not None and self._election.leads()

    def trouble(self) -> str:
        """Why this operator could not work as the leader; empty: it could."""
        if self._context is None or self._election is None:
            return "the caches are being filled"
        namespaces = self.settings.watch_namespaces
        if not any(self._context.knows(namespace) for namespace in namespaces or ("",)):
            return f"the API server refuses to list what is in {', '.join(namespaces) or 'the cluster'}: see the log"
        if self._key_problem:
            return self._key_problem
        unanswered = self._election.unanswered_seconds()
        if unanswered > _UNANSWERED_SECONDS:
            return f"the API server has not answered for {unanswered:.0f} s"
        return ""

    def defects(self) -> list[str]:
        """The names of tasks that ended, which is a defect: only a restart helps."""
        watches = self._mirror.tasks if self._mirror is not None else []
        return [task.get_name() for task in (*self._tasks, *watches) if task.done()]

    @property
    def unreadable(self) -> int:
        """The number of objects that cannot be read; the log names them."""
        mirrored = self._mirror.reflectors if self._mirror is not None else []
        return sum(reflector.unreadable for reflector in (*self._reflectors, *mirrored))

    def notes(self) -> list[str]:
        """What somebody should mend, though the operator works: for its health page."""
        notes = [f"the resource definition lacks {field}" for field in self.schema.missing]
        if self._records is not None and (problem := self._records.problem):
            notes.append(problem)
        if self._mirror is not None and (refusal := self._mirror.definitions.refusal):
            notes.append(f"no mirror: {refusal}")
        return notes

    async def start(self) -> None:
        """Connect, fill the caches, and only then stand for election: in half a cache pods seem to be missing.

        That may take minutes, where the API server is unavailable or has a hundred thousand pods.

        Raises:
            ApiError: the API server refuses what the operator needs.
            ResourceMissingError: the CRD is not installed.
        """
        self._export()
        api = await Kubernetes.connect(self.settings.kubeconfig or None)
        api.on_answer = self.metrics.count_request
        self.metrics.waiting_requests.set_function(lambda: float(api.waiting))
        try:
            await self._start(api)
        except BaseException:
            await self._end_tasks()  # kopf tries again, from the beginning
            await api.close()
            raise

    async def _start(self, api: Kubernetes) -> None:
        await require_resource(api, self.settings.watch_namespaces)
        await self.schema.read(api)
        self.metrics.clock = api.clock.now
        pods = self._caches(
            api,
            "Pod",
            "pods",
            parse_pod,
            metadata_only=False,
            merge=merge_pods(api.clock),
            on_gone=partial(self._pod_gone, api.clock),
        )
        dependents = {
            kind: self._caches(api, kind, plural, observe_owned(kind), metadata_only=True, version=version)
            for kind, (version, plural) in KINDS.items()
        }
        # With their contents, which have to match their names.
        preloads = self._caches(
            api,
            "PreloadConfigMap",
            "configmaps",
            observe_shared,
            metadata_only=False,
            label=LABEL_PRELOAD,
            on_change=self.registry.preloads_changed,
        )
        self._watch_jobs(api)
        every = [
            reflector
            for caches in (
                pods,
                preloads,
                *dependents.values(),
                self.jobs.jobs,
                self.jobs.runners,
                self.cron_jobs.cron_jobs,
            )
            for reflector in caches.reflectors
        ]
        self._reflectors = every
        self._tasks = [self._watch(reflector) for reflector in every]
        if self.settings.mirror:
            self._mirror = self._definitions_watcher(api)
            await self._mirror.check()
        await asyncio.gather(*(reflector.settled.wait() for reflector in every))
        _LOG.info("the caches are complete")
        # Connections of its own: the renewals of the Lease wait behind nothing else.
        self._lease_api = await ApiServer.connect(self.settings.kubeconfig or None)
        self._lease_api.clock = api.clock  # which hears the time from it while there is nothing else to ask
        identity = self.settings.identity or f"{socket.gethostname()}_{secrets.token_hex(4)}"
        self._lease_api.on_answer = self.metrics.count_request
        lease = Lease(self._lease_api, self.settings.namespace, self.settings.lease)
        election = Election(lease, identity, self._lead, self._stand_by, clock=self.election_clock)
        api.may_write = election.leads
        recorder = EventRecorder(api, socket.gethostname())
        recorder.on_record = self.registry.event_recorded
        self._records = records = self._make_records(api)
        self._context = Context(
            api=api,
            schedulers=SchedulerClient(election.leads),
            events=recorder,
            pods=pods,
            dependents=dependents,
            preloads=Preloads(api, preloads, files(), api.clock.now),
            runners=self.jobs.runners,
            job_waits_for=self.cron_jobs.waits_for,
            key=b"",
            clock=api.clock.now,
            server_ahead=api.clock.server_ahead,
            unanswered_at=api.clock.unanswered_at,
            wall_ahead=api.clock.wall_ahead,
            supervisor=self.supervisor,
            schema=self.schema,
            operator_namespace=self.settings.namespace,
            network_policies=self.settings.network_policies,
            limits=self.settings.limits,
            default_image=self.settings.default_image,
            metrics=self.metrics,
            attribution=self.settings.attribution,
            records=records,
        )
        self._election = election
        if self._heap is not None:
            self._tasks.append(self.supervisor.start(self._heap.run, kind="heap", name="of the process"))
        self._tasks.append(self.supervisor.start(election.run, kind="election", name=identity))
        follow = partial(self.schema.run, api)
        self._tasks.append(self.supervisor.start(follow, kind="schema", name="of the resource"))
        if records is not None:
            keeper = RecordKeeper(
                api,
                records,
                self.registry.has,
                election.leads,
                self.settings.watch_namespaces,
                knows_more=self.registry.knows_more,
                close_anew=self.registry.close_anew,
            )
            self._tasks.append(self.supervisor.start(keeper.run, kind="records", name="of all clusters"))
        if self._mirror is not None:
            self._tasks.append(self.supervisor.start(self._mirror.run, kind="schema", name="of the mirror"))

    def _pod_gone(self, clock: Clock, pod: Pod, since: float) -> None:
        """A pod of a cluster does not exist any more; `since`: as the reflector's."""
        self.metrics.jobs.pod_gone(pod.uid, self.metrics.clock())
        self.registry.pod_gone(replace(pod, there_at=max(since, clock.unanswered_at()) if since else 0.0))

    async def _lead(self) -> None:
        """Start all loops, once the operator's key is known."""
        assert self._context is not None, "only an operator with caches stands for election"
        while not self._context.key:
            try:
                self._context.key = await _operator_key(
                    self._context.api, self.settings.namespace, self.settings.key_secret
                )
            except (ApiError, KeyRefusedError) as error:
                self._key_problem = f"the operator's key: {error}"
                _LOG.warning("%s; trying again in %.0f s", self._key_problem, _RETRY_SECONDS)
                await asyncio.sleep(_RETRY_SECONDS)
        self._key_problem = ""
        self.registry.lead(self._context, self._mirror.definitions if self._mirror is not None else None)
        self.cron_jobs.lead(self._context)

    async def _stand_by(self) -> None:
        """End all loops."""
        await self.cron_jobs.stand_by()
        await self.registry.stand_by()

    def _watch_jobs(self, api: Kubernetes) -> None:
        """Make the caches of jobs, cron jobs, and runners' pods. Of a kind that is not installed there are none."""
        options: dict[str, Any] = {"metadata_only": False, "version": f"apis/{API_VERSION}", "label": ""}
        options["on_synced"] = self.cron_jobs.start_loops
        jobs: dict[str, Any] = options | {"on_change": self.cron_jobs.job_changed}
        self.jobs.jobs = self._caches(api, JOB_KIND, JOB_PLURAL, observe_job, **jobs)
        crons: dict[str, Any] = options | {"on_change": self.cron_jobs.cron_job_changed}
        self.cron_jobs.cron_jobs = self._caches(api, CRON_JOB_KIND, CRON_JOB_PLURAL, observe_cron_job, **crons)
        runners: dict[str, Any] = {
            "label": LABEL_JOB,
            "on_change": self.jobs.runner_changed,
            "on_delete": self.jobs.runner_deleted,
            "on_synced": self.jobs.start_loops,
        }
        self.jobs.runners = self._caches(api, "RunnerPod", "pods", parse_runner_pod, metadata_only=False, **runners)

    def _make_records(self, api: Kubernetes) -> Records | None:
        """The records of clusters; None where the settings want none."""
        if not self.settings.history.enabled:
            return None
        return Records(api, self.settings.history, lambda: api.clock.now() + api.clock.server_ahead())

    def _definitions_watcher(self, api: Kubernetes) -> DefinitionsWatcher:
        """The watcher of the mirror's definitions, which makes and runs the mirror's caches."""

        def make(kind: str, refused: Callable[[], None]) -> Caches:
            caches = Caches(
                [
                    Reflector(
                        api,
                        path,
                        label="",
                        reduce=observe_mirror(kind),
                        on_change=self.registry.mirror_changed,
                        on_delete=self.registry.mirror_deleted,
                        on_restore=self.must_restart.set,
                        on_refusal=refused,
                        on_listed=self.metrics.relists(kind),
                        clock=api.clock.now,
                    )
                    for path in self._paths(f"apis/{MIRROR_API_VERSION}", f"{kind.lower()}s")
                ]
            )
            self._watch_age(api, kind, caches)
            return caches

        return DefinitionsWatcher(
            api,
            make,
            self._watch,
            self.registry.wake_all,
            check_interval_seconds=self._check_interval_seconds,
            min_interval_seconds=min(_MIN_CHECK_INTERVAL_SECONDS, self._check_interval_seconds),
        )

    def _read_metrics(self) -> None:
        """Let the metrics that are read at a moment be those of this operator."""
        metrics = self.metrics
        metrics.leads = lambda: self.leads
        metrics.tasks_restarted = lambda: sum(self.supervisor.restarts.values())
        metrics.unreadable_objects.set_function(lambda: float(self.unreadable))
        metrics.waiting_passes.set_function(lambda: float(self._context.pass_queue.waiting if self._context else 0))

    def _export(self) -> None:
        """Serve the metrics from now on: what takes long at the start shows there."""
        port = self.settings.metrics_port
        if port is None or self._exporting:
            return
        options = Options(port, tls=self.settings.metrics_tls, token=self.settings.metrics_token)
        self.metrics_server = MetricsServer(self.metrics, options)
        lag = EventLoopLag()
        self.metrics.event_loop_lag.set_function(lambda: lag.seconds)
        self._exporting = [
            self.supervisor.start(self.metrics_server.run, kind="metrics", name="their port"),
            self.supervisor.start(lag.run, kind="metrics", name="lag of the event loop"),
        ]

    async def stop(self) -> None:
        """End all loops, release the Lease, and close the connections. Clusters stay as they are."""
        await self._end_tasks()
        await self._stand_by()
        await self.supervisor.stop()
        if self._context is not None:
            await self._context.schedulers.close()
            await self._context.api.close()
        if self._lease_api is not None:
            await self._lease_api.close()

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._mirror is not None:
            await self._mirror.stop()

    def _watch(self, reflector: Reflector[Any]) -> asyncio.Task[None]:
        return self.supervisor.start(reflector.run, kind="watch", name=reflector.path)

    def _caches(
        self,
        api: Kubernetes,
        kind: str,
        plural: str,
        reduce: Any,
        *,
        metadata_only: bool,
        version: str = "api/v1",
        **rest: Any,
    ) -> Caches:
        options: dict[str, Any] = {
            "label": LABEL_CLUSTER,
            "on_change": self.registry.owned_changed,
            "on_synced": self.registry.start_loops,
            **rest,
        }
        listed = self.metrics.relists(kind)
        caches = Caches(
            [
                Reflector(
                    api,
                    path,
                    reduce=reduce,
                    metadata_only=metadata_only,
                    on_restore=self.must_restart.set,
                    on_listed=listed,
                    clock=api.clock.now,
                    **options,
                )
                for path in self._paths(version, plural)
            ]
        )
        self._watch_age(api, kind, caches)
        return caches

    def _watch_age(self, api: Kubernetes, kind: str, caches: Caches) -> None:
        """Export since when what is known of `kind` was not confirmed; at first, since now."""
        now, began = api.clock.now, api.clock.now()
        self.metrics.reflector_age.labels(kind).set_function(
            lambda: max(0.0, now() - max(began, min(reflector.known_at for reflector in caches.reflectors)))
        )

    def _paths(self, version: str, plural: str) -> list[str]:
        """The paths at which objects are listed: of all namespaces, or of each watched one."""
        namespaces = self.settings.watch_namespaces
        return [f"/{version}/namespaces/{name}/{plural}" for name in namespaces] or [f"/{version}/{plural}"]


async def _operator_key(api: Kubernetes, namespace: str, name: str) -> bytes:
    """Get the key from which tokens are derived; created once, by the first leader.

    Raises:
        ApiError: the API server refuses, or could not be reached.
        KeyRefusedError: there is a Secret of that name, without a usable key.
    """
    path = f"/api/v1/namespaces/{namespace}/secrets"
    fresh = base64.b64encode(secrets.token_bytes(32)).decode()
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "gpudask"}},
        "data": {_KEY: fresh},
    }
    try:
        secret = await api.request("GET", f"{path}/{name}")
    except ApiError as error:
        if not error.not_found:
            raise
        try:
            secret = await api.request("POST", path, body=body)
        except ApiError as race:
            if not race.conflict:
                raise
            secret = await api.request("GET", f"{path}/{name}")
    return _checked_key(secret, f"{namespace}/{name}", f"kubectl -n {namespace} delete secret {name}")


def _checked_key(secret: Json, where: str, delete: str) -> bytes:
    """The Secret's key; not an empty one, from which anybody could derive every cluster's token."""
    text = (secret.get("data") or {}).get(_KEY)
    try:
        key = base64.b64decode(text, validate=True) if text is not None else b""
    except ValueError:
        came = "it is no base64"
    else:
        came = f"it has {len(key)} bytes" if text is not None else "it has none"
        if len(key) >= _KEY_BYTES:
            return key
    raise KeyRefusedError(
        f"Secret {where}: data.{_KEY} has to be at least {_KEY_BYTES} random bytes, and {came}: delete the Secret"
        f" ({delete}), and the operator makes a new one"
    )
