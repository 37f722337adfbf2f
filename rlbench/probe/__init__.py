"""The instrument: runs inside the library's interpreter, on the standard library and numpy alone."""

# Arms of a trial: measure; and of `rlbench overhead`: the full probe, and a bare step counter.
MEASURE, FULL, BARE = "measure", "full", "bare"
