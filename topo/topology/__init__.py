"""The topology as data: the model, its validation, its drawing and its tasks."""
