"""An operator as a later version may be: it renders other objects and brings another preload.

Made from this checkout's image. Code is added at the end of modules, so that it stays true whatever they hold.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from local.host.commands import run, succeeds
from local.host.hashing import content_key
from local.host.lock import exclusive
from local.images.build import StoredImage, image_in_storage
from local.images.node_images import NodeImages
from local.layout import cache_dir

LABEL = "gpudask.dev/rendering"
VARIABLE = "GPUDASK_RENDERING"
VALUE = "later"
# Where the preload, as the scheduler imported it, says of which version it is.
PRELOAD_MODULE, PRELOAD_ATTRIBUTE = "gpudask_preload.setup", "RENDERING"

_ADDED = {
    "desired/pod.py": f"""
_labels, _environment = labels, environment


def labels(cluster, component):
    return _labels(cluster, component) | {{"{LABEL}": "{VALUE}"}}


def environment(cluster, own, env):
    return _environment(cluster, [*own, {{"name": "{VARIABLE}", "value": "{VALUE}"}}], env)
""",
    "preload/rendering.py": f'{PRELOAD_ATTRIBUTE} = "{VALUE}"\n',  # the ConfigMap holds another set of files, too
    "preload/setup.py": f"\nfrom .rendering import {PRELOAD_ATTRIBUTE}\n",
}
_CONTAINERFILE = """\
FROM {base}
USER 0
COPY added /added
RUN cd /added \\
    && find . -type f -exec sh -c 'cat "$1" >> "/opt/gpudask/gpudask/$1"' - {{}} \\; \\
    && python -m compileall -q -f --invalidation-mode unchecked-hash /opt/gpudask
USER 10001:10001
"""


def build_later_version(base: str, nodes: NodeImages) -> str:
    """Build it on top of the operator's image `base`, put it on the nodes, and return its reference."""
    with tempfile.TemporaryDirectory() as directory, exclusive(cache_dir() / "images"):
        context = Path(directory)
        (context / "Containerfile").write_text(_CONTAINERFILE.format(base=base))
        for path, text in _ADDED.items():
            added = context / "added" / path
            added.parent.mkdir(parents=True, exist_ok=True)
            added.write_text(text)
        reference = f"localhost/gpudask/operator-later:{content_key(files=[context], relative_to=context)}"
        if not succeeds(["buildah", "inspect", "--type", "image", reference]):
            offline = ["--pull=never", "--isolation=chroot", "--network=host"]
            run(["buildah", "bud", *offline, f"--tag={reference}", str(context)])
        image = StoredImage(reference, image_in_storage(reference).image_id)
    image.load_into(nodes)
    return reference
