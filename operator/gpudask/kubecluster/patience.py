"""How long a wait goes on, and which failures it goes on over: an API server that restarts is asked again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from dask.utils import parse_timedelta

from gpudask.kubecluster.errors import KubeClusterError

T = TypeVar("T")
# A question that was asked is given so long, also where the wait is over before: else a short wait hears nothing.
_LEAST_SECONDS = 5.0


def limit_of(timeout: float | str | None) -> float | None:
    """The seconds of a time limit as a user writes it: a number, or a duration in Dask's words, such as `10m`.

    Raises:
        KubeClusterError: it is neither.
    """
    try:
        return None if timeout is None else float(parse_timedelta(timeout, default="s"))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise KubeClusterError(
            f"timeout={timeout!r}",
            reason="it is no time limit",
            next_step="Write seconds, such as 600, or a duration, such as '10m'",
        ) from error


class Patience:
    """The time limit of one wait, and why the API server's last answer did not come.

    Attributes:
        limit_seconds: of the whole wait, which may be given as a duration; None: it goes on for ever.
        trouble: the words for the question that was asked last; empty where it was answered.
    """

    def __init__(self, limit_seconds: float | str | None) -> None:
        self.limit_seconds = limit_of(limit_seconds)
        self.trouble = ""
        self._deadline = None if self.limit_seconds is None else time.monotonic() + self.limit_seconds

    @property
    def is_over(self) -> bool:
        """Whether the limit has passed; never without one."""
        return self._deadline is not None and time.monotonic() > self._deadline

    def within(self, most_seconds: float) -> float:
        """Seconds for one question: `most_seconds`, or less where the limit is near."""
        if self._deadline is None:
            return most_seconds
        return min(most_seconds, max(_LEAST_SECONDS, self._deadline - time.monotonic()))

    async def ask(self, question: Awaitable[T], most_seconds: float = 30.0) -> T | None:
        """What the API server answers; None where it did not, and may do so later: `trouble` has why.

        Raises:
            KubeClusterError: its answer is no, and will be: a right is missing, there is no such object.
        """
        within_seconds = self.within(most_seconds)
        try:
            async with asyncio.timeout(within_seconds):
                answer = await question
        except TimeoutError:
            self.trouble = f"the API server does not answer: no word within {within_seconds:g} s"
            return None
        except KubeClusterError as error:
            if not error.may_pass:
                raise
            self.trouble = f"the API server does not answer: {error.reason}"
            return None
        self.trouble = ""
        return answer
