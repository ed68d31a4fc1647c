"""What is saved of a task, and how it comes back."""
