"""A component of topo as a child of Storm: `python3 -m topo.multilang MODULE:CLASS [ARGS]`."""

import sys

from topo.multilang.child import main

sys.exit(main(sys.argv[1:]))
