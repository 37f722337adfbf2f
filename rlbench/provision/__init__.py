"""One locked virtual environment per library, built by uv."""
