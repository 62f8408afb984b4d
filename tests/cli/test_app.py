"""The app as a whole: help, exit codes, how quickly it starts, its page."""

import json
import re
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

from gpudask.cli.output import Exit
from gpudask.cli.main import COMMANDS, load
from gpudask.cli.help_page import reference
from tests.cli.invoke import invoke
from tests.docs.pages import pages

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_an_example_and_the_exit_codes(name: str):
    result = invoke(name, "--help")

    assert result.exit_code == 0
    assert f"  gpudask {name}" in result.stdout.partition("Example:\n")[2]
    assert "Exit codes: 0 done; 1 refused" in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_has_the_first_sentence_of_each(name: str):
    assert load(name).help.partition("\n")[0] == COMMANDS[name][1]


def test_each_command_that_people_read_of_is_there():
    """What a page tells people to type; docs/cli.md is made from the commands themselves."""
    texts = [page.read_text() for page in pages() if page != ROOT / "docs" / "cli.md"]
    told = {
        word for text in texts for word in re.findall(r"(?:^ *|`)(?:kubectl )?gpudask ([a-z]+)\b", text, re.MULTILINE)
    }

    assert len(told) >= 8, f"the pages say hardly any: {told}"
    assert [word for word in sorted(told) if invoke(word, "--help").exit_code != 0] == []


_MODELS = {"pydantic", "gpudask.api.spec"}
_CLIENT = {"distributed", "dask", "httpx", "kubernetes", "kopf"}


HEAVY: list[tuple[list[str], set[str]]] = [
    (["--help"], _CLIENT | _MODELS | {"asyncio"}),
    (["--version"], _CLIENT | _MODELS | {"asyncio"}),
    *(
        ([name, "--help"], _CLIENT | {"gpudask.api.spec"})
        for name in COMMANDS
        if name not in ("convert", "render", "doctor")
    ),
    (["doctor", "--help"], _CLIENT),
    (["render", "examples/minimal.yaml", "-o", "name"], _CLIENT),
]
# Each command line in a process of its own, which has the program loaded and has run nothing yet.
_PROGRAM = """
import json, os, sys
import gpudask.cli.main as cli

def modules(arguments):
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        with open(reader) as told:
            return told.read()
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            cli.app(arguments, prog_name="gpudask")
        except SystemExit as done:
            assert not done.code, done
        with open(writer, "w") as told:
            told.write(" ".join(sys.modules))
    except BaseException as error:
        print(arguments, repr(error), file=sys.stderr, flush=True)
    finally:
        os._exit(0)

print(json.dumps([modules(arguments) for arguments in json.load(sys.stdin)]))
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """The modules that are loaded after each of the command lines of `HEAVY`."""
    lines = [arguments for arguments, _ in HEAVY]
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(
        command, cwd=ROOT, input=json.dumps(lines), capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return {" ".join(line): set(modules.split()) for line, modules in zip(lines, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize(
    ("arguments", "heavy"), HEAVY, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_help_and_offline_commands_load_neither_client_nor_models(
    arguments: list[str], heavy: set[str], loaded: dict[str, set[str]]
):
    there = loaded[" ".join(arguments)]
    assert "gpudask.cli.main" in there
    assert not heavy & there


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gte"], ["no such command 'gte'", "See gpudask --help"]),
        (["--every"], ["no such option: --every", "See gpudask --help"]),
        (["get", "--every"], ["no such option: --every", "See gpudask get --help"]),
        (["logs"], ["missing argument", "See gpudask logs --help"]),
        (["logs", "demo", "gpu", "cpu"], ["got unexpected extra argument", "See gpudask logs --help"]),
        (["logs", "demo", "--tail", "x"], ["invalid value for '--tail'", "See gpudask logs --help"]),
        (["get", "-o", "xml"], ["'xml' is not one of 'wide', 'json'", "See gpudask get --help"]),
    ],
)
def test_a_command_line_that_is_not_right_is_one_line_as_every_error(words: list[str], said: list[str]):
    result = invoke(*words)

    assert result.exit_code == Exit.USAGE
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert all(part in line for part in said), line


def test_without_any_words_it_helps():
    result = invoke()

    assert "Commands:" in result.output
    assert "error:" not in result.output


def test_a_server_that_does_not_answer_is_one_line(tmp_path: Path):
    config = tmp_path / "config"
    config.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],"
        " clusters: [{name: k, cluster: {server: 'http://127.0.0.1:9'}}], users: [{name: u, user: {}}]}"
    )
    result = invoke("get", "--kubeconfig", str(config))

    assert result.exit_code == Exit.FAILED
    assert result.stdout == ""
    assert result.stderr.startswith("error: cannot reach the API server of context 'c'")
    assert result.stderr.count("\n") == 1


def test_both_names_start_the_same_program():
    scripts = {item.name: item.value for item in entry_points(group="console_scripts") if "gpudask" in item.name}

    assert scripts["gpudask"] == scripts["kubectl-gpudask"] == "gpudask.entry:command_line"


def test_the_page_is_current():
    assert (ROOT / "docs" / "cli.md").read_text() == reference(), "docs/cli.md is old: make generate"


def test_the_version_is_the_distributions():
    result = invoke("--version")

    assert (result.exit_code, result.stdout) == (0, f"gpudask {version('gpudask')}\n")
