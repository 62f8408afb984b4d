#!/usr/bin/env python3
"""`make images REGISTRY=registry.example/team`: build all images, push them, print the `helm install` that uses them.

They are REGISTRY/operator, REGISTRY/dask and REGISTRY/dask-cpu, with the version's tag unless TAG says otherwise. Built
with docker, podman or buildah, whichever is there first. The standard library alone.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ("operator", "dask", "dask-cpu")
ENGINES = ("docker", "podman", "buildah")
_REGISTRY = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9._-]+)*", re.IGNORECASE)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")

Run = Callable[[Sequence[str]], None]


def version() -> str:
    """This checkout's version: it stands in pyproject.toml."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def publish(
    registry: str,
    tag: str,
    engine: str,
    run: Run,
    *,
    build: Sequence[str] = (),
    push: Sequence[str] = (),
    revision: str = "unknown",
) -> str:
    """Build and push all images. Returns the command that installs the operator with them.

    Args:
        registry: where they go, with a path where it has one.
        tag: of all of them.
        engine: the program that builds.
        run: runs a command to its end, and raises where that fails.
        build: more options of each build.
        push: more options of each push.
        revision: of this checkout, for the images' labels.

    Raises:
        SystemExit: the registry or the tag is none.
    """
    if _REGISTRY.fullmatch(registry) is None:
        raise SystemExit(
            f"REGISTRY={registry!r} is no place for images: write make images REGISTRY=registry.example/team"
        )
    if _TAG.fullmatch(tag) is None:
        raise SystemExit(f"TAG={tag!r} is no tag: letters, digits, dots and hyphens, such as TAG={version()}")
    references = {name: f"{registry}/{name}:{tag}" for name in IMAGES}
    labels = (f"--build-arg=VERSION={tag}", f"--build-arg=REVISION={revision}")
    verb = "bud" if Path(engine).name == "buildah" else "build"
    for name, reference in references.items():
        run([engine, verb, "-f", f"images/{name}/Containerfile", *labels, *build, "-t", reference, "."])
    for reference in references.values():
        run([engine, "push", *push, reference])
    return helm_install(registry, tag)


def helm_install(registry: str, tag: str) -> str:
    """The command that installs the operator with images that were pushed there. The chart's own tag is its version."""
    tagged = "" if tag == version() else f" --set image.tag={tag}"
    return (
        "helm install gpudask charts/gpudask -n gpudask-system --create-namespace \\\n"
        f"  --set image.repository={registry}/operator{tagged} --set defaults.image={registry}/dask:{tag}"
    )


def _run(command: Sequence[str]) -> None:
    sys.stderr.write(f"+ {shlex.join(command)}\n")
    sys.stderr.flush()
    done = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False)
    if done.returncode:
        raise SystemExit(f"`{shlex.join(command)}` ended with status {done.returncode}: what it printed stands above.")


def _revision() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> None:
    """Read the command line, publish, and print the command alone to standard output."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--registry", default="", help="registry.example/team")
    parser.add_argument("--tag", default="", help="default: this checkout's version")
    parser.add_argument("--engine", default="", help=f"default: the first of {', '.join(ENGINES)} that is there")
    parser.add_argument("--build-args", default="", help="more options of each build, as in a shell")
    parser.add_argument("--push-args", default="", help="more options of each push, as in a shell")
    given = parser.parse_args()
    if not given.registry:
        raise SystemExit("make images REGISTRY=registry.example/team: say where your nodes pull images from.")
    engine = given.engine or next((name for name in ENGINES if shutil.which(name)), "")
    if not engine:
        raise SystemExit(f"None of {', '.join(ENGINES)} is installed: apt-get install buildah, for instance.")
    command = publish(
        given.registry,
        given.tag or version(),
        engine,
        _run,
        build=shlex.split(given.build_args),
        push=shlex.split(given.push_args),
        revision=_revision(),
    )
    sys.stdout.write(f"{command}\n")


if __name__ == "__main__":
    main()
