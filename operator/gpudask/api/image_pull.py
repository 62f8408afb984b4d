"""Images that cannot be pulled: the kubelet's message in short, and whether another try may end otherwise. Pure.

A kubelet's message quotes the image three times, and has what matters at its end:
`failed to pull and unpack image "docker.io/me/x:1": failed to resolve reference "docker.io/me/x:1": not found`.
"""

from __future__ import annotations

import re

from gpudask.api.untrusted_text import quote

# As the kubelet has them: https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/images/types.go
REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
     "SignatureValidationFailed", "RegistryUnavailable"}
)  # fmt: skip
_FINAL_REASONS = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_SHORT = 80  # such a message is shown as it is
_LOOKED_AT = 4096  # characters from the end
_IMAGE = re.compile(r'image "([^"]{1,512})"')
_QUOTED = re.compile(r'"[^"]{1,512}"')
_CAUSE_LENGTH = 120
# Causes that stand before the last colon, in words that tell more than what follows them.
_TELLING = re.compile(r"pull access denied, repository does not exist or may require authorization|manifest unknown")
# What somebody has to mend, by another name, a push, or a secret: another try ends the same way.
_FINAL = re.compile(
    r"not found|manifest unknown|does not exist|access denied|unauthorized|authorization (?:failed|required)"
    r"|\b40[134]\b|no match for platform|invalid reference format|couldn't parse image",
    re.IGNORECASE,
)


def is_pull_failure(reason: str) -> bool:
    """True if a container waits because of its image: `reason` is the kubelet's."""
    return reason in REASONS


def short_message(reason: str, message: str, image: str = "") -> str:
    """The image and the last cause of a failed pull, as `ErrImagePull: image me/x:1: not found`.

    Args:
        reason: the kubelet's, such as `ImagePullBackOff`.
        message: the kubelet's.
        image: the container's; where it is empty, the message's own.
    """
    text = message[-_LOOKED_AT:].strip()
    if len(text) <= _SHORT and not text.startswith("Back-off"):
        return f"{reason}: {quote(text)}" if text else reason
    named = image or next(iter(_IMAGE.findall(message[:_LOOKED_AT])), "")
    cause = _cause(text)
    parts = [reason, f"image {quote(named)}" if named else "", cause]
    return ": ".join(part for part in parts if part)


def is_final(reason: str, message: str) -> bool:
    """True if another try cannot succeed by itself: there is no such image, or it may not be pulled."""
    said = _QUOTED.sub("", message[-_LOOKED_AT:])  # a tag may be a number like that of an answer
    return reason in _FINAL_REASONS or (is_pull_failure(reason) and _FINAL.search(said) is not None)


def _cause(text: str) -> str:
    """The last cause in a chain with colons; empty where the message only says that it is tried again later."""
    if telling := _TELLING.search(text):
        return telling.group()
    last = text.rpartition(": ")[2].strip(" .\"'")
    return "" if last.startswith("Back-off") else quote(last, _CAUSE_LENGTH)
