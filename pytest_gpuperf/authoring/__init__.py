"""What a test works with: the fixture, kernels, devices. PYTEST_DONT_REWRITE"""
