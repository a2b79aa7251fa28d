"""Data sources: where the samples of a scenario come from, and how tables are read."""

# Errors and the JSON Schema list the kinds in this order.
# isort: off
from .source import SOURCES as SOURCES, Data as Data, DataSource as DataSource, check_data as check_data
from .classes import ClassSource as ClassSource, Labelled as Labelled
from .gaussian import GaussianData as GaussianData
from .cifar10 import Cifar10 as Cifar10
from .digits import Digits as Digits
from .table import read_labelled as read_labelled, read_table as read_table
from .table_file import FileData as FileData, LabelledFile as LabelledFile
