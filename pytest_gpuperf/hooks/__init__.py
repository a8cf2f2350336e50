"""The parts that run inside pytest: on the controller, and in workers."""
