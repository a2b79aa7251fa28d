"""The command line: scenarios in, tables, figures and numbers out."""

from .command import main as main
