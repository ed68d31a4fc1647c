"""Ctrl-C in processes that tests start, whatever shell the tests were started in."""

import signal


def heed_ctrl_c() -> None:
    """Have a new process take Ctrl-C as usual, as a `preexec_fn` of Popen's.

    A shell has what it runs in the background ignore it, and a process hands that on.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
