"""The command line: scenarios in, tables, figures and numbers out."""

from .command import INTERRUPTED as INTERRUPTED, main as main
