"""Leaves two children and becomes the program it is given: ``parent.py stubborn PROGRAM ...``.

Stubborn children ignore SIGTERM; any other word makes ordinary ones.
"""

import os
import signal
import sys
import time

for _ in range(2):
    if os.fork() == 0:
        if sys.argv[1] == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(60)
os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606
