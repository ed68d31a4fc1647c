"""What other programs read to run a topology: a document or a script a kind."""
