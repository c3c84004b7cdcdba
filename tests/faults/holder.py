"""A tuner that holds an engine until it is killed: ``holder.py FOLDER PROGRAM ARGS...``.

Once the engine answers it prints the engine's process group and its guard's pid.
"""

import sys
import time
from pathlib import Path

from tuner.engine.command import EngineCommand
from tuner.engine.server import Engine

folder = Path(sys.argv[1])
command = EngineCommand(tuple(sys.argv[2:]), {})
engine = Engine(command, log_path=folder / "log", run_dir=folder / "run", startup_timeout_s=60)
with engine as server:
    print(server._process.group, server._process._guard.pid, flush=True)
    time.sleep(600)
