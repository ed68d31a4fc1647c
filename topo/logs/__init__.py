"""The log lines and prints of user code: captured in the workers, read by `topo logs`."""
