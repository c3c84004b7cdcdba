import subprocess
import sys

import pytest


@pytest.fixture
def python():
    """Starts a Python process that runs the code with the arguments in ``sys.argv``."""
    started = []

    def start(code, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
