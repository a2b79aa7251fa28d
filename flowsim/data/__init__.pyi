from .arrays import (
    DataError as DataError,
    DataWarning as DataWarning,
    paired_arrays as paired_arrays,
    real_array as real_array,
)
from .gaussian import (
    gaussian_teacher as gaussian_teacher,
    gaussian_teacher_with_test as gaussian_teacher_with_test,
)
from .scaling import standardize as standardize, unit_regressor as unit_regressor
from .sources import (
    SOURCES as SOURCES,
    Cifar10 as Cifar10,
    ClassSource as ClassSource,
    Data as Data,
    DataSource as DataSource,
    Digits as Digits,
    FileData as FileData,
    GaussianData as GaussianData,
    Labelled as Labelled,
    LabelledFile as LabelledFile,
    check_data as check_data,
    read_labelled as read_labelled,
    read_table as read_table,
)
