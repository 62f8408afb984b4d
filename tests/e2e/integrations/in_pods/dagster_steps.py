"""A Dagster job, in a module that its program and the workers import."""

from dagster import In, Nothing, job, op
from dagster_dask import dask_executor
from distributed import get_worker


@op
def numbers() -> list[int]:
    """Some numbers."""
    return [0, 2, 4, 6]


@op
def plain(numbers: list[int]) -> str:
    """Their sum, and the worker that added them up."""
    return f"{sum(numbers)} on {get_worker().name}"


@op(tags={"dagster-dask/resource_requirements": '{"GPU": 1}'})
def on_gpu(numbers: list[int]) -> str:
    """The same, on a worker that offers a GPU."""
    return f"{sum(numbers)} on {get_worker().name}"


@op(ins={"after": In(Nothing)})
def last() -> str:
    """A step that waits for others without their values."""
    return "last"


@job(executor_def=dask_executor)
def steps() -> None:
    """Plain steps and one for a GPU."""
    made = numbers()
    last([plain(made), on_gpu(made)])
