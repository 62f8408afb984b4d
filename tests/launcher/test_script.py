"""The launcher's text, as pods get it."""

from __future__ import annotations

import ast
import re

from gpudask.launcher import script


def test_it_is_python_of_the_oldest_release_that_an_image_may_have():
    ast.parse(script.one_process(), feature_version=(3, 10))


def test_dask_takes_it_for_a_script_and_a_worker_knows_it_among_other_preloads():
    text = script.one_process()
    assert " " in text
    assert not text.endswith(".py")
    assert "MARK = 'gpudask: the worker in one process'" in text


def test_it_is_small_since_each_pod_has_it():
    assert len(script.one_process()) < 9_000
    assert not re.search(r"#|->", script.one_process())


def test_kubernetes_reads_no_variable_in_it():
    assert "$" not in script.one_process()


def test_nothing_in_it_can_end_the_command_that_it_is_a_preload_of():
    (guarded,) = ast.parse(script.one_process()).body
    assert isinstance(guarded, ast.Try)
    assert [handler.type.id for handler in guarded.handlers if isinstance(handler.type, ast.Name)] == ["Exception"]
