"""What runs inside pytest: on the controller, and where tests run."""
