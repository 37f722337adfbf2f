"""Runs trials: spawns guests, watches them, limits them, and ends the whole process tree."""
