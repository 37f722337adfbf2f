"""Ledgers to figures: join, throughput, latency, staleness, learning, audit, statistics."""
