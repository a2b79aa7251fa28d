"""Data sources, and the samples that they return."""

from .arrays import (
    DataError as DataError,
    DataWarning as DataWarning,
    paired_arrays as paired_arrays,
    real_array as real_array,
)
from .classes import ClassSource as ClassSource, Labelled as Labelled
from .gaussian import (
    GaussianData as GaussianData,
    gaussian_teacher as gaussian_teacher,
    gaussian_teacher_with_test as gaussian_teacher_with_test,
)
from .images_cifar10 import Cifar10 as Cifar10
from .images_digits import Digits as Digits
from .scaling import standardize as standardize, unit_regressor as unit_regressor
from .source import SOURCES as SOURCES, Data as Data, DataSource as DataSource, check_data as check_data
from .table import read_labelled as read_labelled, read_table as read_table
from .table_file import FileData as FileData, LabelledFile as LabelledFile
