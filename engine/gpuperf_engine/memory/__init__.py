"""The memory of a device: address ranges, arrays, the heap, images, tensor maps."""
