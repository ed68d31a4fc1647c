"""The topology as data: the model, what makes one valid, its drawing, and which tasks it has."""
