"""Runs an installation by pip and says what takes long, a line each: the large files that it
fetches, and how many packages it unpacks. Needs nothing but Python.

    python .ci/install.py COMMAND ...

Pip's own account has hundreds of lines, and its quiet one none for minutes. If it fails, the end of
its account is shown.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence

LARGE_MB = 20.0
END = 20
"""Lines of the account of a failure."""

_FILE = re.compile(r"(Downloading|Using cached) (?:\S*/)?(\S+) \(([\d.]+) (MB|GB)\)")
_UNPACKED = "Installing collected packages: "


def told(line: str) -> str | None:
    """What a line of pip's account means to who waits for it."""
    line = line.strip()
    if line.startswith(_UNPACKED):
        return f"unpacking {line.count(',') + 1} packages"
    if (found := _FILE.match(line)) is None:
        return None
    how, file, size, unit = found.groups()
    if float(size) * (1000 if unit == "GB" else 1) < LARGE_MB:
        return None
    package = "-".join(file.split("-")[:2])
    cached = ", which is in pip's cache" if how == "Using cached" else ""
    return f"fetching {package} ({size} {unit}){cached}"


def main(command: Sequence[str]) -> int:
    """Runs the installation; its exit code."""
    start = time.monotonic()
    options = {"PIP_PROGRESS_BAR": "off", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    pip = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **options},
    )
    last: deque[str] = deque(maxlen=END)
    for line in pip.stdout or ():
        last.append(line)
        if (text := told(line)) is not None:
            print(f"set-up: {text}", flush=True)
    if code := pip.wait():
        sys.stderr.writelines(last)
        return code
    print(f"set-up: {time.monotonic() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
