"""What runs a topology: one thread with simulated time, or Apache Spark."""
