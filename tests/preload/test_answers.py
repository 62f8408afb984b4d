"""What a worker answers is read as Dask sends it: compressed between hosts, and in pieces where it is long."""

import pytest
from distributed.protocol import dumps, loads, to_serialize

from gpudask.preload.workers import result_of

GRAPH = b"a graph that can be made smaller" * 1000


@pytest.mark.parametrize("piece", [None, 1000], ids=["whole", "in pieces"])
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("result", [{"graph": GRAPH}, {"graph": GRAPH, "more": [GRAPH]}, GRAPH, None])
def test_an_answer_is_what_the_function_returned(result, compression, piece):
    answer = {"status": "OK", "result": to_serialize(result)}
    frames = dumps(answer, context={"compression": compression}, frame_split_size=piece)
    assert result_of(loads(frames, deserialize=False)) == result
