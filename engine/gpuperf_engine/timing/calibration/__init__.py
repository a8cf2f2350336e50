"""Numbers of a machine from microbenchmarks that ran on it, and the machine description written from them."""
