"""lit configuration: `.rpeg` and `.mlir` files whose RUN lines drive rpeg-opt.

pytest collects and runs them (conftest.py beside this file); `lit -v tests/filecheck` works too.
lit defines `config` before it runs this file.
"""

import os
import sys
from pathlib import Path

import lit.formats

here = Path(__file__).resolve().parent
root = here.parents[1]

config.name = "rpeg"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".rpeg", ".mlir"]
config.excludes = ["Inputs", "Output"]
config.test_source_root = str(here)
config.test_exec_root = str(root / "build" / "filecheck")

# The interpreter that runs lit runs the tools, from this checkout, whatever the folder.
config.environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
config.environment["PYTHONPATH"] = str(root)

rpeg_opt = f"{sys.executable} -m rpeg.tools.rpeg_opt"


def round_trip(flags: str) -> str:
    """Parse, print with the flags, parse again, and check what comes out in the custom form."""
    return f"{rpeg_opt} {flags} %s | {rpeg_opt} | filecheck %s"


config.substitutions += [
    ("%roundtrip", f"{round_trip('')} && {round_trip('--print-op-generic')}"),
    ("%rpeg-opt", rpeg_opt),
    ("%examples", str(root / "examples")),
]

config.maxIndividualTestTime = 300  # seconds: a hang, also on a machine with ten others at work
