"""Models of time: waves of CTAs on latencies and rates, published analytical models, and simulation of one SM."""
