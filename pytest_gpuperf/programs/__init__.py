"""Programs that launch kernels themselves: the device that they see, its errors, and its activation when they are imported."""
