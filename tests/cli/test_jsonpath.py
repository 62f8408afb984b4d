"""`-o jsonpath=`: the templates that kubectl's documentation shows, on a cluster and on a list of them."""

import pytest

from gpudask.cli.jsonpath import render

ONE = {
    "metadata": {"name": "demo", "annotations": {"a.b/c": "noted"}},
    "spec": {"pools": [{"name": "cpu", "replicas": 2}, {"name": "gpu", "gpu": {"count": 4}}]},
    "status": {
        "conditions": [{"type": "Ready", "status": "False"}, {"type": "Accepted", "status": "True"}],
        "pools": [{"name": "cpu", "ready": 2}, {"name": "gpu", "ready": 0}],
    },
}
LIST = {"kind": "List", "items": [ONE, {"metadata": {"name": "other"}, "spec": {"pools": []}}]}


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("{.metadata.name}", "demo"),
        ("{$.metadata.name}", "demo"),
        ("name={.metadata.name}\n", "name=demo\n"),
        ("{.spec.pools[*].name}", "cpu gpu"),
        ("{.spec.pools[0].name} {.spec.pools[-1].name}", "cpu gpu"),
        ("{.spec.pools[0:1].name}{.spec.pools[1:].name}", "cpugpu"),
        ("{.spec.pools[1].gpu}", '{"count": 4}'),
        ("{.spec.pools[*].gpu.count}", "4"),
        ("{..ready}", "2 0"),
        (r"{.metadata.annotations.a\.b/c}", "noted"),
        ("{.metadata.annotations['a.b/c']}", "noted"),
        ('{.status.conditions[?(@.type=="Ready")].status}', "False"),
        ("{.status.conditions[?(@.type != 'Ready')].type}", "Accepted"),
        ("{.status.pools[?(@.ready>0)].name}", "cpu"),
        ("{.status.pools[?(@.name>0)].name}", ""),
        ("{.spec.pools[?(@.gpu)].name}", "gpu"),
        ("{.nothing.of.it[3]}", ""),
        ('{range .spec.pools[*]}{.name}{"\\t"}{.replicas}{"\\n"}{end}', "cpu\t2\ngpu\t\n"),
        ("{@.metadata['name']}{'!'}", "demo!"),
        ("{range .spec.pools[*]}{range .gpu}{.count};{end}{end}", "4;"),
    ],
)
def test_a_template_prints_what_kubectl_prints(template: str, printed: str):
    assert render(template, ONE) == printed


def test_of_a_list_each_item_has_its_line():
    assert render('{range .items[*]}{.metadata.name}{"\\n"}{end}', LIST) == "demo\nother\n"


@pytest.mark.parametrize(
    "template",
    [
        "",
        "status.phase",
        "{.a",
        "{.a}}",
        "{range .items[*]}{.a}",
        "{.a}{end}",
        "{.a[}",
        "{.a[?(x)]}",
        "{.a[?(@.b==c)]}",
        "{range .a}" * 20 + "{end}" * 20,
    ],
)
def test_what_is_no_template_is_told_with_one(template: str):
    with pytest.raises(ValueError, match=r"write for example -o jsonpath='\{.status.phase\}'"):
        render(template, ONE)
