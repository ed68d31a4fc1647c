"""What runs the tasks of components, the same on every engine.

`host` runs the tasks of one slot; `frames` is what travels between slots, `routing` deals rows over
tasks, `ports` are the functions behind the collectors, `tracking` keeps the tuple trees of one
execution, `saving` says what a task's state is.
"""
