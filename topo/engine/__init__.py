"""The engines that run a topology: one thread with simulated time, or Apache Spark."""
