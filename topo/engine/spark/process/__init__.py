"""A slot's process in both modes: its start and end, what it says of itself, its messages."""
