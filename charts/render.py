#!/usr/bin/env python3
"""Write what is derived: the chart's copies of the CRDs, and the manifests for `kubectl apply -f` without Helm.

`python charts/render.py` writes them; `rendered()` is what a test compares the file with. Needs helm on PATH.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

CHARTS = Path(__file__).resolve().parent
CHART = CHARTS / "gpudask"
CRDS = ("gpudaskclusters.yaml", "gpudaskrecords.yaml", "gpudaskjobs.yaml", "gpudaskcronjobs.yaml")
CRD_SOURCES = CHARTS.parent / "crds"
CRD_COPIES = CHART / "crds"
MIRROR_SOURCE = CHARTS.parent / "crds" / "mirror.yaml"
MIRROR_COPY = CHART / "files" / MIRROR_SOURCE.name
TARGET = CHARTS / "rendered" / "gpudask.yaml"
NAMESPACE = "gpudask-system"
# No registry of this name exists: whoever applies the file writes their own.
IMAGE = "registry.example/gpudask/operator"

_HEADER = f"""\
# Made by `make manifests` from charts/gpudask with its default values. Do not edit, but write your image into the
# Deployment: where your cluster finds it.
#   kubectl apply --server-side -f charts/rendered/gpudask.yaml
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""

# True of a Helm release only.
_HELM_LABELS = re.compile(r"^ +(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n", re.MULTILINE)


def rendered(helm: str = "helm") -> str:
    """Render the chart with its default values, CRD first, without the labels of a Helm release.

    Raises:
        SystemExit: helm is not installed, or refuses the chart; the text is helm's own.
    """
    command = [helm, "template", "gpudask", str(CHART), "--namespace", NAMESPACE, "--include-crds"]
    command += ["--set", f"image.repository={IMAGE}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SystemExit(f'{helm} is not on PATH: eval "$(python -m local env)" puts it there.') from None
    if done.returncode:
        raise SystemExit(done.stderr)
    return _HEADER + _HELM_LABELS.sub("", done.stdout)


def write_version() -> None:
    """Write the version, which stands in pyproject.toml, into the chart."""
    version = tomllib.loads((CHARTS.parent / "pyproject.toml").read_text())["project"]["version"]
    file = CHART / "Chart.yaml"
    text = re.sub(r"^version: .*$", f"version: {version}", file.read_text(), flags=re.MULTILINE)
    file.write_text(re.sub(r"^appVersion: .*$", f'appVersion: "{version}"', text, flags=re.MULTILINE))


def main() -> None:
    """Bring the files up to date."""
    CRD_COPIES.mkdir(exist_ok=True)
    for name in CRDS:
        shutil.copyfile(CRD_SOURCES / name, CRD_COPIES / name)
    write_version()
    MIRROR_COPY.parent.mkdir(exist_ok=True)
    shutil.copyfile(MIRROR_SOURCE, MIRROR_COPY)
    text = rendered()
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text)
    sys.stdout.write(f"{TARGET.relative_to(CHARTS.parent)}: {len(text.splitlines())} lines\n")


if __name__ == "__main__":
    main()
