"""`python -m topo.cli`: the same as `topo`."""

from topo.cli import main

main()
