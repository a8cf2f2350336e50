"""What a test works with: the fixture, kernels, devices."""
