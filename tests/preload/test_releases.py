"""Whether another release of distributed has all that the preload hooks into. The other tests run on the images'."""

from tests.releases.environment import NEWEST, Environment

from .cluster import WORKING

_PROGRAM = """
import asyncio, json
from distributed import Scheduler
from gpudask.preload.setup import install

async def main():
    async with Scheduler(port=0, dashboard_address=":0", dashboard=False) as scheduler:
        preload = await install(scheduler)
        print(json.dumps(preload.features))
        preload.stop()

asyncio.run(main())
"""


def test_no_feature_is_off_under_the_newest_release():
    assert Environment.ensure(NEWEST).run("-c", _PROGRAM) == WORKING
