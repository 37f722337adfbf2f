"""What can be compared: libraries (adapters/*/adapter.toml) and scenarios (scenarios/*.toml), validated on load."""
