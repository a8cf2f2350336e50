"""The objects of a test: the fixture, kernels, devices."""
