"""The host's view of a device: arrays, copies, launches, and the record of them."""
