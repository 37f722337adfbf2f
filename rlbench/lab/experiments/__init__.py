"""Experiments, one file each: what is claimed (``CLAIM``), ``measure`` and a pure ``verdict`` on what was measured.

``SIZES`` holds the two sizes of an experiment, ``CHART`` what the host draws; both are literals, because the host reads
them without importing the module. Its name with hyphens is the experiment's name.
"""
