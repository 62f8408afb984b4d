"""Mounts below a directory, listed and unmounted: pods leave volumes and root file systems behind."""

from __future__ import annotations

from pathlib import Path

from local.errors import LocalClusterError
from local.host.commands import succeeds

_MOUNT_POINT_FIELD = 4


def mounts_below(directory: Path, mountinfo: str | None = None) -> list[Path]:
    """List mount points below `directory`, the innermost first; see proc_pid_mountinfo(5)."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    points = [Path(_unescape(line.split()[_MOUNT_POINT_FIELD])) for line in text.splitlines()]
    return sorted((point for point in points if point.is_relative_to(directory)), reverse=True)


def unmount_below(directory: Path) -> None:
    """Unmount everything below `directory`.

    Raises:
        LocalClusterError: something stays mounted: deleting the directory could then delete elsewhere.
    """
    for point in mounts_below(directory):
        if not succeeds(["umount", str(point)]):
            succeeds(["umount", "--lazy", str(point)])
    if left := mounts_below(directory):
        raise LocalClusterError(f"cannot unmount {left[0]}: `fuser -vm {left[0]}` names who uses it.")


def _unescape(text: str) -> str:
    """Undo the octal escapes that mountinfo writes blanks with."""
    return text.encode().decode("unicode_escape") if "\\" in text else text
