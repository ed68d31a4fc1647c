"""Says where it runs, and does not end when its parent does."""

import os
import signal
import sys
import time

import wire

signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
wire.begin()
while True:
    time.sleep(1)
