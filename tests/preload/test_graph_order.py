"""What of a client's messages is not wanted any more, who is asked to read a graph, and how errors are judged."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudask.preload.graphs.failures import Failure, Kind
from gpudask.preload.graphs.intake import ClientLine, Does, Message, unwanted
from gpudask.preload.graphs.reading import ONE_GPU, Readers
from gpudask.preload.pools import Pools
from gpudask.preload.requirements import PLAIN

UPDATES, WANTS, GIVES_UP, ELSE = Does.UPDATES, Does.WANTS, Does.GIVES_UP, Does.ELSE


def messages(*items):
    return [Message(does, keys) for does, keys in items]


@pytest.mark.parametrize(
    ("sent", "unwanted_at"),
    [
        ([(UPDATES, "a")], []),
        ([(UPDATES, "a"), (GIVES_UP, "a")], [0]),
        ([(UPDATES, "ab"), (GIVES_UP, "a")], []),
        ([(UPDATES, "ab"), (GIVES_UP, "a"), (ELSE, ""), (GIVES_UP, "b")], [0]),
        ([(UPDATES, "a"), (UPDATES, "b"), (GIVES_UP, "a")], []),  # b may depend on a
        ([(UPDATES, "a"), (UPDATES, "b"), (GIVES_UP, "ab")], [0, 1]),
        ([(UPDATES, "a"), (GIVES_UP, "a"), (UPDATES, "a")], []),
        ([(UPDATES, "a"), (GIVES_UP, "a"), (UPDATES, "b")], []),
        ([(UPDATES, "a"), (WANTS, "a"), (GIVES_UP, "a")], []),  # as fire_and_forget
        ([(UPDATES, "a"), (GIVES_UP, "a"), (WANTS, "a")], []),
        ([(WANTS, "a"), (UPDATES, "a"), (GIVES_UP, "a")], [1]),
    ],
)
def test_a_graph_leaves_once_all_its_keys_are_given_up_and_none_after_it_is_left(sent, unwanted_at):
    waiting = messages(*sent)
    found, _, _ = unwanted(waiting)
    assert sorted(waiting.index(message) for message in found) == unwanted_at


@given(st.lists(st.tuples(st.sampled_from(Does), st.frozensets(st.sampled_from("abc"), min_size=1)), max_size=30))
async def test_a_line_takes_out_what_is_unwanted_as_soon_as_it_is(sent):
    line = ClientLine("client")
    for does, keys in sent:
        line.add(Message(does, keys))
        assert unwanted(line.messages)[0] == []
    for key in "abc":
        there = any(message.does is UPDATES and key in message.keys for message in line.messages)
        assert line.brings_any([key]) is there


class AWorker(SimpleNamespace):
    __hash__ = object.__hash__


def worker(name, processing=0, **resources):
    pool, processing = name.split("-")[0], range(processing)
    name = f"demo-{pool}-worker-{name}"
    return AWorker(
        address=name.rsplit("worker-")[-1], name=name, resources=resources, processing=processing, nthreads=1
    )


def readers(kind, *workers, pools=("cpu", "gpu"), refused=()):
    known = Pools(dict.fromkeys(pools, "any"), {pool: {} for pool in pools if pool.startswith("gpu")})
    scheduler = SimpleNamespace(running=set(workers))
    return Readers(scheduler, known, lambda ws: ws.address not in refused, Failure("", kind, Exception()))


def asked(found):
    """Return who is asked one after the other, while all fail, and what is demanded then."""
    order = []
    while (ws := found.next()) is not None:
        order.append(ws.address)
        found.failed(ws)
    return order, found.demand()


@pytest.mark.parametrize(
    ("kind", "order", "demand"),
    [
        (Kind.DEVICE, ["gpu-b", "gpu-a", "gpu-c", "cpu-a", "cpu-b"], None),
        (Kind.MODULE, ["cpu-a", "gpu-b"], None),
        (Kind.OTHER, ["gpu-b", "cpu-a", "gpu-a", "cpu-b", "gpu-c"], None),
    ],
)
def test_who_is_asked_when_all_fail(kind, order, demand):
    workers = [worker("cpu-a", 1), worker("cpu-b", 5), worker("gpu-a", 2, GPU=1), worker("gpu-b", 0, GPU=1)]
    workers.append(worker("gpu-c", 9, GPU=1))
    got, wanted = asked(readers(kind, *workers))
    assert (sorted(got) if kind is Kind.OTHER else got, wanted) == (
        sorted(order) if kind is Kind.OTHER else order,
        demand,
    )


@pytest.mark.parametrize(
    ("kind", "pools", "workers", "demand"),
    [
        (Kind.DEVICE, ("cpu", "gpu"), [], ONE_GPU),
        (Kind.DEVICE, ("cpu", "gpu"), ["cpu-a"], ONE_GPU),  # which is not asked
        (Kind.DEVICE, ("cpu", "gpu"), ["gpu-a"], ONE_GPU),  # one may be at fault
        (Kind.DEVICE, ("cpu", "gpu"), ["gpu-a", "gpu-b", "gpu-c"], None),
        (Kind.DEVICE, ("cpu",), [], ONE_GPU),  # the operator says that no pool offers it
        (Kind.DEVICE, ("cpu",), ["cpu-a"], None),
        (Kind.MODULE, ("cpu", "gpu"), [], PLAIN),
        (Kind.MODULE, ("cpu", "gpu"), ["cpu-a"], ONE_GPU),
        (Kind.MODULE, ("cpu", "gpu"), ["gpu-a"], PLAIN),
        (Kind.MODULE, ("cpu", "gpu"), ["cpu-a", "gpu-a"], None),
        (Kind.MODULE, (), [], PLAIN),
        (Kind.MODULE, ("gpu",), [], ONE_GPU),
        (Kind.OTHER, ("cpu", "gpu"), [], None),
    ],
)
def test_what_is_demanded_when_nobody_there_could_read_it(kind, pools, workers, demand):
    _, wanted = asked(readers(kind, *map(worker, workers), pools=pools))
    assert wanted == demand


def test_sick_and_retiring_workers_are_not_asked():
    found = readers(Kind.DEVICE, worker("gpu-a"), worker("gpu-b", 7), refused=("gpu-a",))
    assert asked(found) == (["gpu-b"], ONE_GPU)


class CUDARuntimeError(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected"), Kind.DEVICE),
        (CUDARuntimeError("100"), Kind.DEVICE),
        (ModuleNotFoundError("No module named 'cudf'", name="cudf"), Kind.DEVICE),
        (ModuleNotFoundError("No module named 'cupy_backends.x'", name="cupy"), Kind.DEVICE),
        (ImportError("libcuda.so.1: cannot open shared object file: No such file or directory"), Kind.DEVICE),
        (MemoryError("std::bad_alloc: out_of_memory: CUDA error at: rmm"), Kind.DEVICE),
        (ModuleNotFoundError("No module named 'gpudask'", name="gpudask"), Kind.MODULE),
        (ModuleNotFoundError("No module named 'mine'", name="mine"), Kind.MODULE),
        (AttributeError("Can't get attribute 'f' on <module 'mine'>"), Kind.MODULE),
        (AttributeError("'NoneType' object is broken"), Kind.OTHER),
        (ValueError("bad"), Kind.OTHER),
    ],
)
def test_errors_are_judged_by_type_and_text(error, kind):
    assert Failure.here(error).kind is kind


def test_errors_are_judged_by_their_causes_and_what_cannot_be_told_is_no_matter():
    class MuteError(Exception):
        def __str__(self):
            raise OSError

    error = MuteError()
    error.__cause__ = ImportError("x")
    assert Failure.here(error).kind is Kind.MODULE
    assert Failure.here(error).text.endswith("MuteError:")
