"""The examples in the docstrings hold."""

import doctest
import importlib
import pkgutil

import pytest

from rlbench import pipeline

MODULES = [each.name for each in pkgutil.iter_modules(pipeline.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module("rlbench.pipeline." + name)
    assert doctest.testmod(module).failed == 0
