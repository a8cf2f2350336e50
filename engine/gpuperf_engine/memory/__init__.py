"""The memory of a device, whoever accesses it: address ranges, arrays, the heap, images, tensor maps."""
