"""The instrument: runs inside the library's interpreter, on the standard library and numpy alone."""
