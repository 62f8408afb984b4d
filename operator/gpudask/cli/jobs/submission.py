"""The submission of a program: a suspended job, the ConfigMap with its script, and then the job may run.

The runner must not start before its script is there, and the ConfigMap has to know the job's uid to go with it. Each
step may be repeated, as after an answer that was lost. What was begun and not finished is deleted again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

from gpudask.api import Json
from gpudask.api.resource import ANNOTATION_CREATION, JOB_PLURAL
from gpudask.cli.jobs.manifest import Program, config_map, job
from gpudask.cli.output import CliError, write_message
from gpudask.cli.untrusted import field
from gpudask.cli.watch import Trouble
from gpudask.kubecluster.errors import KubeClusterError

if TYPE_CHECKING:
    from gpudask.kubecluster.kube.server import Server

PATIENCE_SECONDS = 120.0
"""For an API server that restarts."""


class Submission:
    """One submission.

    Args:
        program: what is submitted.

    Attributes:
        may_be_left: whether a job may be there that is not whole, and was not deleted.
    """

    def __init__(self, program: Program) -> None:
        self.may_be_left = False
        self._program = program
        self._creation_id = secrets.token_hex(16)
        self._uid = ""

    async def submit(self, server: Server) -> Json:
        """The job, which may run.

        Raises:
            CliError: there is one of this name already, or it was deleted meanwhile.
            KubeClusterError: the server refuses, or did not answer for `PATIENCE_SECONDS`.
        """
        from gpudask.kubecluster.kube.jobs import create_config_map, resume_job  # noqa: PLC0415 - httpx comes with it

        try:
            made = await self._answered(server, self._create)
            self._uid = made["metadata"]["uid"]
            script = config_map(self._program, self._creation_id, self._uid)
            await self._answered(server, lambda server: create_config_map(server, script))
            body = await self._answered(server, lambda server: resume_job(server, self._program.name, self._uid))
        except BaseException:
            if self.may_be_left:
                await self._take_back(server)
            raise
        self.may_be_left = False
        return body

    async def _create(self, server: Server) -> Json:
        """Create the job, or find that an earlier try has."""
        from gpudask.kubecluster.kube.jobs import create_job  # noqa: PLC0415

        was_tried, self.may_be_left = self.may_be_left, True
        request = asyncio.ensure_future(create_job(server, job(self._program, self._creation_id)))
        try:
            return await asyncio.shield(request)
        except asyncio.CancelledError:  # its answer says what to delete
            await asyncio.wait([request], timeout=server.timing.creation_seconds)
            if not request.done():
                request.cancel()
            elif request.exception() is None:
                self._uid = request.result()["metadata"]["uid"]
            raise
        except KubeClusterError as error:
            if error.status != HTTPStatus.CONFLICT:
                self.may_be_left = was_tried or error.may_pass
                raise
            if (found := await self._find(server)) is not None:
                return found
            self.may_be_left = False
            name = self._program.name
            raise CliError(
                f"--name {name}: there is a job of this name in namespace {server.namespace!r}. gpudask attach {name}"
                " shows its log; or choose another name"
            ) from error

    async def _answered(self, server: Server, step: Callable[[Server], Awaitable[Json]]) -> Json:
        """The answer to a step, which is repeated while there may be one."""
        trouble = Trouble()
        clock = server.timing.clock
        begin = clock.monotonic()
        while True:
            try:
                answer = await step(server)
            except KubeClusterError as error:
                if clock.monotonic() - begin > PATIENCE_SECONDS:
                    raise
                await trouble.wait_after(error)
                continue
            trouble.is_over()
            return answer

    async def _find(self, server: Server) -> Json | None:
        """The job, if it is this very one."""
        found = await server.find(self._program.name, JOB_PLURAL)
        is_own = field(found, "metadata", "annotations", ANNOTATION_CREATION) == self._creation_id
        return found if is_own else None

    async def _take_back(self, server: Server) -> None:
        """Delete the job, which may come yet where its creation was not answered."""
        clock, timing = server.timing.clock, server.timing
        begin = clock.monotonic()
        reason = ""
        while clock.monotonic() - begin < timing.exit_seconds:
            is_last_look = clock.monotonic() - begin > timing.creation_seconds
            try:
                if await self._delete(server) or is_last_look:
                    self.may_be_left = False
                    return
            except KubeClusterError as error:
                reason = error.reason
                if not error.may_pass:
                    break
            await clock.sleep(timing.retry_seconds)
        write_message(
            f"job {self._program.name!r} may be left, suspended ({reason or 'it was not found'}):"
            f" kubectl delete gdj {self._program.name} -n {server.namespace}"
        )
        self.may_be_left = False

    async def _delete(self, server: Server) -> bool:
        """True if it is gone now, and will not come any more."""
        from gpudask.kubecluster.kube.jobs import delete_job  # noqa: PLC0415

        uid = self._uid
        if not uid:
            found = await self._find(server)
            uid = found["metadata"]["uid"] if found else ""
        if not uid:
            return False
        await delete_job(server, self._program.name, uid)
        return True
