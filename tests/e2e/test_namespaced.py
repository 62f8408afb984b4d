"""The chart with `watchNamespaces`: a release of its own for a team, with rights in the team's namespace alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from gpudask_e2e import work

from tests.e2e.manifests import cluster, cpu, gpu
from tests.e2e.platform import Platform
from tests.e2e.release import Release
from tests.e2e.space import Space

pytestmark = pytest.mark.alone  # it takes the cluster-wide operator away

GPU = {"GPU": 1}


@dataclass(frozen=True)
class Team:
    """A namespace that an operator of the team watches, one that it does not, and the release."""

    watched: Space
    elsewhere: Space
    release: Release
    replicas: int  # of the cluster-wide operator, before it was taken away

    @property
    def settings(self) -> tuple[str, ...]:
        """Values for rights in the watched namespace alone."""
        return (f"watchNamespaces={{{self.watched.kubectl.namespace}}}", "userRoles=false")


@pytest.fixture
def team(platform: Platform, space: Space) -> Iterator[Team]:
    """Three namespaces, the cluster-wide operator away: two operators must not run the same clusters."""
    home, other = f"{space.kubectl.namespace}-ops", f"{space.kubectl.namespace}-other"
    for namespace in (home, other):
        platform.create_namespace(namespace)
    release = Release(platform, "team", home)
    replicas = platform.scale_operator(0)
    try:
        yield Team(space, Space(platform, platform.kubectl.inside(other)), release, replicas)
    finally:
        release.uninstall()
        platform.scale_operator(replicas)
        for namespace in (home, other):
            platform.kubectl("delete", "namespace", namespace, "--wait=false")


def test_an_operator_of_one_namespace_runs_its_clusters_and_has_no_right_elsewhere(team: Team) -> None:
    team.release.install(*team.settings)
    team.elsewhere.apply(cluster("alone", cpu()))  # first: whoever were to see it would have had the time
    team.watched.apply(cluster("ours", cpu(), gpu()))
    team.watched.wait_ready("ours")
    with team.watched.client("ours") as client:
        assert client.submit(work, 2, resources=GPU).result(timeout=90) == 2
        assert client.submit(work, 3).result(timeout=120) == 3
    team.watched.wait_pods("ours", "gpu", 0)
    assert team.elsewhere.status("alone") == {}
    assert team.elsewhere.get("pods,services,secrets") == []

    log = team.release.log()  # what it asks for without a word is looked at in tests/chart/test_rights_suffice.py
    assert "the caches are complete" in log
    assert not [line for line in log.splitlines() if "forbidden" in line.lower()], "the API server's own word"

    assert _may(team, "list", "pods", team.watched)
    assert not _may(team, "list", "pods", team.elsewhere)
    assert not _may(team, "create", "pods", team.elsewhere)
    assert team.watched.get("clusterroles,clusterrolebindings", labels="app.kubernetes.io/instance=team") == []


def test_a_second_release_shares_the_definition_and_takes_nothing_along_when_it_goes(team: Team) -> None:
    definition = ("get", "crd", "gpudaskclusters.gpudask.dev", "-o", "jsonpath={.metadata.uid}")
    uid = team.watched.kubectl(*definition).stdout
    team.release.install(*team.settings)
    team.watched.apply(cluster("ours", cpu(), gpu()))
    team.watched.wait_ready("ours")
    before = team.watched.containers()
    team.release.uninstall()
    assert team.watched.kubectl(*definition).stdout == uid, "the definition is another one, or gone"
    assert team.watched.containers() == before

    # The other operator's key is another: its token reaches the running scheduler with the kubelet's next look.
    team.watched.platform.scale_operator(team.replicas)
    with team.watched.client("ours") as client:
        assert client.submit(work, 2, resources=GPU).result(timeout=180) == 2
    assert team.watched.containers().items() >= before.items(), "a container was restarted as it changed hands"


def test_a_teams_own_administrator_installs_it_where_the_rights_were_granted(team: Team) -> None:
    namespace = team.watched.kubectl.namespace
    team.watched.kubectl("create", "rolebinding", "lead", "--clusterrole=admin", "--user=lead")
    release = Release(team.watched.platform, "team", namespace, user="lead")
    settings = (*team.settings, "rbac.create=false", "admissionPolicy.create=false")
    rights = ("rbac-clusters.yaml", "rbac-key.yaml", "rbac-lease.yaml", "admission-policy.yaml")
    granted = release.rendered(*team.settings, only=rights)
    team.watched.kubectl("apply", "-f", "-", stdin=granted)
    try:
        release.install(*settings, options=("--skip-crds",))
        team.watched.apply(cluster("ours", cpu()))
        team.watched.wait_ready("ours")
        assert "forbidden" not in release.log().lower()
    finally:
        release.uninstall()
        team.watched.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=granted)


def _may(team: Team, verb: str, resource: str, space: Space) -> bool:
    done = space.kubectl.attempt("auth", "can-i", verb, resource, "--as", team.release.account)
    return done.stdout.strip() == "yes"
