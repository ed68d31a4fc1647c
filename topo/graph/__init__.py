"""The topology as data: the model, what makes one valid, how it travels, which tasks it has."""
