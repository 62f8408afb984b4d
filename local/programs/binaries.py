"""The programs built from Go modules: what each is made of, its place in the cache, its building."""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from local.bundle.activation import bundled_program
from local.host.commands import run
from local.host.hashing import content_key
from local.host.lock import exclusive
from local.host.progress import Steps
from local.layout import GO_MODULES, cache_dir
from local.programs.toolchain import Go, find_go

KUBERNETES_VERSION = "v1.36.3"


@dataclass(frozen=True)
class Program:
    """A Go module of ours, the package in it to build, and the names that its binary acts under."""

    module: str
    package: str
    names: tuple[str, ...]
    link_flags: str = "-s -w"
    cgo: bool = False


KUBERNETES = Program(
    module="kubernetes",
    package=".",
    names=(
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
        "kubectl",
    ),
    link_flags=f"-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}",
)
COREDNS = Program(module="coredns", package=".", names=("coredns",))
HELM = Program(module="helm", package="helm.sh/helm/v4/cmd/helm", names=("helm",))
KUBE_ROUTER = Program(module="kube-router", package=".", names=("kube-router",))
"""Enforces NetworkPolicies."""
KWOK = Program(module="kwok", package="sigs.k8s.io/kwok/cmd/kwok", names=("kwok",))
"""Fakes nodes for benchmarks/testbed; no local cluster needs it."""


DEVICE_PLUGIN = Program(
    module="device-plugin",
    package="github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin",
    names=("nvidia-device-plugin",),
    # The driver's library is opened while it runs: its functions must not be asked for at the start.
    link_flags="-s -w -extldflags=-Wl,-z,lazy",
    cgo=True,
)
"""Offers real GPUs."""


def ensure_binary(program: Program, steps: Steps) -> Path:
    """Have `program` built: the active bundle's, or the cache's, or now. Returns the binary."""
    if bundled := bundled_program(program.names[0]):
        return bundled
    go = find_go(steps)
    source = GO_MODULES / program.module
    target = cache_dir() / "bin" / _key(program, go, source) / program.names[0]
    if target.exists():
        return target
    with exclusive(cache_dir() / "bin"):
        if target.exists():
            return target
        log = cache_dir() / "logs" / f"build-{program.module}.log"
        minutes = " (minutes, the first time)" if program is KUBERNETES else ""
        with steps.step(f"Building {program.module}{minutes}", log=log):
            _build(program, go, source, target, log)
    return target


def link_commands(binary: Path, program: Program, directory: Path) -> None:
    """Make `binary` callable in `directory` by each of its names."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in program.names:
        link = directory / name
        if not link.is_symlink() or link.readlink() != binary:
            link.unlink(missing_ok=True)
            link.symlink_to(binary)


def ensure_commands(steps: Steps) -> Path:
    """Build what a user types, kubectl and helm, unless the cache has it. Returns the directory with both."""
    directory = cache_dir() / "commands"
    for program in (KUBERNETES, HELM):
        link_commands(ensure_binary(program, steps), program, directory)
    return directory


def find_commands(steps: Steps) -> tuple[Path, Path]:
    """Find kubectl and helm: the machine's, which know its cluster; what it lacks is built, which takes minutes."""
    kubectl, helm = shutil.which("kubectl"), shutil.which("helm")
    return (
        Path(kubectl) if kubectl else ensure_commands(steps) / "kubectl",
        Path(helm) if helm else _ensure_helm(steps),
    )


def _ensure_helm(steps: Steps) -> Path:
    directory = cache_dir() / "commands"
    link_commands(ensure_binary(HELM, steps), HELM, directory)
    return directory / "helm"


def _key(program: Program, go: Go, source: Path) -> str:
    files = [path for path in source.iterdir() if path.suffix in {".go", ".mod", ".sum"}]
    texts = (go.version, platform.machine(), *_build_command(program, "go", Path("out")))
    return content_key(texts=texts, files=files, relative_to=source)


def _build_command(program: Program, go: str, output: Path) -> list[str]:
    flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", f"-ldflags={program.link_flags}"]
    return [go, "build", *flags, "-o", str(output), program.package]


def _build(program: Program, go: Go, source: Path, target: Path, log: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".new")
    run(
        _build_command(program, go.command, unfinished),
        cwd=source,
        environment={"CGO_ENABLED": str(int(program.cgo)), "GOTOOLCHAIN": "local"},
        log=log,
    )
    shutil.move(unfinished, target)
