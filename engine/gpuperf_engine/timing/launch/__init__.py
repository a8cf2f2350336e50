"""An observed launch as input of the models: machine instructions, the path of a warp, memory traffic, caches and bounds."""
