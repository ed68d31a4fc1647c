"""Execution of the tasks of components, the same on every engine.

`slot` is the seam to the engines; a reader starts there, then reads `task`, `bolt_task`, `emitter`.
"""
