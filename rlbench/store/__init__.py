"""The Parquet dataset of a run: schema, writer, reader."""
