"""`rpeg`, but its verifier lets losses train on samples that are older than they correct for.

Only to measure what such corrections are worth: `python uncovered.py COMMAND...`, as `rpeg`.
"""

from __future__ import annotations

import sys

from rpeg.ir.ops import losses
from rpeg.ir.rules import program_rows
from rpeg.ir.rules.staleness import COVERS
from rpeg.tools.rpeg import main

if __name__ == "__main__":
    losses.COVERS = program_rows.COVERS = dict.fromkeys(COVERS, max(COVERS.values()))
    sys.exit(main())
