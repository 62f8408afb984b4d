"""What the API server cannot see of `spec.network`, the operator refuses."""

from __future__ import annotations

import pytest

from gpudask.api.resource import InvalidSpecError
from tests.builders import a_cluster


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"cidr": "10.0.0.0/99"}, "ipBlock.cidr: write a range of addresses such as 10.1.0.0/16"),
        ({"cidr": "10.1.0.0/16", "except": ["10.2.0.0/24"]}, "ipBlock.except: each range in except lies inside cidr"),
        ({"cidr": "10.1.0.0/16", "except": ["10.1.0.0/16"]}, "ipBlock.except: each range in except lies inside cidr"),
        ({"cidr": "10.1.0.0/16", "except": ["2001:db8::/96"]}, "ipBlock.except: each range in except lies inside cidr"),
    ],
)
def test_a_range_that_is_none_is_refused(block: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"spec\.network\.allowFrom\[0\]\.") as refusal:
        a_cluster(network={"allowFrom": [{"ipBlock": block}]})
    assert words in str(refusal.value)


def test_a_host_address_with_a_length_is_a_range() -> None:
    a_cluster(network={"allowFrom": [{"ipBlock": {"cidr": "10.1.2.3/16", "except": ["10.1.4.0/24"]}}]})
