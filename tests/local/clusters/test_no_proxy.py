"""A proxy in the environment does not come between the parts of a cluster."""

from __future__ import annotations

from local.clusters.no_proxy import reach_cluster_directly


def test_the_clusters_addresses_are_excepted_from_a_proxy_beside_what_was():
    environment = {"https_proxy": "http://proxy:3128", "no_proxy": "intra.site,127.0.0.1"}
    reach_cluster_directly(environment)
    excepted = "intra.site,127.0.0.1,localhost,10.244.0.0/16,10.96.0.0/16,.svc,.cluster.local"
    assert environment == {"https_proxy": "http://proxy:3128", "no_proxy": excepted, "NO_PROXY": excepted}


def test_doing_so_twice_changes_nothing_more():
    environment = {"NO_PROXY": "a"}
    reach_cluster_directly(environment)
    once = dict(environment)
    reach_cluster_directly(environment)
    assert environment == once
